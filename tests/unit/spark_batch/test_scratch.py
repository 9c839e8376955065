"""Temporary files of a JVM go with it, or with the next start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from spark_batch.scratch import Scratch

_HOLD = """
import sys
from pathlib import Path
from spark_batch.scratch import Scratch
print(Scratch.make(Path(sys.argv[1])).folder, flush=True)
sys.stdin.read()
"""


def _holder(parent: Path) -> subprocess.Popen[str]:
    """A process that holds a folder until it is killed."""
    command = [sys.executable, "-c", _HOLD, str(parent)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_the_folder_is_empty_and_of_this_user_alone(tmp_path: Path) -> None:
    """It goes with all that is in it."""
    scratch = Scratch.make(tmp_path)
    assert scratch.folder.stat().st_mode & 0o777 == 0o700
    assert list(scratch.folder.iterdir()) == []
    (scratch.folder / "blockmgr").mkdir()
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_held_stays_and_one_of_a_killed_process_goes(tmp_path: Path) -> None:
    """A killed worker cannot clear up; the next one does. One that lives keeps its own."""
    notes = tmp_path / "notes"
    notes.mkdir()
    with _holder(tmp_path) as holder:
        assert holder.stdout is not None
        held = Path(holder.stdout.readline().strip())
        first = Scratch.make(tmp_path)
        assert set(tmp_path.iterdir()) == {held, notes, first.folder}
        holder.kill()
    second = Scratch.make(tmp_path)
    assert set(tmp_path.iterdir()) == {notes, first.folder, second.folder}
    first.remove()
    second.remove()


def test_a_link_is_neither_followed_nor_in_the_way(tmp_path: Path) -> None:
    """In a folder where all may write, somebody else may have been there first."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "precious").mkdir(parents=True)
    (tmp_path / "headrace-spark-link").symlink_to(elsewhere)
    Scratch.make(tmp_path).remove()
    assert (elsewhere / "precious").is_dir()
