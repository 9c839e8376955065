"""After a source is deleted: what it has left outside is taken away by the leader, and then its offsets are forgotten.

The config log keeps the config of such a connector until that is over. So whoever leads next goes on with it; and a
connector that is created under the same name before takes over what is there, offsets too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from fetchers.sdk import Clock, Retriable
from metrics.events import DeletedSourceGone, DeletedSourceStays, Emit
from service.herder.errors import ConflictError, NotFoundError
from service.herder.ports import DeletedSources, OffsetAccess
from service.herder.requests import ConnectorLocks
from service.herder.view import ClusterView

ATTEMPT_SECONDS_MAX = 60.0
"""For the connector's own code; a connector that is created under the same name meanwhile waits so long."""
WAITS_SECONDS = (2.0, 10.0, 30.0, 60.0)
"""Between the attempts; after the last one a person is told."""
LETTING_GO_SECONDS = 2.0
"""For the tasks of the connector to end, of which no state is kept. A source that is still read then says so itself."""


@dataclass(slots=True)
class Deletions:
    """What the leader does for deleted sources, each beside everything else."""

    view: ClusterView
    offsets: OffsetAccess
    sources: DeletedSources
    locks: ConnectorLocks
    clock: Clock
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    """Runs a coroutine that raises nothing beside everything else."""
    emit: Emit
    _begun: set[str] = field(default_factory=set, init=False)
    _last_told: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)
    """By connector: class and text of the error that ended its last round of attempts, such as Kafka being away."""

    def begin_due(self) -> None:
        """Begin what is due; returns at once. Called after every tick of the leader."""
        for name in self._last_told.keys() - self.view.config.deleted.keys():
            del self._last_told[name]
        for name in self.view.config.deleted:
            if name not in self._begun:
                self._begun.add(name)
                self.spawn(self._run(name))

    async def _run(self, name: str) -> None:
        try:
            await self.clock.sleep(LETTING_GO_SECONDS)
            for wait_seconds in (*WAITS_SECONDS, None):
                if await self._attempt(name, is_last=wait_seconds is None):
                    return
                await self.clock.sleep(wait_seconds or 0.0)
        except (ConflictError, NotFoundError):
            pass  # Another worker leads now, and does it.
        except Exception as error:  # noqa: BLE001 - such as Kafka being away: the next tick begins anew
            self._tell_once(name, error)
            await self.clock.sleep(WAITS_SECONDS[0])
        finally:
            self._begun.discard(name)

    async def _attempt(self, name: str, *, is_last: bool) -> bool:
        """Whether nothing is left to be done: all of it is, or nothing more can be, or the connector is back."""
        async with self.locks.changing(name):
            config = self.view.config.deleted.get(name)
            if config is None or not self.view.configs.is_leader:
                return True
            offsets = await self.offsets.read(name, config)
            others = [entry.config for entry in self.view.config.connectors.values()]
            try:
                async with asyncio.timeout(ATTEMPT_SECONDS_MAX):
                    is_over = await self.sources.take_away(config, offsets, others)
            except Exception as error:  # noqa: BLE001 - a connector's own code may raise anything; it is told
                is_last = is_last or not isinstance(error, Retriable | TimeoutError)
                self._tell(name, error, is_last=is_last)
                if is_last:
                    await self.view.configs.forget_deleted(name)
                return is_last
            if is_over:
                await self.offsets.reset(name, config)
            await self.view.configs.forget_deleted(name)
        self.emit(DeletedSourceGone(connector=name, has_offsets=not is_over))
        return True

    def _tell_once(self, name: str, error: Exception) -> None:
        """Kafka may be away for hours, with attempts every few seconds: each error is told as it comes up."""
        told = type(error).__name__, str(error)
        if self._last_told.get(name) != told:
            self._last_told[name] = told
            self._tell(name, error, is_last=False)

    def _tell(self, name: str, error: Exception, *, is_last: bool) -> None:
        told = str(error) or f"not done within {ATTEMPT_SECONDS_MAX:g} s"
        self.emit(DeletedSourceStays(connector=name, error_class=type(error).__name__, message=told, is_last=is_last))
