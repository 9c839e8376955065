"""The thread of a sink that gathers records, in which everything is done that blocks, and what disks refuse there."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from service.sinks.contract import StartAnew

T = TypeVar("T")
DISK_MENDS = {
    errno.ENOSPC: "the disk is full: make room",
    errno.EDQUOT: "its quota is used up, or no data node has room: make room",
    errno.EACCES: "permission is denied: let the worker's user write there",
    errno.EPERM: "it is not permitted, or the file system has no hard links: use another folder",
    errno.EOPNOTSUPP: "the file system has no hard links: use another folder",
    errno.EROFS: "the file system is mounted read-only: mount it to be written",
    errno.ENOTDIR: "a file stands where a folder is needed: move it away",
    errno.ENAMETOOLONG: "the name is too long: use a shorter folder",
}
"""What a person must do about errors that waiting does not mend."""


class OwnThread:
    """Does one thing after another, each to its end, also where nobody waits for it any more.

    What fails in the middle leaves holes in what is gathered: from then on there is only a new beginning.
    """

    def __init__(self, name: str) -> None:
        """``name``: as debuggers show it."""
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self.failure: str | None = None
        """What went wrong in the middle, or makes a new beginning necessary otherwise."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do it; raises what it raises, and StartAnew where something has failed before."""

        def guarded() -> T:
            if self.failure is not None:
                raise StartAnew(self.failure)
            try:
                return work()
            except BaseException as error:  # raised again; a SystemExit of a library leaves the same holes as an error
                self.failure = str(error) or type(error).__name__
                raise

        return await self.run_always(guarded)

    async def run_always(self, work: Callable[[], T]) -> T:
        """Do it whatever has failed: to give up what is gathered."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def end(self, last: Callable[[], object]) -> None:
        """Take nothing more; ``last`` is done after what is under way. Nothing happens at a second call."""
        with suppress(RuntimeError):  # the thread has been ended before
            self._executor.submit(last)
        self._executor.shutdown(wait=False)
