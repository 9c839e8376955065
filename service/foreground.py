"""What somebody waits for goes first: work that can wait a moment lets it pass."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CALM_AFTER_SECONDS = 0.05
"""Who has had an answer and sends the next request at once is not kept waiting by what the first one has begun."""
TRICKLE_SECONDS = 0.25
"""In such steps work goes on while it is not calm: people who ask without an end still get what they ask for."""


class Foreground:
    """Counts what is in hand; it is calm when there is nothing and has been nothing for `CALM_AFTER_SECONDS`."""

    def __init__(self) -> None:
        """Calm, until something is in hand."""
        self._in_hand = 0
        self._calm = asyncio.Event()
        self._calm.set()
        self._timer: asyncio.TimerHandle | None = None
        self._line = asyncio.Lock()

    @contextmanager
    def in_hand(self) -> Iterator[None]:
        """Somebody waits for what is done in the block."""
        self._in_hand += 1
        self._calm.clear()
        if self._timer is not None:
            self._timer.cancel()
        try:
            yield
        finally:
            self._in_hand -= 1
            if not self._in_hand:
                self._timer = asyncio.get_running_loop().call_later(CALM_AFTER_SECONDS, self._calm.set)

    @property
    def is_calm(self) -> bool:
        """Whether nobody has waited for an answer for ``CALM_AFTER_SECONDS``."""
        return self._calm.is_set()

    async def give_way(self) -> None:
        """Until it is calm; while it is not, one caller comes through every `TRICKLE_SECONDS`, in order of arrival."""
        if self.is_calm:
            return
        async with self._line:
            with suppress(TimeoutError):
                async with asyncio.timeout(TRICKLE_SECONDS):
                    await self._calm.wait()
