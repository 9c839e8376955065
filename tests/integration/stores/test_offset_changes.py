"""Source offsets in a real topic: read by many at once, listed, changed and forgotten by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fetchers.sdk import DedupeScope
from service.kafka.client import KafkaSettings, ProducerSettings
from service.kafka.errors import WriterFenced
from service.kafka.producer import TransactionalWriter
from service.kafka.records import TopicRecords
from service.stores.connector_offsets import ConnectorOffsets, OffsetTopics
from service.stores.dedupe_store import DedupeStore
from service.stores.offset_changes import OffsetChanges
from service.stores.offsets import OffsetEntry, OffsetStore, canonical_partition
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration

LOOK_SECONDS = 0.05
WAITING_SECONDS_MAX = 240
OPEN_SECONDS_MAX = 840.0
"""After which the broker itself would end a transaction that nobody ends; it allows no more than 900."""
ONE, TWO = {"file": "1"}, {"file": "2"}


@pytest.fixture
def settings(kafka: KafkaStack) -> KafkaSettings:
    """Settings for the run's broker."""
    return KafkaSettings(bootstrap=kafka.bootstrap)


async def dedupe_store(settings: KafkaSettings, topic_name: str) -> DedupeStore:
    """With its topic."""
    store = DedupeStore(settings, f"{topic_name}-dedupe")
    await store.ensure()
    return store


async def test_a_thousand_tasks_that_start_together_read_quickly(settings: KafkaSettings, topic_name: str) -> None:
    """Each sees what was committed before its own call; all together they read the topic three times at most."""
    store = OffsetStore(settings, topic_name)
    await store.ensure()
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    for number in range(3):
        await writer.commit(store.encode(f"c{number}", [(ONE, {"position": number})]))
    await writer.stop()
    rounds = []
    read = store._all_read._errand

    async def counted() -> None:
        rounds.append(1)
        await read()

    store._all_read._errand = counted
    async with asyncio.TaskGroup() as group:
        reading = [group.create_task(store.read(f"c{number % 3}")) for number in range(1000)]
    for number, task in enumerate(reading):
        assert task.result() == {canonical_partition(ONE): {"position": number % 3}}
    assert len(rounds) <= 3
    await store.close()


async def test_offsets_are_changed_and_forgotten_by_hand(settings: KafkaSettings, topic_name: str) -> None:
    """Only what is named changes; forgetting all leaves nothing, of this connector alone; a zombie writes no more."""
    store = OffsetStore(settings, topic_name)
    await store.ensure(partitions=3)
    zombie = TransactionalWriter(settings, transactional_id="g-c-0")
    await zombie.start()
    await zombie.commit(store.encode("c", [(ONE, {"p": 1}), (TWO, {"p": 2})]) + store.encode("d", [(ONE, {"p": 9})]))
    dedupe = await dedupe_store(settings, topic_name)
    changes = OffsetChanges(ConnectorOffsets(store), "g", dedupe)
    await changes.alter("c", [(ONE, {"p": 5}), (TWO, {"p": 6}), (ONE, {"p": 7})], writing=settings)
    assert await store.entries("c") == [(ONE, {"p": 7}), (TWO, {"p": 6})]
    with pytest.raises(WriterFenced):
        await zombie.commit(store.encode("c", [(ONE, {"p": 1})]))
    await zombie.stop()
    await changes.alter("c", [(TWO, None)], writing=settings)
    assert await store.entries("c") == [(ONE, {"p": 7})]
    await changes.reset("c", writing=settings)
    fresh = OffsetStore(settings, topic_name)
    for reader in (store, fresh):
        assert (await reader.entries("c"), await reader.entries("d")) == ([], [(ONE, {"p": 9})])
        await reader.close()


