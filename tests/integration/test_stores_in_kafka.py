"""Offsets and de-duplication state live in real topics and come back to a new incarnation."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from aiokafka.admin import NewPartitions

from fetchers.sdk import DedupeScope
from metrics.events import Event, StateRecordSkipped
from service.kafka import library
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, DeliveryRetriable
from service.kafka.producer import TransactionalWriter
from service.kafka.records import TopicRecords
from service.kafka.tail import TopicTail
from service.stores import DedupeStore, OffsetStore, canonical_partition
from service.stores.dedupe_records import TaskRecords, partition_of
from service.stores.dedupe_store import PARTITIONS
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration

NASTY = {"datei": "größe\u2028😀\x1b.txt", "b": 1, "a": None}


@pytest.fixture
def settings(kafka: KafkaStack) -> KafkaSettings:
    """Settings for the run's broker."""
    return KafkaSettings(bootstrap=kafka.bootstrap)


async def test_offsets_come_back_exactly(settings: KafkaSettings, topic_name: str) -> None:
    """A new store reads the last offset of each partition: text of any kind, 64-bit integers, floats, nulls."""
    store = OffsetStore(settings, topic_name)
    await store.ensure(partitions=3)
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    offset = {"position": 2**63 - 1, "ratio": 1e10, "nothing": None, "text": "\u2028😀"}
    await writer.commit(store.encode("c", [(NASTY, {"position": 1}), ({"x": "gone"}, {"y": 1})]))
    assert len(await store.read("c")) == 2
    reordered = dict(reversed(NASTY.items()))
    await writer.commit(store.encode("c", [(reordered, offset), ({"x": "gone"}, None)]))
    await writer.commit(store.encode("other", [(NASTY, {"position": 3})]))
    for reader in (store, OffsetStore(settings, topic_name)):
        assert await reader.read("c") == {canonical_partition(NASTY): offset}
        assert await reader.read("nobody") == {}
        await reader.close()
    await writer.stop()


async def test_connects_own_records_are_understood(settings: KafkaSettings, topic_name: str) -> None:
    """Keys with names in any order; records that are no offsets at all are told of, and do not stop a reader."""
    events: list[Event] = []
    store = OffsetStore(settings, topic_name, emit=events.append)
    await store.ensure(partitions=1)
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    keys = [b'["c",{"b":1,"a":2}]', b'["c", {"a": 2, "b": 1}]', b"not json", b'["c"]', b'["n",null]']
    values = [b'{"position":1}', b'{"position":2}', b"x", b"{}", b'{"p":1}']
    await writer.commit([TopicRecords(topic_name, pa.array(values, pa.binary()), pa.array(keys, pa.binary()))])
    await writer.stop()
    assert await store.read("c") == {'{"a":2,"b":1}': {"position": 2}}
    assert await store.read("n") == {"{}": {"p": 1}}
    assert events == [
        StateRecordSkipped(topic=topic_name, offset=offset, reason="it is no source offset") for offset in (2, 3)
    ]
    await store.close()


async def test_a_topic_that_forgets_is_refused(settings: KafkaSettings, topic_name: str) -> None:
    """An existing offset topic that deletes by age is refused in Connect's words, and left as it is."""
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=1, config={"cleanup.policy": "delete"})
        store = OffsetStore(settings, topic_name)
        with pytest.raises(DeliveryFatal, match=r"required to have 'cleanup\.policy=compact'"):
            await store.ensure()
        assert (await admin.topic_config(topic_name))["cleanup.policy"] == "delete"
        assert await admin.ensure_topic(topic_name) is False


