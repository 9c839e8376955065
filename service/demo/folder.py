"""The demo's folder: emptied before each demo, but never under one that runs, and no folder of somebody else's."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from service.embedded.errors import DataDirectoryBusy, EmbeddedError
from service.embedded.ownership import owned

SERVER_ENDS_SECONDS_MAX = 30.0
"""For the servers of a demo that was killed to end."""
MARK = "headrace-demo.txt"
_MARK_TEXT = "The folder of headrace's demo: each demo deletes everything in it first.\n"
_LOCKS = ("owner.lock", "server.lock")


class ForeignFolder(EmbeddedError):
    """There are files in the folder, and no demo has said that they are its own."""


@asynccontextmanager
async def fresh_folder(folder: Path) -> AsyncIterator[None]:
    """Own the folder, with nothing of an earlier demo in it.

    Everything is left as it is where it raises: ForeignFolder where the folder is neither empty nor a demo's,
    DataDirectoryBusy where a demo or another worker has its data there.
    """
    # Before anything is written, even a lock.
    _require_own(folder)
    async with AsyncExitStack() as owning:
        try:
            await owning.enter_async_context(owned(folder, wait_seconds_max=0))
        except DataDirectoryBusy as error:
            message = f"a demo is running in {folder}: stop it, or name another folder with --data"
            raise DataDirectoryBusy(message) from error
        (folder / MARK).write_text(_MARK_TEXT, encoding="utf-8")
        await _empty(folder)
        yield


def _require_own(folder: Path) -> None:
    """Whoever mistypes ``--data`` keeps his files. Only the mark is evidence: a worker's folder has such locks too."""
    if not folder.exists() or (folder / MARK).exists():
        return
    if any(entry.name not in _LOCKS for entry in folder.iterdir()):
        message = f"{folder} holds files that no demo has made: name an empty or a new folder with --data, or delete it"
        raise ForeignFolder(message)


async def _empty(folder: Path) -> None:
    """Delete all but the mark and the folder's own locks, which are held; those of servers are taken first."""
    async with AsyncExitStack() as owning:
        for lock in sorted(folder.glob(f"*/{_LOCKS[0]}")):
            await owning.enter_async_context(owned(lock.parent, wait_seconds_max=SERVER_ENDS_SECONDS_MAX))
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name not in (*_LOCKS, MARK):
                entry.unlink()
