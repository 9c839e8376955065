"""What wakes the herder: rung often before a tick, it ticks once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True)
class Bell:
    """Rung by whoever has changed something; waited for by the one who ticks."""

    _due: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def ring(self) -> None:
        """A tick is due."""
        self._due.set()

    def ring_and_wait(self) -> asyncio.Future[None]:
        """The end of the next tick that has not begun yet."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.ring()
        return future

    async def wait_rung(self, *, seconds_max: float) -> list[asyncio.Future[None]]:
        """Until it rings, or so long; to be handed to ``ended`` after the tick."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._due.wait()
        except TimeoutError:
            pass  # a tick in any case: some steps depend on time
        self._due.clear()
        waiting, self._waiting = self._waiting, []
        return waiting


def ended(waiting: list[asyncio.Future[None]]) -> None:
    """Tell them that their tick is over."""
    for future in waiting:
        if not future.done():
            future.set_result(None)
