"""States told are shown at once and never flicker, whatever the writing behind them does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk.clock import SystemClock
from metrics.events import Event, StateLogInterrupted
from service.domain.cluster import InstanceStatus
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State
from service.kafka.errors import DeliveryRetriable
from service.stores.state_log import KeyedValue, MemoryStateLog
from service.stores.status_records import encode
from service.stores.status_table import StatusTable
from service.stores.statuses import FLUSH_SECONDS_MAX, Statuses

TASK = TaskId("c", 0)


class SlowLog(MemoryStateLog):
    """Takes a second of virtual time for each write, fails as often as it is told to, and counts."""

    def __init__(self) -> None:
        """Empty."""
        super().__init__("status")
        self.failures = 0
        self.bugs = 0
        self.written: list[KeyedValue] = []

    async def write(self, records: Sequence[KeyedValue], *, as_leader: bool = False) -> None:
        """See ``StateLog``."""
        await asyncio.sleep(1)
        if self.bugs:
            self.bugs -= 1
            raise ValueError("a bug")
        if self.failures:
            self.failures -= 1
            raise DeliveryRetriable("the broker is away")
        self.written += records
        await super().write(records, as_leader=as_leader)


@dataclass
class Worker:
    """A store on a slow log."""

    log: SlowLog = field(default_factory=SlowLog)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Not started yet."""
        self.store = Statuses(self.log, clock=SystemClock(), emit=self.events.append)

    @property
    def state(self) -> State | None:
        """What is shown of the task."""
        status = self.store.tasks("c").get(0)
        return None if status is None else status.state


@asynccontextmanager
async def started() -> AsyncIterator[Worker]:
    """A store that writes in the background."""
    worker = Worker()
    await worker.store.start()
    yield worker
    await worker.store.stop()


def told(state: State, worker: str = "here:1", generation: int = 1) -> InstanceStatus:
    """A state as a worker tells it."""
    return InstanceStatus(state, worker, generation)


@pytest.mark.looptime
async def test_a_state_read_back_late_does_not_show_again() -> None:
    """RUNNING comes back from the log while PAUSED is told already: PAUSED stays."""
    async with started() as worker:
        worker.store.put(TASK, told(State.RUNNING))
        await asyncio.sleep(0.5)
        worker.store.put(TASK, told(State.PAUSED))
        await asyncio.sleep(0.6)
        assert worker.log.written == [encode(TASK, told(State.RUNNING))]
        assert worker.state is State.PAUSED
        await asyncio.sleep(1)
        assert worker.log.written[1:] == [encode(TASK, told(State.PAUSED))]
        assert worker.state is State.PAUSED


@pytest.mark.looptime
async def test_of_what_waits_only_the_last_is_written() -> None:
    """A task that restarts a hundred times during one write leaves one record more."""
    async with started() as worker:
        worker.store.put(TASK, told(State.RUNNING))
        await asyncio.sleep(0.5)
        for generation in range(100):
            worker.store.put(TASK, told(State.RESTARTING, generation=generation))
        worker.store.put(ConnectorId("c"), told(State.RUNNING))
        await asyncio.sleep(5)
        assert len(worker.log.written) == 3
        assert worker.log.written[1] == encode(TASK, told(State.RESTARTING, generation=99))


@pytest.mark.looptime
async def test_writing_is_tried_until_it_succeeds() -> None:
    """The state is shown all the while, and each failure is told."""
    async with started() as worker:
        worker.log.failures = 3
        worker.store.put(TASK, told(State.FAILED))
        await asyncio.sleep(60)
        assert worker.state is State.FAILED
        assert worker.log.written == [encode(TASK, told(State.FAILED))]
        assert sum(isinstance(event, StateLogInterrupted) for event in worker.events) == 3


@pytest.mark.looptime
async def test_a_bug_in_writing_is_told_and_the_state_written_later() -> None:
    """Only what is foreseen has a back-off of its own; the rest ends nothing either."""
    async with started() as worker:
        worker.log.bugs = 1
        worker.store.put(TASK, told(State.RUNNING))
        await asyncio.sleep(10)
        assert worker.log.written == [encode(TASK, told(State.RUNNING))]
    (interrupted,) = [event for event in worker.events if isinstance(event, StateLogInterrupted)]
    assert interrupted.reason.startswith("ValueError: a bug (")


@pytest.mark.looptime
async def test_a_safe_state_is_not_written_over_a_newer_one() -> None:
    """Another worker of a newer generation told its state while the farewell waited to be written."""
    async with started() as worker:
        worker.store.put(ConnectorId("other"), told(State.RUNNING))
        await asyncio.sleep(0.5)
        worker.store.put_safe(TASK, told(State.UNASSIGNED))
        newer = told(State.RUNNING, "there:1", generation=2)
        await MemoryStateLog.write(worker.log, [encode(TASK, newer)])
        await asyncio.sleep(5)
        assert worker.store.tasks("c") == {0: newer}
        assert worker.log.written == [encode(ConnectorId("other"), told(State.RUNNING))]


@pytest.mark.looptime
async def test_stopping_gives_up_after_its_time() -> None:
    """A broker that is away for good holds up no stop, and what was left is told."""
    worker = Worker()
    await worker.store.start()
    worker.log.failures = 1_000_000
    worker.store.put(TASK, told(State.UNASSIGNED))
    began = asyncio.get_running_loop().time()
    await worker.store.stop()
    assert asyncio.get_running_loop().time() - began <= FLUSH_SECONDS_MAX + 1
    assert any("1 states unwritten" in str(event) for event in worker.events)


TOLD = st.tuples(
    st.builds(TaskId, st.sampled_from("ab"), st.integers(0, 2)) | st.builds(ConnectorId, st.sampled_from("ab")),
    st.none() | st.builds(InstanceStatus, st.sampled_from(State), st.sampled_from(["x:1", "y:1"]), st.integers(0, 3)),
)


@given(st.lists(TOLD, max_size=30))
def test_the_table_forgets_what_is_gone(records: list[tuple[TaskId | ConnectorId, InstanceStatus | None]]) -> None:
    """Whatever was told: without connectors and tasks nothing is left, and every value is the last or an owner's."""
    table = StatusTable()
    for key, status in records:
        before = table.value(key)
        table.read(key, status)
        assert table.value(key) in (status, before)
    assert sorted(table.names()) == [name for name in "ab" if table.connector(name) or table.tasks(name)]
    for name in "ab":
        for number in table.tasks(name):
            table.read(TaskId(name, number), None)
        table.read(ConnectorId(name), None)
    assert table == StatusTable()
