"""State that real Kafka Connect 4.1.1 wrote is read by the stores, and what the stores write it takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fetchers.sdk.clock import SystemClock
from metrics.events import Event, StateRecordSkipped
from service.config.worker import WorkerConfig
from service.domain.states import State, TargetState
from service.kafka.client import KafkaSettings
from service.kafka.reader import read_topic
from service.stores.connector_offsets import ConnectorOffsets
from service.stores.dedupe_store import DedupeStore
from service.stores.kafka_log import LogClients
from service.stores.offset_changes import OffsetChanges
from service.stores.offsets import OffsetStore
from service.stores.opening import StateStores, stores_in_kafka
from tests.java_connect import JavaConnect, opened_connect
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
EXACTLY_ONCE = {"exactly.once.source.support": "enabled"}


def source(name: str, file: Path, topic: str) -> dict[str, str]:
    """A file source's config."""
    return {"name": name, "connector.class": SOURCE, "tasks.max": "1", "file": str(file), "topic": topic}


async def asked(java: JavaConnect, method: str, path: str, body: object = None) -> Any:
    """The answer, which must be no error; 409 is asked again."""
    while True:
        status, answer = await asyncio.to_thread(java.ask, method, path, body)
        if status != 409:
            assert status < 300, answer
            return answer
        await asyncio.sleep(0.2)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the other side does."""
    async with asyncio.timeout(90):
        while not await is_so():
            await asyncio.sleep(0.2)


async def lines_of(settings: KafkaSettings, topic: str) -> list[bytes | None]:
    """Committed values of a topic."""
    return [record.value async for records in read_topic(settings, topic) for record in records]


def stores_of(settings: KafkaSettings, group: str, emit: Callable[[Event], None]) -> StateStores:
    """Our stores on the topics of a Java worker's group."""
    names = {
        f"{kind}.storage.topic": f"{group}-{suffix}" for kind, suffix in (("config", "configs"), ("status", "status"))
    }
    config = WorkerConfig.parse({"group.id": group, **names}).config
    assert config is not None
    return stores_in_kafka(config, {}, LogClients(settings, settings), clock=SystemClock(), emit=emit)


async def test_state_goes_from_java_to_headrace_and_back(kafka: KafkaStack, tmp_path: Path, topic_name: str) -> None:
    """Running, paused and stopped connectors, states, topics, offsets and fencing counts: read right, both ways."""
    settings, events, group = KafkaSettings(bootstrap=kafka.bootstrap), list[Event](), f"g-{topic_name}"
    file = tmp_path / "größe in.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    configs = {name: source(name, file, f"{topic_name}-{name}") for name in ("runs", "paused", "stopped-1")}
    offsets = OffsetStore(settings, f"{group}-offsets", emit=events.append)
    async with opened_connect(tmp_path / "a", bootstrap=kafka.bootstrap, group=group, overrides=EXACTLY_ONCE) as java:
        await _create(java, configs)
        await until(lambda: _is_read(settings, f"{topic_name}-runs", 2))
    stores = stores_of(settings, group, events.append)
    await stores.configs.start()
    await stores.statuses.start()
    _demand_as_java_left(stores, configs, topic=f"{topic_name}-runs")
    assert await offsets.entries("runs") == [({"filename": str(file)}, {"position": 8})]
    await _change(stores, configs, offsets, group=group, settings=settings, file=file)
    await stores.statuses.stop()
    await stores.configs.stop()
    await offsets.close()
    assert [event for event in events if isinstance(event, StateRecordSkipped)] == []
    async with opened_connect(tmp_path / "b", bootstrap=kafka.bootstrap, group=group, overrides=EXACTLY_ONCE) as java:
        assert sorted(await asked(java, "GET", "/connectors")) == ["ours", "runs", "stopped-1"]
        assert await asked(java, "GET", "/connectors/ours/config") == source("ours", file, f"{topic_name}-ours")
        await until(lambda: _is_in_state(java, "ours", "PAUSED"))
        await until(lambda: _is_in_state(java, "runs", "RUNNING"))
        await until(lambda: _is_read(settings, f"{topic_name}-runs", 3))
        tasks = await asked(java, "GET", "/connectors/ours/tasks")
        assert [task["config"]["topic"] for task in tasks] == [f"{topic_name}-ours"]
    lines = await lines_of(settings, f"{topic_name}-runs")
    assert [line and line.split(b":")[-1] for line in lines] == [b'"one"}', b'"two"}', b'"two"}']


