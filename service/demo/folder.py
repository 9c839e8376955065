"""The demo's folder: emptied before each demo, but never under one that runs."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from service.embedded.errors import DataDirectoryBusy
from service.embedded.ownership import owned

SERVER_ENDS_SECONDS_MAX = 30.0
"""For the servers of a demo that was killed to end."""
_LOCKS = ("owner.lock", "server.lock")


@asynccontextmanager
async def fresh_folder(folder: Path) -> AsyncIterator[None]:
    """Own the folder, with nothing of an earlier demo in it.

    Raises DataDirectoryBusy, with everything left as it is, where a demo or another worker has its data there.
    """
    async with AsyncExitStack() as owning:
        try:
            await owning.enter_async_context(owned(folder, wait_seconds_max=0))
        except DataDirectoryBusy as error:
            message = f"a demo is running in {folder}: stop it, or name another folder with --data"
            raise DataDirectoryBusy(message) from error
        await _empty(folder)
        yield


async def _empty(folder: Path) -> None:
    """Delete all but the folder's own locks, which are held; those of servers are taken first."""
    async with AsyncExitStack() as owning:
        for lock in sorted(folder.glob(f"*/{_LOCKS[0]}")):
            await owning.enter_async_context(owned(lock.parent, wait_seconds_max=SERVER_ENDS_SECONDS_MAX))
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name not in _LOCKS:
                entry.unlink()
