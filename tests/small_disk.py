"""A real file system of two mebibytes, which can be filled and made read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SIZE_BYTES = 2 << 20


@dataclass(frozen=True)
class SmallDisk:
    """Where it is mounted."""

    folder: Path

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self, *, left_bytes: int) -> None:
        """Leave so much room."""
        room = os.statvfs(self.folder)
        self._ballast.write_bytes(b"\0" * (room.f_bavail * room.f_bsize - left_bytes))

    def make_room(self) -> None:
        """Take away what was filled in."""
        self._ballast.unlink()

    def set_writable(self, *, is_writable: bool) -> None:
        """Mount it anew; files that are open for writing must be closed first."""
        _run("mount", "-o", f"remount,{'rw' if is_writable else 'ro'}", str(self.folder))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Mounted for one test, where the tests may mount anything."""
    with mounted(tmp_path / "disk") as disk:
        yield disk


@contextmanager
def mounted(folder: Path, *, size_bytes: int = SIZE_BYTES) -> Iterator[SmallDisk]:
    """A new folder, mounted while the block runs."""
    folder.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system may be mounted here: {error}")
    try:
        yield SmallDisk(folder)
    finally:
        _run("umount", "-l", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=120)
