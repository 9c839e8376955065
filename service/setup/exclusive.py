"""One set-up at a time: a file lock that dies with its holder, so that no stale lock can remain."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file at `path`; where another process holds it, call `on_wait` once and wait for its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
