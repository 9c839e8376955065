"""Requests about offsets: read any time, change only what is stopped (`connect-rest`, section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from service.domain.cluster import ConnectorEntry
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError, ConflictError
from service.herder.leader import Fencing
from service.herder.parts import ClusterDoors, OffsetBook
from service.herder.telling import is_told_held
from service.herder.view import ClusterView
from service.herder.whereabouts import CONFLICT, Whereabouts
from service.herder.writing import ChangeTurns

LEAVING_LOOKS_MAX = 50
"""A connector is STOPPED the moment it is written; its tasks deliver what they hold up to seconds later."""
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class OffsetRequests:
    """Offsets of sources and sinks alike."""

    view: ClusterView
    whereabouts: Whereabouts
    doors: ClusterDoors
    turns: ChangeTurns
    fencing: Fencing

    async def read(self, name: str) -> Sequence[OffsetEntry]:
        """All offsets of a connector."""
        entry = self.view.entry(name)
        async with self.turns.telling_failures():
            return await self._book(entry).read(name, entry.config)

    async def alter(self, name: str, offsets: Sequence[OffsetEntry]) -> str:
        """Set or forget some; the text of success."""
        if not offsets:
            raise BadRequestError("Partitions / offsets need to be provided for an alter offsets request")
        self._demand_place(name)
        async with self.turns.changing(name):
            entry = await self._let_go(name)
            return _told(is_whole=await self._book(entry).alter(name, entry.config, offsets), done="altered")

    async def reset(self, name: str) -> str:
        """Forget all; the text of success."""
        self._demand_place(name)
        async with self.turns.changing(name):
            entry = await self._let_go(name)
            return _told(is_whole=await self._book(entry).reset(name, entry.config), done="reset")

    def _demand_place(self, name: str) -> None:
        self.whereabouts.demand_settled()
        self.whereabouts.demand_leader()
        self.view.entry(name)

    def _stopped(self, name: str) -> ConnectorEntry:
        entry = self.view.entry(name)
        if entry.target_state is not TargetState.STOPPED or entry.tasks:
            raise BadRequestError(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
            )
        return entry

    async def _let_go(self, name: str) -> ConnectorEntry:
        """Stopped, and no task of it left anywhere that could still commit what it holds; raises ``ConflictError``.

        Sinks need no waiting here: the broker changes no group that has members.
        """
        for _ in range(LEAVING_LOOKS_MAX):
            # At each look: any worker may resume it meanwhile.
            entry = self._stopped(name)
            if self._is_sink(entry) or not (self._is_held(name) or self.fencing.is_under_way(name)):
                return entry
            await asyncio.sleep(_LOOK_SECONDS)
        raise ConflictError(CONFLICT)

    def _is_held(self, name: str) -> bool:
        statuses, roster = self.view.statuses, self.whereabouts.membership.roster
        return any(is_told_held(statuses, TaskId(name, number), roster) for number in statuses.tasks(name))

    def _is_sink(self, entry: ConnectorEntry) -> bool:
        return self.doors.type_of(entry.config) == "sink"

    def _book(self, entry: ConnectorEntry) -> OffsetBook:
        return self.doors.sink_offsets if self._is_sink(entry) else self.doors.source_offsets


def _told(*, is_whole: bool, done: str) -> str:
    if is_whole:
        return f"The offsets for this connector have been {done} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. However, if this "
        f"connector manages offsets externally, they will need to be manually {done} in the system that the connector "
        "uses."
    )
