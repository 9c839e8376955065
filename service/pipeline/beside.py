"""Work on many rows, beside the event loop: one task's bad page may not silence the worker's heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

ROWS_INLINE_MAX = 1_000
"""With fewer rows a thread costs more than it spares the event loop."""
_ROW_WORKERS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="rows")
_T = TypeVar("_T")


async def run_beside(work: Callable[[], _T], *, rows: int) -> _T:
    """The result of ``work``. Cancelled, it does not wait for the thread: what is worked on is given up then."""
    if rows <= ROWS_INLINE_MAX:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_ROW_WORKERS, work)
