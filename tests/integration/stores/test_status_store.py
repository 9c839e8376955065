"""The contract of the status store, kept in memory and in a real topic alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from fetchers.sdk.clock import SystemClock
from metrics.events import Event, StateRecordSkipped
from service.domain.cluster import InstanceStatus
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State
from service.herder.ports import StatusStore
from service.kafka.client import KafkaSettings
from service.stores.kafka_log import KafkaStateLog, LogClients
from service.stores.state_log import MemoryStateLog, StateLog
from service.stores.state_topic import StateKind, StateTopic
from service.stores.statuses import Statuses
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration

HERE, THERE = "here:8083", "there:8083"
TASK = TaskId("my-connector", 0)


@dataclass
class Worker:
    """A store on a log, with what it told."""

    log: StateLog
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Collect events."""
        self.store = Statuses(self.log, clock=SystemClock(), emit=self.events.append)


def kafka_log(kafka: KafkaStack, topic: str) -> KafkaStateLog:
    """A log in a topic of the run's broker."""
    settings = KafkaSettings(bootstrap=kafka.bootstrap)
    return KafkaStateLog(StateTopic.of(StateKind.STATUS, topic), LogClients(settings, settings), emit=lambda _: None)


@pytest.fixture(params=["memory", "kafka"])
async def worker(request: pytest.FixtureRequest, topic_name: str) -> AsyncIterator[Worker]:
    """A started store."""
    if request.param == "memory":
        worker = Worker(MemoryStateLog(topic_name))
    else:
        worker = Worker(kafka_log(request.getfixturevalue("kafka"), topic_name))
    await worker.store.start()
    yield worker
    await worker.store.stop()


def status(state: State, worker: str = HERE, generation: int = 1, **more: str) -> InstanceStatus:
    """A state told by a worker."""
    return InstanceStatus(state, worker, generation, **more)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what another store is told through the topic."""
    async with asyncio.timeout(180):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_what_is_told_is_seen_at_once_and_stays(worker: Worker) -> None:
    """States are seen before they are written, and are the same afterwards; the last of each instance counts."""
    store: StatusStore = worker.store
    for state in (State.RUNNING, State.PAUSED, State.RUNNING, State.FAILED):
        store.put(TASK, status(state, trace="Boom\n\tat größe \ud800", version="4.1.1"))
        store.put(ConnectorId("my-connector"), status(state))
        assert store.tasks("my-connector")[0].state is state
    await worker.store.flush()
    assert store.tasks("my-connector") == {0: status(State.FAILED, trace="Boom\n\tat größe ?", version="4.1.1")}
    assert store.connector("my-connector") == status(State.FAILED)
    assert store.connector("my") is None
    assert store.tasks("my") == {}


async def test_tasks_come_sorted_by_number(worker: Worker) -> None:
    """Ten comes after two."""
    for number in (10, 2, 0):
        worker.store.put(TaskId("c", number), status(State.RUNNING))
    await worker.store.flush()
    assert list(worker.store.tasks("c")) == [0, 2, 10]


async def test_a_safe_put_gives_way_to_a_newer_generation(worker: Worker) -> None:
    """The farewell of a worker that was overtaken is dropped; its own state, or an older one, it may replace."""
    store = worker.store
    store.put(TASK, status(State.RUNNING, THERE, 5))
    store.put_safe(TASK, status(State.FAILED, HERE, 4))
    assert store.tasks(TASK.connector) == {0: status(State.RUNNING, THERE, 5)}
    store.put_safe(TASK, status(State.FAILED, HERE, 5))
    assert store.tasks(TASK.connector) == {0: status(State.FAILED, HERE, 5)}
    store.put_safe(TASK, status(State.UNASSIGNED, HERE, 2))
    await store.flush()
    assert store.tasks(TASK.connector) == {0: status(State.UNASSIGNED, HERE, 2)}


async def test_a_connector_that_is_removed_has_no_tasks_left(worker: Worker) -> None:
    """Removing a task leaves the others; removing the connector leaves nothing."""
    store = worker.store
    store.put(ConnectorId("c"), status(State.RUNNING))
    for number in range(3):
        store.put(TaskId("c", number), status(State.RUNNING))
    await store.flush()
    store.remove(TaskId("c", 1))
    await store.flush()
    assert list(store.tasks("c")) == [0, 2]
    store.remove(ConnectorId("c"))
    await store.flush()
    assert (store.connector("c"), store.tasks("c")) == (None, {})


async def test_topics_are_told_once_and_forgotten_together(worker: Worker) -> None:
    """Topics of one connector are kept apart from another's whose name looks alike."""
    store = worker.store
    store.add_topic("t", TaskId("c", 1))
    store.add_topic("t", TaskId("c", 2))
    store.add_topic("a", TaskId("c", 0))
    store.add_topic("t", TaskId("c:connector-d", 0))
    await store.flush()
    assert (store.topics("c"), store.topics("c:connector-d")) == (["a", "t"], ["t"])
    store.reset_topics("c")
    assert store.topics("c") == []
    await store.flush()
    assert (store.topics("c"), store.topics("c:connector-d")) == ([], ["t"])