async def _create(java: JavaConnect, configs: dict[str, dict[str, str]]) -> None:
    for name, config in configs.items():
        body: dict[str, object] = {"name": name, "config": config}
        if name == "stopped-1":
            body["initial_state"] = "STOPPED"
        await asked(java, "POST", "/connectors", body)
    await until(lambda: _is_in_state(java, "paused", "RUNNING"))
    await asked(java, "PUT", "/connectors/paused/pause")
    await until(lambda: _is_in_state(java, "runs", "RUNNING"))
    await until(lambda: _is_in_state(java, "paused", "PAUSED"))
    await until(lambda: _is_in_state(java, "stopped-1", "STOPPED", tasks=0))


def _demand_as_java_left(stores: StateStores, configs: dict[str, dict[str, str]], *, topic: str) -> None:
    connectors = stores.configs.config.connectors
    assert {name: entry.config for name, entry in connectors.items()} == configs
    assert {name: entry.target_state for name, entry in connectors.items()} == {
        "runs": TargetState.STARTED,
        "paused": TargetState.PAUSED,
        "stopped-1": TargetState.STOPPED,
    }
    task = "org.apache.kafka.connect.file.FileStreamSourceTask"
    assert [made["task.class"] for made in connectors["runs"].tasks or ()] == [task]
    assert connectors["runs"].is_current
    assert len(connectors["stopped-1"].task_ids) == 0
    assert stores.configs.config.session_key is not None
    assert stores.configs.config.task_counts["runs"] == 1
    assert "runs" not in stores.configs.config.fencing_pending
    told = stores.statuses.tasks("runs")[0]
    assert (told.state, told.trace) == (State.UNASSIGNED, None)
    stopped = stores.statuses.connector("stopped-1")
    assert stopped is not None
    assert stopped.worker_id.startswith("127.0.0.1:")
    assert stores.statuses.topics("runs") == [topic]


async def _change(
    stores: StateStores,
    configs: dict[str, dict[str, str]],
    offsets: OffsetStore,
    *,
    group: str,
    settings: KafkaSettings,
    file: Path,
) -> None:
    """As a herder of ours would: a new connector, one removed, one set back by a line."""
    store = stores.configs
    await store.claim_leadership()
    ours = source("ours", file, configs["runs"]["topic"].replace("runs", "ours"))
    await store.put_connector("ours", ours, initial=TargetState.PAUSED)
    task = "org.apache.kafka.connect.file.FileStreamSourceTask"
    await store.put_tasks("ours", [{**ours, "task.class": task}])
    await store.remove_connector("paused")
    await store.put_task_count("ours", 1)
    dedupe = DedupeStore(settings, f"{group}-dedupe")
    await OffsetChanges(ConnectorOffsets((offsets,)), group, dedupe).alter(
        "runs", [({"filename": str(file)}, {"position": 4})], writing=settings
    )


async def _is_in_state(java: JavaConnect, name: str, state: str, *, tasks: int = 1) -> bool:
    code, status = await asyncio.to_thread(java.ask, "GET", f"/connectors/{name}/status")
    if code != 200:
        return False
    return [status["connector"]["state"], *(task["state"] for task in status["tasks"])] == [state] * (tasks + 1)


async def _is_read(settings: KafkaSettings, topic: str, count: int) -> bool:
    return len(await lines_of(settings, topic)) >= count
