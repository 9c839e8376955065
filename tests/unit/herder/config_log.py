"""A config log for tests of the assignment: records are made here and read by as many workers as wanted."""

from __future__ import annotations

from service.domain.cluster import ClusterConfig, ConfigChange, ConnectorEntry, Member
from service.domain.ids import ConnectorId, InstanceId


def member(name: str) -> Member:
    """A worker; the order of names is that of members."""
    return Member(f"http://{name}:8083/")


def members(names: str) -> tuple[Member, ...]:
    """One worker a letter."""
    return tuple(member(name) for name in names)


def cluster(tasks: dict[str, int], *, offset: int = 0) -> ClusterConfig:
    """Connectors with so many tasks."""
    return ClusterConfig(
        offset, {name: ConnectorEntry(name, {}, tasks=tuple({} for _ in range(n))) for name, n in tasks.items()}
    )


def instances(config: ClusterConfig) -> set[InstanceId]:
    """All that needs an owner."""
    return {
        *map(ConnectorId, config.connectors),
        *(task for entry in config.connectors.values() for task in entry.task_ids),
    }


class ConfigLog:
    """Every record with the state after it; offsets have gaps, as after transactions and compaction."""

    def __init__(self) -> None:
        """Nothing is written."""
        self.changes: list[ConfigChange] = []
        self.config = ClusterConfig()
        self._tasks: dict[str, int] = {}

    def write(self, connector: str, tasks: int | None) -> ConfigChange:
        """One record, after which the connector has so many tasks; None deletes it."""
        if tasks is None:
            self._tasks.pop(connector, None)
        else:
            self._tasks[connector] = tasks
        return self._append(connector)

    def write_other(self) -> ConfigChange:
        """A record that concerns no connector, like a session key."""
        return self._append(None)

    def _append(self, connector: str | None) -> ConfigChange:
        self.config = cluster(self._tasks, offset=self.config.offset + 1 + len(self.changes) % 3)
        self.changes.append(ConfigChange(self.config, connector))
        return self.changes[-1]

    def after(self, offset: int) -> list[ConfigChange]:
        """What a worker at ``offset`` has not read yet."""
        return [change for change in self.changes if change.after.offset > offset]
