"""An administrator that is always there: connected when first needed, kept open, connected anew after an error."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeVar

from service.kafka.admin import KafkaAdmin
from service.kafka.errors import DeliveryRetriable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from service.kafka.client import KafkaSettings

Result = TypeVar("Result")


class _Connection:
    """One that is open, and the way to end it."""

    def __init__(self, admin: KafkaAdmin, stack: AsyncExitStack) -> None:
        self.admin = admin
        self.stack = stack


class StandbyAdmin:
    """For one caller at a time, and for questions and changes that may be repeated."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connects when asked."""
        self._settings = settings
        self._kept: _Connection | None = None

    async def use(self, work: Callable[[KafkaAdmin], Awaitable[Result]]) -> Result:
        """What `work` gives; a connection that has died since it was last used is replaced, once.

        Raises DeliveryFatal, DeliveryRetriable.
        """
        kept, self._kept = self._kept, None
        if kept is not None:
            try:
                return await self._use(kept, work)
            except DeliveryRetriable:
                pass  # the broker may have been away and be back
        return await self._use(await self._connect(), work)

    async def stop(self) -> None:
        """Disconnect; a later use connects again."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.stack.aclose()

    async def _connect(self) -> _Connection:
        stack = AsyncExitStack()
        return _Connection(await stack.enter_async_context(KafkaAdmin.opened(self._settings)), stack)

    async def _use(self, connection: _Connection, work: Callable[[KafkaAdmin], Awaitable[Result]]) -> Result:
        async with AsyncExitStack() as ending:
            # Until it has worked: an error goes through the connection's own end, which tells its kind.
            ending.push_async_exit(connection.stack)
            result = await work(connection.admin)
            ending.pop_all()
        self._kept = connection
        return result
