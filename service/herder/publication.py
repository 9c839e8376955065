"""Task configs on their way from a connector's owner into the config log, which only the leader writes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from fetchers.sdk import BackOff, Clock
from metrics.events import Emit, HerderStepFailed
from service.domain.cluster import ConnectorEntry, Properties
from service.domain.ids import ConnectorId
from service.domain.states import TargetState
from service.herder.api import Signature
from service.herder.errors import BadRequestError, ConflictError, ElsewhereError, RequestError
from service.herder.leader import Fencing
from service.herder.peers import demand_member, demand_signed, sign
from service.herder.ports import PeerError, Peers
from service.herder.requests import ConnectorLocks
from service.herder.view import ClusterView

_BACK_OFF = BackOff(first_seconds=0.25, cap_seconds=10.0, jitter_seconds=0.1)


@dataclass(frozen=True, slots=True)
class MadeTasks:
    """What a connector has split its work into, and the config it did it by."""

    tasks: tuple[Properties, ...]
    made_from: Properties

    def are_new(self, entry: ConnectorEntry) -> bool:
        """Whether the log says otherwise. Equal ones of a changed connector count too: they restart its tasks."""
        return entry.tasks != self.tasks or entry.tasks_made_from != self.made_from


@dataclass(slots=True)
class TaskPublication:
    """The owner's side (``take``) and the leader's (``receive``)."""

    view: ClusterView
    fencing: Fencing
    peers: Peers
    locks: ConnectorLocks
    clock: Clock
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    emit: Emit
    _made: dict[str, MadeTasks] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)

    def take(self, connector: str, tasks: Sequence[Properties], made_from: Properties) -> None:
        """Publish in the background; a later call for the same connector replaces an earlier one."""
        self._made[connector] = MadeTasks(tuple(dict(task) for task in tasks), made_from)
        if connector not in self._busy:
            self._busy.add(connector)
            self.spawn(self._publish(connector))

    async def receive(
        self, connector: str, *, signature: Signature | None, read: Callable[[], Awaitable[bytes]]
    ) -> None:
        """Write task configs that another worker has made and signed; raises ``RequestError``, ``ElsewhereError``.

        The body is read only once the signature of the request's head has held: who is no member sends nothing here.
        """
        if self.view.settings.is_standalone:
            raise RequestError("A standalone worker takes no task configurations from others")
        proven, key = demand_member(
            signature,
            self.view.config.session_key,
            target=connector,
            algorithms=self.view.settings.verification_algorithms,
        )
        self.view.demand_leader()
        body = await read()
        demand_signed(body, proven, key)
        await self._write(connector, read_body(body))

    async def _publish(self, connector: str) -> None:
        attempt = 0
        try:
            while (made := self._made.get(connector)) is not None and self._is_due(connector, made):
                try:
                    await self._deliver(connector, made)
                except (PeerError, RequestError, ElsewhereError) as error:
                    attempt += 1
                    self._tell(connector, error)
                    await self.clock.sleep(_BACK_OFF.wait_seconds(attempt))
                else:
                    if self._made.get(connector) is made:
                        break
        except Exception as error:  # noqa: BLE001 - task configs that cannot even be written must not end the others
            self._tell(connector, error)
        finally:
            self._busy.discard(connector)
            self._made.pop(connector, None)

    def _tell(self, connector: str, error: Exception) -> None:
        message = f"task configs of {connector}: {error}"
        self.emit(HerderStepFailed(step="publish", error_class=type(error).__name__, message=message))

    def _is_due(self, connector: str, made: MadeTasks) -> bool:
        """Not outdated by a newer config, another owner or a stop, and not in the log yet."""
        entry = self.view.config.connectors.get(connector)
        if entry is None or entry.target_state is TargetState.STOPPED or entry.config != made.made_from:
            return False
        is_mine = self.view.roster is None or self.view.is_mine(ConnectorId(connector))
        return is_mine and made.are_new(entry)

    async def _deliver(self, connector: str, made: MadeTasks) -> None:
        roster = self.view.roster
        if roster is None:
            raise PeerError("no leader is known")
        if roster.leader == self.view.me:
            self.view.demand_leader()
            await self._write(connector, made.tasks)
            return
        key = self.view.config.session_key
        if key is None:
            raise PeerError("the leader has published no session key yet")
        body = json.dumps([dict(task) for task in made.tasks], separators=(",", ":")).encode()
        signature = sign(body, key, algorithm=self.view.settings.signature_algorithm, target=connector)
        await self.peers.publish_tasks(roster.leader.url, connector, body, signature)

    async def _write(self, connector: str, tasks: Sequence[Properties]) -> None:
        async with self.locks.changing(connector):
            entry = self.view.entry(connector)
            if self.fencing.is_under_way(connector):
                raise ConflictError(f"Older tasks of connector {connector} are being fenced; new ones come after that")
            if entry.target_state is not TargetState.STOPPED:
                may_start = self.fencing.is_spared(entry, len(tasks))
                await self.view.configs.put_tasks(connector, tasks, may_start=may_start)


def read_body(body: bytes) -> tuple[Properties, ...]:
    """A JSON list of flat maps; raises ``BadRequestError``."""
    try:
        tasks = json.loads(body)
    except ValueError as error:
        raise BadRequestError(f"Task configurations cannot be read: {error}") from error
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise BadRequestError("Task configurations are a list of JSON objects")
    return tuple({str(key): "" if value is None else str(value) for key, value in task.items()} for task in tasks)