async def test_what_is_forgotten_with_a_partition_is_what_the_connector_says(
    settings: KafkaSettings, topic_name: str
) -> None:
    """Of all that are stored; what the request itself sets stays set."""
    store = OffsetStore(settings, topic_name)
    await store.ensure(partitions=3)
    changes = OffsetChanges(ConnectorOffsets(store), "g", await dedupe_store(settings, topic_name))
    three = {"name": "three"}
    await changes.alter("c", [(ONE, {"p": 1}), (TWO, {"p": 2}), (three, {"p": 3})], writing=settings)
    seen: list[object] = []

    async def both(partition: object, stored: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        seen.append((partition, sorted(stored, key=str)))
        return [TWO, three]

    await changes.alter("c", [(ONE, None), (three, {"p": 4})], writing=settings, forgotten_with=both)
    assert seen == [(ONE, sorted([ONE, TWO, three], key=str))]
    assert await store.entries("c") == [(three, {"p": 4})]
    await store.close()


async def test_who_forgets_the_offsets_forgets_what_was_delivered(settings: KafkaSettings, topic_name: str) -> None:
    """Of all tasks of this connector, and of no other; a change of offsets alone forgets nothing."""
    offsets, dedupe = OffsetStore(settings, topic_name), await dedupe_store(settings, topic_name)
    await offsets.ensure(partitions=1)
    hashes, is_valid = np.arange(48, dtype=np.uint8).reshape(3, 16), np.ones(3, dtype=bool)
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    for connector, task in (("c", 0), ("c", 1), ("d", 0)):
        state = dedupe.open(connector, task)
        await state.load()
        state.fresh_mask(hashes, is_valid, "2024-01-01")
        await writer.commit(state.encode([(DedupeScope("2024-01-01", "2024-01-01"), hashes)]))
    await writer.stop()

    async def known(connector: str, task: int) -> int:
        state = dedupe.open(connector, task)
        await state.load()
        return len(state.index)

    changes = OffsetChanges(ConnectorOffsets(offsets), "g", dedupe)
    await changes.alter("c", [(ONE, {"p": 1})], writing=settings)
    assert [await known("c", 0), await known("c", 1), await known("d", 0)] == [3, 3, 3]
    await changes.reset("c", writing=settings)
    assert [await known("c", 0), await known("c", 1), await known("d", 0)] == [0, 0, 3]
    await offsets.close()


async def test_a_topic_of_its_own_counts_more_than_the_workers(settings: KafkaSettings, topic_name: str) -> None:
    """What only the worker's topic knows is found too; a change comes to both, and forgetting leaves neither."""
    topics = OffsetTopics(settings, topic_name, partitions=2)
    await topics.ensure(f"{topic_name}-own")
    worker, own = topics.of(), topics.of(f"{topic_name}-own")
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    await writer.commit(worker.encode("c", [(ONE, {"p": 1}), (TWO, {"p": 2})]))
    await writer.commit(OffsetStore(settings, f"{topic_name}-own").encode("c", [(ONE, {"p": 9})]))
    await writer.stop()
    assert await worker.entries("c") == [(ONE, {"p": 1}), (TWO, {"p": 2})]
    assert await own.entries("c") == [(ONE, {"p": 9}), (TWO, {"p": 2})]
    changes = OffsetChanges(own, "g", await dedupe_store(settings, topic_name))
    await changes.alter("c", [(TWO, {"p": 5})], writing=settings)
    assert await own.entries("c") == [(ONE, {"p": 9}), (TWO, {"p": 5})]
    await wait_until_worker_has(worker, [(ONE, {"p": 9}), (TWO, {"p": 5})])
    await changes.reset("c", writing=settings)
    assert (await worker.entries("c"), await own.entries("c")) == ([], [])
    await topics.close()


async def wait_until_worker_has(worker: ConnectorOffsets, entries: list[OffsetEntry]) -> None:
    """Copies follow in the background."""
    async with asyncio.timeout(180):
        while await worker.entries("c") != entries:
            await asyncio.sleep(LOOK_SECONDS)


async def test_a_topic_of_its_own_isolates(settings: KafkaSettings, topic_name: str) -> None:
    """A transaction that a dead task left open, of a connector with a topic of its own, holds up nobody else.

    Nor is it held up by what others left open in the worker's, once it has begun to use its own.
    """
    topics = OffsetTopics(settings, topic_name, partitions=1)
    worker, own = topics.of(), topics.of(f"{topic_name}-own")
    await topics.ensure(f"{topic_name}-own")
    await topics.ensure()
    lasting = replace(settings, producer=ProducerSettings(transaction_seconds_max=OPEN_SECONDS_MAX))
    dead = [TransactionalWriter(lasting, transactional_id=f"{topic_name}-{number}") for number in range(2)]
    for writer, offsets in zip(dead, (own, worker), strict=True):
        await writer.start()
        await writer.commit(offsets.encode("c", [(ONE, {"p": 1})]))
    await own.committed("c", [(ONE, {"p": 1})])
    await wait_until_worker_has(worker, [(ONE, {"p": 1})])
    [to_own] = own.encode("c", [(ONE, {"p": 2})])
    await leave_open(dead[0], to_own)
    async with asyncio.timeout(WAITING_SECONDS_MAX):
        assert await worker.entries("d") == []
    heir = TransactionalWriter(settings, transactional_id=f"{topic_name}-0")
    await heir.start()
    await leave_open(dead[1], worker.encode("d", [(ONE, {"p": 3})])[0])
    async with asyncio.timeout(WAITING_SECONDS_MAX):
        assert await own.entries("c") == [(ONE, {"p": 1})]
    for writer in (heir, *dead):
        await writer.stop()
    await topics.close()


async def leave_open(writer: TransactionalWriter, records: TopicRecords) -> None:
    """A transaction with these records that nobody ends."""
    producer, keys = writer._connection.producer, records.keys
    assert keys is not None
    await producer.begin_transaction()
    for key, value in zip(keys.to_pylist(), records.values.to_pylist(), strict=True):
        await producer.send_and_wait(records.topic, value, key=key)


async def test_a_late_copy_does_not_bring_back_what_was_forgotten(settings: KafkaSettings, topic_name: str) -> None:
    """A worker that was cut off copies what it had committed long ago: for the topic it is from it does not count.

    For a connector that has lost its topic, or has another now, it does: it is all that is left.
    """
    topics, cut_off = (OffsetTopics(settings, topic_name, partitions=1) for _ in range(2))
    own_topic = f"{topic_name}-own"
    for each in (topics, cut_off):
        await each.ensure(own_topic)
    own = topics.of(own_topic)
    await OffsetChanges(own, "g", await dedupe_store(settings, topic_name)).alter(
        "c", [(ONE, {"p": 1})], writing=settings
    )
    await wait_until_worker_has(topics.of(), [(ONE, {"p": 1})])
    await OffsetChanges(own, "g", await dedupe_store(settings, topic_name)).reset("c", writing=settings)
    assert (await own.entries("c"), await topics.of().entries("c")) == ([], [])
    await cut_off.of(own_topic).committed("c", [(ONE, {"p": 1})])
    await wait_until_worker_has(topics.of(), [(ONE, {"p": 1})])
    assert await own.entries("c") == []
    await topics.ensure(f"{topic_name}-other")
    assert await topics.of(f"{topic_name}-other").entries("c") == [(ONE, {"p": 1})]
    for each in (topics, cut_off):
        await each.close()


async def test_the_workers_topic_named_once_more_is_one_topic(settings: KafkaSettings, topic_name: str) -> None:
    """No record is written twice."""
    topics = OffsetTopics(settings, topic_name)
    assert topics.of(topic_name) == topics.of()
    assert len(topics.of(topic_name).encode("c", [(ONE, {"p": 1})])) == 1
