"""Carries one event to every observer, and records events for tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from metrics.events import Emit, Event

Kind = TypeVar("Kind", bound="Event")


class Emitter:
    """An ``Emit`` that calls its observers in the order given.

    An observer that raises is a defect of ours: the error reaches whoever emitted.
    """

    def __init__(self, *observers: Emit) -> None:
        self._observers = observers

    def __call__(self, event: Event) -> None:
        """Hand the event to each observer."""
        for observe in self._observers:
            observe(event)


class RecordingEmitter:
    """An ``Emit`` for tests: keeps every event and lets a test wait for the next."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._arrived = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Keep the event and wake whoever waits."""
        self.events.append(event)
        arrived, self._arrived = self._arrived, asyncio.Event()
        arrived.set()

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the events of one class, in order of arrival."""
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(self, kind: type[Kind], *, count: int = 1, timeout_seconds: float = 10.0) -> list[Kind]:
        """Wait until ``count`` events of ``kind`` have come, those before the call included.

        Raises TimeoutError with what came instead.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while len(found := self.of(kind)) < count:
                    await self._arrived.wait()
        except TimeoutError as error:
            seen = [type(event).__name__ for event in self.events]
            message = f"waited {timeout_seconds} s for {count} {kind.__name__}; seen: {seen}"
            raise TimeoutError(message) from error
        return found
