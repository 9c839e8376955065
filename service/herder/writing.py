"""Writing to the config log on behalf of a client: one change of a connector after the other, failures told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from service.herder.errors import ConflictError, RequestError
from service.herder.whereabouts import CONFLICT, NO_LEADER
from service.kafka.errors import KafkaFailure, WriterFenced
from service.stores.state_log import ClaimMissing


@dataclass(slots=True)
class ChangeTurns:
    """Lets one request at a time look at a connector and change it."""

    on_fenced: Callable[[], None] = lambda: None
    """Hears that another worker leads now."""
    on_failed: Callable[[], None] = lambda: None
    """Hears that a change was not written, which may have cost the claim to write."""
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _is_closed: bool = False
    _begun: int = 0
    _last_ended: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def changing(self, connector: str) -> AsyncIterator[None]:
        """Alone with the connector; a write that fails is told to the client with the store's own text."""
        async with self.alone_with(connector), self.telling_failures():
            try:
                yield
            except KafkaFailure:
                self.on_failed()
                raise

    def alone_with(self, connector: str) -> AbstractAsyncContextManager[None]:
        """Alone with the connector; failures are raised as they are."""
        # Held across the write on purpose: what the next request looks at must be what this one has written.
        # The store bounds each write by a time limit.
        return self._locks.setdefault(connector, asyncio.Lock())

    async def close(self, *, seconds_max: float) -> None:
        """Let the changes that have begun end, for so long; from now on others are conflicts."""
        self._is_closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self._begun:
                    self._last_ended.clear()
                    await self._last_ended.wait()

    @asynccontextmanager
    async def telling_failures(self) -> AsyncIterator[None]:
        """A failure of Kafka becomes the answer to the request."""
        if self._is_closed:
            raise ConflictError(CONFLICT)
        self._begun += 1
        try:
            yield
        except WriterFenced as error:
            self.on_fenced()
            raise ConflictError(NO_LEADER) from error
        except ClaimMissing as error:
            raise ConflictError(NO_LEADER) from error
        except KafkaFailure as error:
            raise RequestError(str(error)) from error
        finally:
            self._begun -= 1
            if not self._begun:
                self._last_ended.set()
