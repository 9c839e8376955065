"""Topics a task has written its records to."""

from __future__ import annotations

import pyarrow as pa
import pytest

from service.kafka.errors import DeliveryRetriable
from service.kafka.records import TopicRecords
from service.worker.topics_used import NoticingWriter
from tests.unit.pipeline.fake_kafka import LETTERS, OFFSETS, FakeKafka

pytestmark = pytest.mark.looptime


def records(topic: str, count: int = 1) -> TopicRecords:
    """Some records for a topic."""
    return TopicRecords(topic, pa.array([b"x"] * count, pa.binary()))


async def test_each_topic_is_told_once_and_only_after_its_commit() -> None:
    """Offsets and dead letters are not the connector's topics; nothing written is no use."""
    kafka = FakeKafka(before_commit=lambda commit: DeliveryRetriable("away") if commit == 1 else None)
    told: list[str] = []
    for _ in range(2):
        writer = NoticingWriter(kafka.writer(), told.append, frozenset({OFFSETS, LETTERS}))
        await writer.start()
        assert writer.is_usable
        writes = [records("a"), records("b", 0), records(LETTERS), records(OFFSETS)]
        if not kafka.commits:
            with pytest.raises(DeliveryRetriable):
                await writer.commit(writes)
            assert told == []
            continue
        await writer.commit(writes)
        await writer.commit(writes)
        await writer.stop()
    assert told == ["a"]
