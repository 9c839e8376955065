"""A demo empties its folder, and never one of somebody else's, or of a demo or worker that runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.demo.folder import MARK, ForeignFolder, fresh_folder
from service.embedded.errors import DataDirectoryBusy
from service.embedded.ownership import owned

ROOT = Path(__file__).parents[3]


def demo(folder: Path) -> subprocess.CompletedProcess[str]:
    """The command, as people run it."""
    return subprocess.run(
        [sys.executable, "-m", "service.cli", "demo", "--data", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def kept(folder: Path) -> Path:
    """A file of a broker's log."""
    file = folder / "kafka" / "logs" / "0.log"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"records")
    return file


async def test_what_an_earlier_demo_left_is_deleted(tmp_path: Path) -> None:
    """Again and again; the folder need not be there at first."""
    folder = tmp_path / "new" / "demo"
    for _ in range(3):
        async with fresh_folder(folder):
            assert [path.name for path in folder.iterdir() if path.suffix != ".lock"] == [MARK]
            kept(folder)
            (folder / "orders.jsonl").touch()
            async with owned(folder / "kafka", wait_seconds_max=0):
                pass


async def test_the_data_of_a_running_demo_is_left_alone(tmp_path: Path) -> None:
    """The second demo says so in one line, with exit code 2."""
    async with fresh_folder(tmp_path):
        data = kept(tmp_path)
        with pytest.raises(DataDirectoryBusy, match="a demo is running in"):
            async with fresh_folder(tmp_path):
                pass
        done = demo(tmp_path)
        assert done.returncode == 2, done.stderr
        assert done.stderr.splitlines() == [
            f"headrace: a demo is running in {tmp_path}: stop it, or name another folder with --data"
        ]
        assert data.read_bytes() == b"records"


async def test_the_data_of_another_worker_is_left_alone(tmp_path: Path) -> None:
    """A worker owns its servers' folders, not the one around them; here one with the files of a demo that was kept."""
    async with fresh_folder(tmp_path):
        data = kept(tmp_path)
    async with owned(tmp_path / "kafka", wait_seconds_max=0):
        with pytest.raises(DataDirectoryBusy, match="another worker"):
            async with fresh_folder(tmp_path):
                pass
        assert data.read_bytes() == b"records"


@pytest.mark.parametrize("name", ["notes.txt", "kafka/logs/0.log", ".profile"])
async def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, name: str) -> None:
    """A home, a project, a worker that is stopped: nothing is deleted, and not even a lock is put there."""
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"kept")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ForeignFolder, match="files that no demo has made"):
        async with fresh_folder(tmp_path):
            pass
    assert sorted(tmp_path.rglob("*")) == before
    assert file.read_bytes() == b"kept"


def test_the_command_says_in_one_line_that_a_folder_is_somebody_else_s(tmp_path: Path) -> None:
    """With exit code 2."""
    (tmp_path / "notes.txt").touch()
    done = demo(tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"headrace: {tmp_path} holds files that no demo has made: ")
