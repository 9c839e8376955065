"""What a task's writer does about the topics of a commit: it tells of them after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from fetchers.sdk import SystemClock
from metrics.events import discard
from service.domain.ids import TaskId
from service.kafka.errors import DeliveryRetriable
from service.kafka.records import TopicRecords
from service.stores.state_log import KeyedValue, MemoryStateLog
from service.stores.statuses import Statuses
from service.worker.task_writer import TaskWriter
from tests.unit.pipeline.fake_kafka import LETTERS, OFFSETS, FakeKafka, FakeWriter

pytestmark = pytest.mark.looptime
TASK = TaskId("c", 0)


def records(topic: str, *values: bytes | None) -> TopicRecords:
    """Records for a topic."""
    return TopicRecords(topic, pa.array(values, pa.binary()))


def ignore(topic: str) -> None:
    """Be nobody who hears of topics."""
    del topic


def telling(writer: FakeWriter, tell: Callable[[str], None], own_topics: frozenset[str] = frozenset()) -> TaskWriter:
    """A writer of which only the telling matters."""
    return TaskWriter(writer, own_topics, tell)


class CountingLog(MemoryStateLog):
    """Counts the records that are written to it."""

    written = 0

    async def write(self, records: Sequence[KeyedValue], *, as_leader: bool = False) -> None:
        """See ``StateLog``."""
        self.written += len(records)
        await super().write(records, as_leader=as_leader)


async def test_a_topic_that_was_reset_is_back_with_the_next_record() -> None:
    """As in Kafka Connect (KIP-558); what the store knows already is not written again."""
    clock, log = SystemClock(), CountingLog("statuses")
    statuses = Statuses(log, clock=clock, emit=discard)
    await statuses.start()
    writer = telling(FakeKafka().writer(), lambda topic: statuses.add_topic(topic, TASK))
    await writer.start()
    for _ in range(2):
        for _ in range(3):
            await writer.commit([records("a", b"x")])
        await statuses.flush()
        assert statuses.topics(TASK.connector) == ["a"]
        statuses.reset_topics(TASK.connector)
        await statuses.flush()
        assert statuses.topics(TASK.connector) == []
    assert log.written == 4, "told, reset, told, reset"
    await statuses.stop()


async def test_topics_are_told_at_each_commit_and_only_after_it() -> None:
    """Offsets and dead letters are not the connector's topics; nothing written is no use."""
    kafka = FakeKafka(before_commit=lambda commit: DeliveryRetriable("away") if commit == 1 else None)
    told: list[str] = []
    for _ in range(2):
        writer = telling(kafka.writer(), told.append, frozenset({OFFSETS, LETTERS}))
        await writer.start()
        assert writer.is_usable
        writes = [records("a", b"x"), records("b"), records(LETTERS, b"x"), records(OFFSETS, b"x")]
        if not kafka.commits:
            with pytest.raises(DeliveryRetriable):
                await writer.commit(writes)
            assert told == []
            continue
        await writer.commit(writes)
        await writer.commit(writes)
        await writer.stop()
    assert told == ["a", "a"]
