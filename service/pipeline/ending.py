"""The end of work that may not want to end: code of connectors that waits for ever while it cleans up."""

from __future__ import annotations

import asyncio
from typing import Any


async def end_insistently(work: asyncio.Task[Any], *, seconds: float) -> None:
    """Cancel, and again every so many ``seconds`` until it has ended; being cancelled oneself is no way out of it.

    A task group would wait for ever for a child that hangs after its only cancellation.
    """
    is_cancelled = False
    while not work.done():
        work.cancel()
        try:
            await asyncio.wait({work}, timeout=seconds)
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
