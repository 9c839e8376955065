"""Topics that pages name, admitted before anything is written to them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from service.kafka.records import TopicRecords
from service.registry.errors import IncompatibleSchema
from service.worker.admitting import AdmittingWriter
from tests.unit.pipeline.fake_kafka import LETTERS, FakeKafka

pytestmark = pytest.mark.looptime


def records(topic: str, *values: bytes | None) -> TopicRecords:
    """Records for a topic."""
    return TopicRecords(topic, pa.array(values, pa.binary()))


async def test_each_topic_is_admitted_once_before_its_first_commit() -> None:
    """Its values as soon as it gets one: tombstones have none. Topics that are known already are not asked about."""
    kafka = FakeKafka()
    asked: list[tuple[str, bool, int]] = []

    async def admit(topic: str, *, has_values: bool) -> None:
        asked.append((topic, has_values, kafka.commits))

    writer = AdmittingWriter(kafka.writer(), admit, {LETTERS, "own"})
    await writer.start()
    await writer.commit([records("own", b"x"), records(LETTERS, b"x"), records("empty"), records("a", None)])
    await writer.commit([records("a", None), records("a", b"x"), records("b", b"x", None)])
    await writer.commit([records("a", b"x"), records("b", None)])
    assert asked == [("a", False, 0), ("a", True, 1), ("b", True, 1)]


async def test_nothing_is_written_beside_a_topic_that_is_refused() -> None:
    """Neither to it nor to the others of the same transaction."""
    kafka = FakeKafka()

    async def refuse(topic: str, *, has_values: bool) -> None:
        raise IncompatibleSchema(f"{topic} {has_values}")

    writer = AdmittingWriter(kafka.writer(), refuse, {"own"})
    await writer.start()
    with pytest.raises(IncompatibleSchema, match="a True"):
        await writer.commit([records("own", b"x"), records("a", b"x")])
    assert kafka.commits == 0
