"""Time as a fetcher sees it: an object, so that tests can replace it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time; replaced by a virtual one in tests."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellation ends it at once."""


class SystemClock:
    """The machine's time. ``monotonic`` is the event loop's, so a loop in virtual time works too."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""
        return datetime.fromtimestamp(time.time(), UTC)

    def monotonic(self) -> float:
        """Seconds of the running event loop."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(seconds)
