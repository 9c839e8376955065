"""Our stores on the topics of a group that Kafka Connect 4.1.1 runs before and after, without a worker of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fetchers.sdk.clock import SystemClock
from metrics.events import Event, StateRecordSkipped
from service.config.worker import WorkerConfig
from service.domain.states import State, TargetState
from service.kafka.client import KafkaSettings
from service.stores.connector_offsets import ConnectorOffsets
from service.stores.dedupe_store import DedupeStore
from service.stores.kafka_log import LogClients
from service.stores.offset_changes import OffsetChanges
from service.stores.offsets import OffsetStore
from service.stores.opening import StateStores, stores_in_kafka

TASK_CLASS = "org.apache.kafka.connect.file.FileStreamSourceTask"


@dataclass(frozen=True, slots=True)
class StoresBetween:
    """State and offsets of a group while none of its workers is there."""

    settings: KafkaSettings
    group: str
    stores: StateStores
    offsets: OffsetStore

    @classmethod
    @asynccontextmanager
    async def opened(cls, bootstrap: str, group: str) -> AsyncIterator[StoresBetween]:
        """Read to their ends on entry; whoever wrote them, no record of them is skipped."""
        settings, events = KafkaSettings(bootstrap=bootstrap), list[Event]()
        topics = {"config.storage.topic": f"{group}-configs", "status.storage.topic": f"{group}-status"}
        config = WorkerConfig.parse({"group.id": group, **topics}).config
        assert config is not None
        clients = LogClients(settings, settings)
        stores = stores_in_kafka(config, {}, clients, clock=SystemClock(), emit=events.append)
        offsets = OffsetStore(settings, f"{group}-offsets", emit=events.append)
        await stores.configs.start()
        await stores.statuses.start()
        try:
            yield cls(settings, group, stores, offsets)
        finally:
            await stores.statuses.stop()
            await stores.configs.stop()
            await offsets.close()
        assert [event for event in events if isinstance(event, StateRecordSkipped)] == []

    def demand_states(
        self, configs: Mapping[str, Mapping[str, str]], targets: Mapping[str, TargetState], *, stopped: str
    ) -> None:
        """Connectors as these; ``stopped`` was created so and never had a task."""
        connectors = self.stores.configs.config.connectors
        assert {name: entry.config for name, entry in connectors.items()} == configs
        assert {name: entry.target_state for name, entry in connectors.items()} == targets
        assert self.stores.configs.config.session_key is not None
        assert len(connectors[stopped].task_ids) == 0
        told = self.stores.statuses.connector(stopped)
        assert told is not None
        assert told.worker_id.startswith("127.0.0.1:")

    async def demand_source(self, name: str, *, topic: str, file: str, position: int) -> None:
        """Of a file source that ran to the end: its task, its topic and where it stands, fenced and ended in order."""
        config = self.stores.configs.config
        assert [made["task.class"] for made in config.connectors[name].tasks or ()] == [TASK_CLASS]
        assert config.connectors[name].is_current
        assert config.task_counts[name] == 1
        assert name not in config.fencing_pending
        told = self.stores.statuses.tasks(name)[0]
        assert (told.state, told.trace) == (State.UNASSIGNED, None)
        assert self.stores.statuses.topics(name) == [topic]
        assert await self.offsets.entries(name) == [({"filename": file}, {"position": position})]

    async def put_paused(self, name: str, config: Mapping[str, str]) -> None:
        """A new connector with a task, as a herder of ours would write it."""
        store = self.stores.configs
        await store.claim_leadership()
        await store.put_connector(name, dict(config), initial=TargetState.PAUSED)
        await store.put_tasks(name, [{**config, "task.class": TASK_CLASS}])
        await store.put_task_count(name, 1)

    async def remove(self, name: str) -> None:
        """A connector."""
        await self.stores.configs.remove_connector(name)

    async def set_back(self, name: str, *, file: str, position: int) -> None:
        """A file source."""
        dedupe = DedupeStore(self.settings, f"{self.group}-dedupe")
        await OffsetChanges(ConnectorOffsets(self.offsets), self.group, dedupe).alter(
            name, [({"filename": file}, {"position": position})], writing=self.settings
        )
