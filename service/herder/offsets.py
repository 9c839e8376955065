"""Requests about offsets: read any time, change only what is stopped (`connect-rest`, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.domain.cluster import ConnectorEntry
from service.domain.states import TargetState
from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError
from service.herder.parts import ClusterDoors, OffsetBook
from service.herder.view import ClusterView
from service.herder.whereabouts import Whereabouts
from service.herder.writing import ChangeTurns


@dataclass(frozen=True, slots=True)
class OffsetRequests:
    """Offsets of sources and sinks alike."""

    view: ClusterView
    whereabouts: Whereabouts
    doors: ClusterDoors
    turns: ChangeTurns

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
            entry = self._stopped(name)
            return _told(is_whole=await self._book(entry).alter(name, entry.config, offsets), done="altered")

    async def reset(self, name: str) -> str:
        """Forget all; the text of success."""
        self._demand_place(name)
        async with self.turns.changing(name):
            entry = self._stopped(name)
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

    def _book(self, entry: ConnectorEntry) -> OffsetBook:
        is_sink = self.doors.type_of(entry.config) == "sink"
        return self.doors.sink_offsets if is_sink else self.doors.source_offsets


def _told(*, is_whole: bool, done: str) -> str:
    if is_whole:
        return f"The offsets for this connector have been {done} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. However, if this "
        f"connector manages offsets externally, they will need to be manually {done} in the system that the connector "
        "uses."
    )
