"""The contract of the config store, kept in memory and in a real topic alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from metrics.events import Event, StateRecordSkipped
from service.domain.cluster import ConfigChange, ConnectorEntry, RestartRequest, SessionKey
from service.domain.states import TargetState
from service.herder.ports import ConfigStore
from service.kafka.client import KafkaSettings
from service.stores.config_log import ConfigLog
from service.stores.config_records import ConnectorConfig, encode
from service.stores.kafka_log import KafkaStateLog, LogClients
from service.stores.state_log import ClaimMissing, MemoryStateLog, StateLog
from service.stores.state_topic import StateKind, StateTopic
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


@dataclass
class Worker:
    """A store on a log, with what it told."""

    log: StateLog
    events: list[Event] = field(default_factory=list)
    changes: list[ConfigChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Listen from the first record on."""
        self.store = ConfigLog(self.log, emit=self.events.append)
        self.store.listen(self.changes.append)


@pytest.fixture(params=["memory", "kafka"])
async def worker(request: pytest.FixtureRequest, topic_name: str) -> AsyncIterator[Worker]:
    """A started worker that leads."""
    if request.param == "memory":
        worker = Worker(MemoryStateLog(topic_name))
    else:
        worker = Worker(kafka_log(request.getfixturevalue("kafka"), topic_name))
    await worker.store.start()
    await worker.store.claim_leadership()
    yield worker
    await worker.store.stop()


def kafka_log(kafka: KafkaStack, topic: str) -> KafkaStateLog:
    """A log in a topic of the run's broker."""
    settings = KafkaSettings(bootstrap=kafka.bootstrap)
    clients = LogClients(settings, settings)
    return KafkaStateLog(
        StateTopic.of(StateKind.CONFIG, topic), clients, emit=lambda _: None, leader_id=f"connect-cluster-{topic}"
    )


CONFIG = {"name": "größe", "connector.class": "FileStreamSource", "file": "a\u2028b"}


async def test_what_is_written_is_read_when_the_write_returns(worker: Worker) -> None:
    """Connector, tasks, target state and key are in the config as soon as their writes return."""
    store: ConfigStore = worker.store
    await store.put_connector("c", CONFIG, initial=TargetState.PAUSED)
    assert store.config.connectors["c"] == ConnectorEntry("c", CONFIG, TargetState.PAUSED)
    await store.put_tasks("c", [{"n": "0"}, {"n": "1"}])
    entry = store.config.connectors["c"]
    assert entry.tasks == ({"n": "0"}, {"n": "1"})
    assert entry.is_current
    assert store.config.fencing_pending == {"c"}
    await store.put_task_count("c", 2)
    assert store.config.fencing_pending == frozenset()
    assert store.config.task_counts == {"c": 2}
    await store.put_tasks("c", [{"n": "0"}], may_start=True)
    assert (store.config.fencing_pending, store.config.task_counts) == (frozenset(), {"c": 1})
    await store.put_task_count("c", 2)
    await store.put_target_state("c", TargetState.STOPPED)
    assert store.config.connectors["c"].target_state is TargetState.STOPPED
    key = SessionKey(b"\x00\xff secret", "HmacSHA256", 1712345678901)
    await store.put_session_key(key)
    assert store.config.session_key == key
    await store.remove_connector("c")
    assert store.config.connectors == {}
    assert store.config.task_counts == {"c": 2}


async def test_a_changed_config_makes_its_tasks_outdated(worker: Worker) -> None:
    """Tasks remember what they were made from, and a new commit raises their generation."""
    store = worker.store
    await store.put_connector("c", {"v": "1"})
    await store.put_tasks("c", [{"n": "0"}])
    first = store.config.connectors["c"].task_generation
    await store.put_connector("c", {"v": "2"})
    assert not store.config.connectors["c"].is_current
    assert store.config.connectors["c"].tasks == ({"n": "0"},)
    await store.put_tasks("c", [])
    entry = store.config.connectors["c"]
    assert (entry.tasks, entry.is_current, entry.task_generation > first) == ((), True, True)


