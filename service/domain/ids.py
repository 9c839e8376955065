"""Names of the things a worker runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ConnectorId:
    """The instance of a connector itself: what validates, splits the work and hears of changes."""

    connector: str

    def __str__(self) -> str:
        """The connector's name."""
        return self.connector


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """One task of one connector; shown as Connect shows it, ``connector-0``."""

    connector: str
    task: int

    def __str__(self) -> str:
        """``connector-0``."""
        return f"{self.connector}-{self.task}"

    def transactional_id(self, group_id: str) -> str:
        """What fences zombies of this task: ``<group.id>-<connector>-<task>``, as KIP-618 has it."""
        return f"{group_id}-{self.connector}-{self.task}"


InstanceId = ConnectorId | TaskId
"""What is assigned to workers: connectors and tasks alike."""
