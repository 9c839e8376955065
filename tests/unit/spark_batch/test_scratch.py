"""Temporary files of a JVM go with it, or with the next start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_batch.scratch import make_scratch, remove_scratch


def test_the_folder_is_empty_and_of_this_user_alone(tmp_path: Path) -> None:
    """What a process with our number left there is gone."""
    before = make_scratch(tmp_path)
    (before / "block").write_bytes(b"1")
    folder = make_scratch(tmp_path)
    assert folder == before
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700


def test_folders_of_ended_processes_go_and_those_of_running_ones_stay(tmp_path: Path) -> None:
    """A killed worker cannot clear up; the next one does."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    abandoned = tmp_path / f"headrace-spark-{ended.pid}"
    in_use = tmp_path / f"headrace-spark-{os.getppid()}"
    foreign = tmp_path / "headrace-spark-notes"
    for folder in (abandoned, in_use, foreign):
        (folder / "blockmgr").mkdir(parents=True)
    made = make_scratch(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {made.name, in_use.name, foreign.name}


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    """In a folder where all may write, somebody else may have been there first."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"headrace-spark-{os.getpid()}").symlink_to(elsewhere)
    with pytest.raises(FileExistsError):
        make_scratch(tmp_path)
    assert list(elsewhere.iterdir()) == []


def test_removing_twice_is_fine(tmp_path: Path) -> None:
    """Also where there is nothing."""
    folder = make_scratch(tmp_path)
    remove_scratch(tmp_path)
    remove_scratch(tmp_path)
    assert not folder.exists()
