"""One worker per data directory; a dead worker's server is waited for, a living worker is not."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from service.embedded.errors import DataDirectoryBusy
from service.embedded.ownership import owned

# Holds the lock it inherits until its standard input ends, as a guard does while its JVM stops.
_HOLDER = "import sys; sys.stdin.read()"


async def test_living_owner_is_reported_at_once(tmp_path: Path) -> None:
    """Another owner is an error immediately, however long one would wait for a server."""
    async with owned(tmp_path, wait_seconds_max=1):
        with pytest.raises(DataDirectoryBusy, match="in use by another worker"):
            async with owned(tmp_path, wait_seconds_max=3600):
                pass


async def test_server_of_a_dead_owner_is_waited_for(tmp_path: Path) -> None:
    """Where only the server's lock is held, the next owner waits until it is released."""
    async with owned(tmp_path, wait_seconds_max=1) as lock:
        holder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _HOLDER), stdin=asyncio.subprocess.PIPE, pass_fds=(lock,)
        )
    with pytest.raises(DataDirectoryBusy, match="does not end"):
        async with owned(tmp_path, wait_seconds_max=0.1):
            pass
    assert holder.stdin
    holder.stdin.close()
    async with owned(tmp_path, wait_seconds_max=60) as lock:
        assert os.fstat(lock)
        # Entering proves that the lock was released, hence that the holder has ended.
        assert await holder.wait() == 0


async def test_ownership_ends_with_the_block(tmp_path: Path) -> None:
    """A directory can be owned again and again."""
    for _ in range(3):
        async with owned(tmp_path / "new", wait_seconds_max=1):
            assert (tmp_path / "new").is_dir()