async def test_reading_to_the_end_waits_for_open_transactions(settings: KafkaSettings, topic_name: str) -> None:
    """What another task is just committing is waited for; what it leaves open is given up after the limit."""
    store = OffsetStore(settings, topic_name)
    await store.ensure(partitions=1)
    other = TransactionalWriter(settings, transactional_id=topic_name)
    await other.start()
    producer = other._connection.producer
    await producer.begin_transaction()
    await (await producer.send(topic_name, b'{"position":7}', key=b'["c",{}]'))
    impatient = TopicTail(settings, topic_name, receive=lambda _: None, tell=lambda _: None, stall_seconds_max=0.5)
    await impatient.start()
    with pytest.raises(DeliveryRetriable, match="a transaction is open"):
        await impatient.read_to_end()
    await impatient.read_to_end(is_pending_awaited=False)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(store.read("c"))
        await asyncio.sleep(0)
        assert not reading.done()
        await producer.commit_transaction()
    assert reading.result() == {"{}": {"position": 7}}
    await impatient.stop()
    await store.close()
    await other.stop()


async def test_aborted_offsets_are_never_seen(settings: KafkaSettings, topic_name: str) -> None:
    """An aborted transaction at the very end of the topic neither shows nor holds a reader up."""
    store = OffsetStore(settings, topic_name)
    await store.ensure(partitions=1)
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    await writer.commit(store.encode("c", [({}, {"position": 1})]))
    producer = writer._connection.producer
    await producer.begin_transaction()
    await (await producer.send(topic_name, b'{"position":2}', key=b'["c",{}]'))
    await producer.abort_transaction()
    async with asyncio.timeout(300):
        assert await store.read("c") == {"{}": {"position": 1}}
    await store.close()
    await writer.stop()


async def test_dedupe_state_survives_with_its_transaction(settings: KafkaSettings, topic_name: str) -> None:
    """A new incarnation knows what was committed, not what was aborted, and nothing of closed windows."""
    store = DedupeStore(settings, topic_name)
    await store.ensure()
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    random = np.random.default_rng(5)
    first, second = (random.integers(0, 256, (70_000, 16), dtype=np.uint8) for _ in range(2))
    valid = np.ones(70_000, dtype=bool)
    day = DedupeScope("2024-01-01", "2024-01-01")
    state = store.open("c", 0)
    await state.load()
    assert state.fresh_mask(first, valid, day.window).all()
    await writer.commit(state.encode([(day, first)]))
    state.commit()
    assert state.fresh_mask(second, valid, day.window).all()
    state.encode([(day, second)])
    state.rollback()
    heir = store.open("c", 0)
    await heir.load()
    assert not heir.fresh_mask(first, valid, day.window).any()
    assert heir.fresh_mask(second, valid, day.window).all()
    heir.rollback()
    await writer.commit(heir.encode([(DedupeScope("2024-01-03", "2024-01-02"), first[:1])]))
    heir.commit()
    last = store.open("c", 0)
    await last.load()
    assert len(last.index) == 1
    await writer.stop()


def scoped(number: int) -> tuple[DedupeScope, npt.NDArray[np.uint8]]:
    """One record of a day, by its hash."""
    return DedupeScope("2024-01-01", "2024-01-01"), np.full((1, 16), number, dtype=np.uint8)


async def remember(store: DedupeStore, task: int, writer: TransactionalWriter, number: int) -> bool:
    """In a new incarnation of the task; whether it was news."""
    state = store.open("c", task)
    await state.load()
    scope, hashes = scoped(number)
    is_fresh = bool(state.fresh_mask(hashes, np.ones(1, dtype=bool), scope.window)[0])
    await writer.commit(state.encode([(scope, hashes)] if is_fresh else []))
    state.commit()
    return is_fresh


def partitions_of(records: TaskRecords) -> set[int]:
    """Where the chunks of a task lie."""
    return {partition for _, partition in records.live}


async def test_the_chunks_of_a_task_lie_in_its_partition(settings: KafkaSettings, topic_name: str) -> None:
    """Of many, and a start reads that one; different tasks lie in different ones."""
    store = DedupeStore(settings, topic_name)
    await store.ensure()
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    for task in range(4):
        assert [await remember(store, task, writer, number) for number in (1, 2, 1)] == [True, True, False]
    await writer.stop()
    found = await store.read(lambda _: True)
    assert {key: partitions_of(records) for key, records in found.items()} == {
        ("c", task): {partition_of(("c", task), PARTITIONS)} for task in range(4)
    }
    assert len(set.union(*map(partitions_of, found.values()))) > 1
    alone = await store.read(lambda _: True, only_partition=lambda count: partition_of(("c", 0), count))
    assert alone.keys() < found.keys()