async def test_the_farewell_of_a_former_owner_is_passed_over(worker: Worker) -> None:
    """A task that runs is not shown UNASSIGNED by a worker that had it before; its own worker may say so."""
    running = b'{"state":"RUNNING","trace":null,"worker_id":"there:8083","generation":5,"version":null}'
    late = b'{"state":"UNASSIGNED","trace":null,"worker_id":"here:8083","generation":5,"version":null}'
    key = b"status-task-my-connector-0"
    await worker.log.write([(key, running), (key, late)])
    assert worker.store.tasks(TASK.connector)[0].state is State.RUNNING
    await worker.log.write([(key, late.replace(b"here", b"there"))])
    assert worker.store.tasks(TASK.connector)[0].state is State.UNASSIGNED


async def test_garbage_is_reported_and_passed_over(worker: Worker) -> None:
    """Records that mean nothing are told of one by one, and change nothing."""
    worker.store.put(TASK, status(State.RUNNING))
    await worker.store.flush()
    key = b"status-task-my-connector-0"
    garbage = [
        (key, b"not json"),
        (key, b'{"state":"DANCING","worker_id":"w","generation":1}'),
        (key, b'{"state":"FAILED","worker_id":"w","generation":"1"}'),
        (b"status-task-my-connector", b"{}"),
        (b"status-topic-t", b"{}"),
        (b"status-task-c-" + b"9" * 5_000, None),
        (b"nonsense", None),
        (b"\xff", None),
    ]
    await worker.log.write(garbage)
    assert worker.store.tasks(TASK.connector) == {0: status(State.RUNNING)}
    assert sum(isinstance(event, StateRecordSkipped) for event in worker.events) == len(garbage)


async def test_workers_hear_of_each_other(kafka: KafkaStack, topic_name: str) -> None:
    """What one worker tells the other sees, what is left at a stop is written, and a new worker finds it all."""
    one, other = (Worker(kafka_log(kafka, topic_name)) for _ in range(2))
    await one.store.start()
    await other.store.start()
    one.store.put(TASK, status(State.RUNNING, HERE, 1))
    await until(lambda: other.store.tasks(TASK.connector) == {0: status(State.RUNNING, HERE, 1)})
    other.store.put(TASK, status(State.RUNNING, THERE, 2))
    await other.store.flush()
    await until(lambda: one.store.tasks(TASK.connector)[0].worker_id == THERE)
    one.store.put_safe(TASK, status(State.UNASSIGNED, HERE, 1))
    one.store.put(ConnectorId("c"), status(State.STOPPED))
    await one.store.stop()
    await other.store.stop()
    heir = Worker(kafka_log(kafka, topic_name))
    await heir.store.start()
    assert heir.store.tasks(TASK.connector) == {0: status(State.RUNNING, THERE, 2)}
    assert heir.store.connector("c") == status(State.STOPPED)
    await heir.store.stop()