async def test_listeners_hear_every_change_in_order(worker: Worker) -> None:
    """Each record is one change, in the order of the log, with the config as it was right after it."""
    store = worker.store
    await store.put_connector("a", {"v": "1"}, initial=TargetState.STOPPED)
    await store.put_tasks("a", [{"n": "0"}])
    await store.put_restart(RestartRequest("a", is_failed_only=True, has_tasks=False))
    await store.put_logger_level("org.apache", "DEBUG")
    heard = worker.changes
    assert [change.connector for change in heard] == ["a"] * 5 + [None]
    offsets = [change.after.offset for change in heard]
    assert offsets == sorted(set(offsets))
    assert [change.after.connectors.get("a") is None for change in heard][:2] == [True, False]
    assert [change.restart for change in heard][4] == RestartRequest("a", is_failed_only=True, has_tasks=False)
    assert heard[5].logger == ("org.apache", "DEBUG")
    assert heard[-1].after == store.config


async def test_only_the_leader_writes_what_is_the_leaders(worker: Worker) -> None:
    """Without a claim connectors cannot be written; pausing can."""
    store = worker.store
    await store.put_connector("c", {"v": "1"})
    await store.drop_leadership()
    assert not store.is_leader
    with pytest.raises(ClaimMissing, match="claim"):
        await store.put_connector("c", {"v": "2"})
    await store.put_target_state("c", TargetState.PAUSED)
    assert store.config.connectors["c"] == ConnectorEntry("c", {"v": "1"}, TargetState.PAUSED)


async def test_garbage_is_reported_and_passed_over(worker: Worker) -> None:
    """Records that mean nothing are told of one by one; what stands around them counts."""
    store = worker.store
    await store.put_connector("c", {"v": "1"})
    garbage = [
        (b"connector-c", b"not json"),
        (b"connector-c", b'{"properties":{"v":7}}'),
        (b"\xff", b"{}"),
        (b"nonsense", b"{}"),
        (b"task-c-x", b'{"properties":{}}'),
        (b"commit-c", b'{"tasks":-1}'),
        (b"commit-c", None),
        (b"target-state-c", b'{"state":"DANCING"}'),
        (b"session-key", b'{"key":"%%","algorithm":"a","creation-timestamp":1}'),
        (b"session-key", '{"key":"é","algorithm":"a","creation-timestamp":1}'.encode()),
        (b"task-c-" + b"9" * 5_000, b'{"properties":{}}'),
        (b"connector-c", b"[" * 100_000),
    ]
    await worker.log.write(garbage)
    await store.put_target_state("c", TargetState.PAUSED)
    assert store.config.connectors == {"c": ConnectorEntry("c", {"v": "1"}, TargetState.PAUSED)}
    skipped = [event for event in worker.events if isinstance(event, StateRecordSkipped)]
    assert len(skipped) == len(garbage)
    assert not any("%%" in event.reason for event in skipped)


async def test_concurrent_writes_all_arrive(worker: Worker) -> None:
    """Writers need not wait for each other."""
    store = worker.store
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(store.put_connector(f"c{number}", {"n": str(number)}))
            group.create_task(store.put_target_state(f"c{number}", TargetState.PAUSED))
    assert set(store.config.connectors) == {f"c{number}" for number in range(50)}
    assert {entry.target_state for entry in store.config.connectors.values()} == {TargetState.PAUSED}


async def test_a_start_that_is_tried_again_tells_nothing_twice(topic_name: str) -> None:
    """A worker whose broker went away while it read the log begins again; listeners hear each record once."""
    records = [encode(ConnectorConfig(name, {})) for name in "ab"]
    worker = Worker(MemoryStateLog(topic_name, records=records))
    for _ in range(2):
        await worker.store.start()
    assert [change.connector for change in worker.changes] == ["a", "b"]
    assert set(worker.store.config.connectors) == {"a", "b"}
