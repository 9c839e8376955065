"""Who may use a data directory: one worker at a time, told by file locks that die with their holders.

Two locks, because a killed worker's JVM may still be stopping when the next worker comes:
`owner.lock` is held by the worker itself; where it is taken another worker is alive, which is an error at once.
`server.lock` is handed on to the guard; where only that is taken, the server of a dead worker is on its way
out, and waiting is right. No process ids are compared: they are reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from service.embedded.errors import DataDirectoryBusy

_POLL_SECONDS = 0.05


@contextlib.asynccontextmanager
async def owned(folder: Path, *, wait_seconds_max: float) -> AsyncIterator[int]:
    """Own the directory; yields the descriptor of the server's lock, to be inherited by the guard.

    Raises DataDirectoryBusy at once where another worker lives, or after `wait_seconds_max` where the server
    of a dead one does not end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _opened(folder / "owner.lock") as owner:
        if not _is_locked_now(owner):
            raise DataDirectoryBusy(f"{folder} is in use by another worker: stop it, or use another data directory")
        with _opened(folder / "server.lock") as server:
            try:
                async with asyncio.timeout(wait_seconds_max):
                    while not _is_locked_now(server):
                        await asyncio.sleep(_POLL_SECONDS)
            except TimeoutError:
                message = f"the server of an earlier worker in {folder} does not end: stop it (ps shows the directory)"
                raise DataDirectoryBusy(message) from None
            yield server


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_locked_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