async def test_chunks_are_found_where_an_older_topic_has_them(settings: KafkaSettings, topic_name: str) -> None:
    """A topic of one partition that was given more: what is there stays there, and so does what joins it."""
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=1, config={"cleanup.policy": "compact"})
        store = DedupeStore(settings, topic_name)
        writer = TransactionalWriter(settings, transactional_id=topic_name)
        await writer.start()
        assert await remember(store, 1, writer, 1)
        await library.client_of(admin._client).force_metadata_update()
        await admin._client.create_partitions({topic_name: NewPartitions(total_count=PARTITIONS)})
        async with asyncio.timeout(180):
            while await admin.partition_count(topic_name) != PARTITIONS:
                await asyncio.sleep(0.05)
    assert partition_of(("c", 1), PARTITIONS) != 0
    assert [await remember(store, 1, writer, number) for number in (1, 2, 2)] == [False, True, False]
    await writer.stop()
    [records] = (await store.read(lambda _: True)).values()
    assert (partitions_of(records), len(records.live)) == ({0}, 2)


async def test_a_topic_that_is_given_partitions_is_read_in_all_of_them(
    settings: KafkaSettings, topic_name: str
) -> None:
    """While the store follows it; Kafka Connect writes a key where it belongs by then, and the older record stays."""
    store = OffsetStore(settings, topic_name)
    await store.ensure(partitions=1)
    for number, partitions in enumerate((1, 5)):
        async with KafkaAdmin.opened(settings) as admin, asyncio.timeout(180):
            if partitions > 1:
                await library.client_of(admin._client).force_metadata_update()
                await admin._client.create_partitions({topic_name: NewPartitions(total_count=partitions)})
            while await admin.partition_count(topic_name) != partitions:
                await asyncio.sleep(0.05)
        writer = TransactionalWriter(settings, transactional_id=topic_name)
        await writer.start()
        written = store.encode("c", [({"x": x}, {"position": number}) for x in range(10)])
        await writer.commit([replace(records, partition=None) for records in written])
        await writer.stop()
        assert list((await store.read("c")).values()) == [{"position": number}] * 10
    fresh = OffsetStore(settings, topic_name)
    assert await fresh.read("c") == await store.read("c")
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    await writer.commit(fresh.encode("c", [({"x": x}, None) for x in range(10)]))
    await writer.stop()
    assert (await fresh.read("c"), await store.read("c")) == ({}, {})
    await fresh.close()
    await store.close()


async def test_a_topic_that_is_made_anew_is_read_anew(settings: KafkaSettings, topic_name: str) -> None:
    """Also where the store's reader has gone to its beginning by itself, and stands where it ends."""
    store = OffsetStore(settings, topic_name)
    await store.ensure(partitions=1)
    for position in (1, 2):
        writer = TransactionalWriter(settings, transactional_id=topic_name)
        await writer.start()
        for x in range(3 - position):
            await writer.commit(store.encode("c", [({"x": position + x}, {"position": position})]))
        await writer.stop()
        if position == 1:
            assert len(await store.read("c")) == 2
            async with KafkaAdmin.opened(settings) as admin, asyncio.timeout(180):
                await admin._client.delete_topics([topic_name])
                while await admin.partition_count(topic_name):
                    await asyncio.sleep(0.05)
            await store.ensure(partitions=1)
    tail = store._tail
    assert tail is not None
    async with asyncio.timeout(180):
        while not tail.has_missed:
            await asyncio.sleep(0.05)
    assert await store.read("c") == {'{"x":2}': {"position": 2}}
    await store.close()
