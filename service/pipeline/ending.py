"""The end of work that may not want to end: code of connectors that waits for ever while it cleans up."""

from __future__ import annotations

import asyncio
from typing import Any


async def end_insistently(work: asyncio.Task[Any], *, seconds: float, is_cancelled: bool = False) -> None:
    """Cancel, and again every so many ``seconds`` until it has ended; being cancelled oneself is no way out of it.

    A task group would wait for ever for a child that hangs after its only cancellation. ``is_cancelled``: the group
    has just cancelled the work, as it does whenever it cancels this.
    """
    am_cancelled = False
    while not work.done():
        if not is_cancelled:
            work.cancel()
        is_cancelled = False
        try:
            await asyncio.wait({work}, timeout=seconds)
        except asyncio.CancelledError:
            is_cancelled = am_cancelled = True
    if am_cancelled:
        raise asyncio.CancelledError
