"""Where a launched JVM keeps its temporary files, so that none outlives it for long.

Spark clears its folders when it is asked to end. It never is: the JVM is killed, by us or by the system, and each time
libraries and block files would stay behind. They go into one folder a process, and whoever comes next removes those
of the processes that have ended.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "headrace-spark-"


def make_scratch(parent: Path | None = None) -> Path:
    """An empty folder of this process in ``parent`` (default: the system's for temporary files)."""
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(parent)
    folder = parent / f"{_PREFIX}{os.getpid()}"
    # Not one that somebody else has made in a folder where all may write: exist_ok stays False.
    folder.mkdir(mode=0o700)
    return folder


def remove_scratch(parent: Path | None = None) -> None:
    """Remove this process's folder; the JVM that used it has ended."""
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    shutil.rmtree(parent / f"{_PREFIX}{os.getpid()}", ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Folders of processes that are no more, and of one that had our number before us."""
    for folder in parent.glob(f"{_PREFIX}*"):
        number = folder.name.removeprefix(_PREFIX)
        if number.isdigit() and (int(number) == os.getpid() or not _is_running(int(number))):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    with suppress(ProcessLookupError):
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True  # somebody else's
        return True
    return False
