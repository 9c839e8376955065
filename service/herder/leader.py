"""What only the leader does: the session key, fencing, forgetting the states of what is gone.

Each duty looks at what is there and does what is missing, so it may be done twice and may be left off at any point;
whoever leads next goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fetchers.sdk import Clock
from metrics.events import Emit, HerderStepFailed
from service.domain.ids import ConnectorId, TaskId
from service.herder.errors import RequestError
from service.herder.fencing import Fencing
from service.herder.parts import HerderSettings
from service.herder.ports import ConfigStore, StatusStore
from service.herder.signing import new_key
from service.herder.telling import is_told_held
from service.herder.whereabouts import Whereabouts
from service.herder.writing import ChangeTurns
from service.kafka.errors import WriterFenced
from service.stores.state_log import ClaimMissing

LETTING_GO_SHARE = 2.0
"""Of the graceful time-out: until a worker has heard that a task is no more, has ended it, and has said so."""


@dataclass(slots=True)
class LeaderDuties:
    """Done after every tick of a leader."""

    configs: ConfigStore
    statuses: StatusStore
    whereabouts: Whereabouts
    fencing: Fencing
    turns: ChangeTurns
    clock: Clock
    settings: HerderSettings
    emit: Emit
    _swept_in: int = field(default=0, init=False)
    """The generation in which the states that earlier leaders have left were looked through."""
    _leaving: dict[str, float] = field(default_factory=dict, init=False)
    """Connectors of which some worker still has a task that is no more, and since when."""

    async def run(self) -> None:
        """All duties; raises ``RequestError``, ``DeliveryRetriable`` where one could not be done, to be tried again."""
        async with self.turns.telling_failures():
            if not self.settings.is_standalone:
                await self._renew_key()
            await self._forget_left_over()
            for connector in self.fencing.pending():
                await self._fence(connector)

    def forget_gone(self, names: Iterable[str]) -> None:
        """Remove the states of what is no more, of connectors that the config log has spoken of.

        A task that a worker still has may still write; that worker's own word is waited for, but not for ever.
        """
        for name in {*names, *self._leaving}:
            entry = self.configs.config.connectors.get(name)
            count = 0 if entry is None else len(entry.tasks or ())
            gone = {number for number in self.statuses.tasks(name) if number >= count}
            # Who leads next has waited as long.
            waited_for = self._waited_for(name, set() if entry is None else gone)
            if self.whereabouts.is_leader:
                for number in sorted(gone - waited_for):
                    self.statuses.remove(TaskId(name, number))
                if entry is None:
                    self._forget_connector(name)

    async def _forget_left_over(self) -> None:
        """Once for each generation: a leader that deletes and dies has not forgotten, and nobody else was to."""
        generation = self.whereabouts.generation
        if generation == self._swept_in:
            return
        names = self.statuses.names()
        # Whoever has a state now was in the config log before.
        await self.configs.read_to_end()
        self.forget_gone(names)
        self._swept_in = generation

    def _waited_for(self, name: str, gone: set[int]) -> set[int]:
        roster = self.whereabouts.membership.roster
        held = {number for number in gone if is_told_held(self.statuses, TaskId(name, number), roster)}
        if not held:
            self._leaving.pop(name, None)
            return held
        now = self.clock.monotonic()
        is_late = now - self._leaving.setdefault(name, now) >= self.settings.graceful_seconds * LETTING_GO_SHARE
        return set() if is_late else held

    def _forget_connector(self, name: str) -> None:
        if self.statuses.connector(name) is not None:
            self.statuses.remove(ConnectorId(name))
        self.statuses.reset_topics(name)

    async def _renew_key(self) -> None:
        key = self.configs.config.session_key
        now_ms = round(self.clock.now().timestamp() * 1000)
        if key is None or now_ms - key.created_ms >= self.settings.key_seconds_max * 1000:
            await self.configs.put_session_key(new_key(self.settings.key_algorithm, created_ms=now_ms))

    async def _fence(self, connector: str) -> None:
        try:
            await self.fencing.fence(connector)
        except RequestError:
            # Deleted or made anew meanwhile: the next look sees what is due now.
            return
        except (WriterFenced, ClaimMissing):
            raise  # Nothing of the leader's can be written any more, for no connector.
        except Exception as error:  # noqa: BLE001 - what one connector may not, or cannot, holds up no other
            message = f"fencing of {connector}: {error}"
            self.emit(HerderStepFailed(step="fencing", error_class=type(error).__name__, message=message))
