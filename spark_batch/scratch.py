"""Where a launched JVM keeps its temporary files, so that none outlives it for long.

Spark clears its folders when it is asked to end. It never is: the JVM is killed, by us or by the system, and each time
libraries and block files would stay behind. They go into a folder that its process holds locked; whoever comes next
removes those that nobody holds any more. (A lock ends with its process, and counts between containers too; a process
id would not.)
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "headrace-spark-"


@dataclass(frozen=True, slots=True)
class Scratch:
    """An empty folder of this process, until it is removed."""

    folder: Path
    _lock: int
    """Open descriptor of the folder; children do not inherit it."""

    @classmethod
    def make(cls, parent: Path | None = None) -> Scratch:
        """In ``parent`` (default: the system's folder for temporary files), after removing what was abandoned there."""
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        for abandoned in parent.glob(f"{_PREFIX}*"):
            if (lock := _locked(abandoned)) is not None:
                cls(abandoned, lock).remove()
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            # Another process may have taken it for abandoned before it was locked.
            if (lock := _locked(folder)) is not None and folder.is_dir():
                return cls(folder, lock)
            if lock is not None:
                os.close(lock)

    def remove(self) -> None:
        """With all that is in it; the JVM that used it has ended."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _locked(folder: Path) -> int | None:
    """A lock on a folder, None where somebody holds it, or it is none of ours."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
