"""Records that a topic's own settings do not allow: dead letters like those that conversion refuses."""

from __future__ import annotations

import asyncio

import pytest

from metrics.events import RecordsRejected, TransactionAborted
from service.domain.errors import RecordRejectedError, root_of
from service.kafka.errors import DeliveryFatal, RefusedRecord
from service.kafka.records import TopicRecords
from service.pipeline.batching import BatchLimits
from service.pipeline.queue import QueueLimits
from tests.unit.pipeline.fake_kafka import LETTERS, TOPIC, FakeKafka
from tests.unit.pipeline.fakes import World, numbers, payloads, wait_until

pytestmark = pytest.mark.looptime


def refuse(write: TopicRecords) -> list[RefusedRecord]:
    """A topic that takes no record with a 7 in it."""
    if write.topic == LETTERS:
        return []
    return [
        RefusedRecord(row, "too_large", "takes 7 bytes")
        for row, value in enumerate(write.values.to_pylist())
        if write.topic != "offsets" and value and b"7" in value and not value.startswith(b"{")
    ]


async def delivered_by(world: World, values: list[bytes], *, until: bytes) -> None:
    """Run a task until a record is delivered."""
    async with asyncio.TaskGroup() as group:
        task = world.task(numbers(values))
        group.create_task(task.run())
        await wait_until(lambda: until in world.kafka.values(TOPIC))
        task.request_stop()


@pytest.mark.parametrize("has_dedupe", [False, True])
async def test_what_the_topic_refuses_is_a_dead_letter_of_the_same_transaction(*, has_dedupe: bool) -> None:
    """Its neighbours are delivered, the writer goes on, and nothing was aborted."""
    world = World(FakeKafka(refuse=refuse), has_dedupe=has_dedupe)
    values = payloads(20, bad=[5])
    await delivered_by(world, values, until=b"19")
    assert world.kafka.values(TOPIC) == [value for value in values if value not in {b"7", b"17", b"bad5"}]
    assert world.kafka.values(LETTERS) == [b"bad5", b"7", b"17"]
    headers = [dict(header) for header in world.kafka.headers(LETTERS)]
    assert [header["__connect.errors.stage"] for header in headers] == [
        b"VALUE_CONVERTER",
        b"KAFKA_PRODUCE",
        b"KAFKA_PRODUCE",
    ]
    assert headers[1]["__headrace.errors.reason"] == b"too_large"
    assert headers[1]["__connect.errors.exception.message"] == b"takes 7 bytes"
    assert [(event.stage, event.count) for event in world.told(RecordsRejected)][-1] == ("KAFKA_PRODUCE", 1)
    assert len(world.writers) == 1
    assert world.told(TransactionAborted) == []


async def test_with_de_duplication_a_refused_record_is_one_letter_and_hides_no_good_one() -> None:
    """It is remembered as rejected; once its topic takes it, it is delivered."""
    kafka = FakeKafka(refuse=refuse)
    await delivered_by(World(kafka, has_dedupe=True), [b"7", b"1", b"7", b"2"], until=b"2")
    assert kafka.values(LETTERS) == [b"7"]
    kafka.refuse = lambda _: []
    await delivered_by(World(kafka, has_dedupe=True), [b"7", b"1", b"7", b"2", b"7", b"3"], until=b"3")
    assert kafka.values(TOPIC) == [b"1", b"2", b"7", b"3"]


async def test_many_copies_of_a_refused_record_are_one_letter_after_two_rounds() -> None:
    """Each copy would pass for fresh once the one before it is known to be refused."""
    asked: list[str] = []

    def counted(write: TopicRecords) -> list[RefusedRecord]:
        asked.append(write.topic)
        return refuse(write)

    kafka = FakeKafka(refuse=counted)
    world = World(kafka, has_dedupe=True)
    async with asyncio.TaskGroup() as group:
        task = world.task(
            numbers([*[b"7"] * 60, b"1"], page_records=61),
            queue=QueueLimits(records_max=100, bytes_max=10_000),
            batch=BatchLimits(records_max=100, bytes_max=10_000, age_seconds_max=0.5),
        )
        group.create_task(task.run())
        await wait_until(lambda: b"1" in kafka.values(TOPIC))
        task.request_stop()
    assert kafka.values(LETTERS) == [b"7"]
    assert asked.count(TOPIC) == 3


async def test_with_tolerance_none_the_task_fails_at_the_refused_record() -> None:
    """Having delivered every page before it."""
    world = World(FakeKafka(refuse=refuse))
    with pytest.raises(ExceptionGroup) as caught:
        await world.task(numbers(payloads(20), page_records=1), is_tolerant=False).run()
    error = root_of(caught.value)
    assert isinstance(error, RecordRejectedError)
    assert "too_large" in str(error)
    assert world.kafka.values(TOPIC) == payloads(7)
    assert world.kafka.values(LETTERS) == []


@pytest.mark.parametrize("topic", [LETTERS, "state"])
async def test_what_has_nowhere_else_to_go_fails_the_task(topic: str) -> None:
    """A letter over the limit of its own topic, with its place in the source; state over that of its."""
    refused = [RefusedRecord(0, "too_large", "takes 9 bytes")]
    world = World(FakeKafka(refuse=lambda write: refused if write.topic == topic else []), has_dedupe=True)
    with pytest.raises(ExceptionGroup) as caught:
        await world.task(numbers(payloads(4, bad=[2]))).run()
    error = root_of(caught.value)
    assert isinstance(error, DeliveryFatal)
    assert "takes 9 bytes" in str(error)
    assert ("source partition" in str(error)) == (topic == LETTERS)
    assert b"3" not in world.kafka.values(TOPIC)
    assert world.kafka.values(LETTERS) == []
