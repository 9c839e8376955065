"""Writers against a real broker: what is committed is there, whole, once and in order; nothing else is."""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa
import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from service.kafka import delivery
from service.kafka.admin import KafkaAdmin, connected
from service.kafka.client import KafkaSettings, ProducerSettings
from service.kafka.compression import Compression
from service.kafka.errors import DeliveryFatal, DeliveryRetriable, RecordsRefused, WriterFenced
from service.kafka.partitioner import key_partitions
from service.kafka.producer import IdempotentWriter, TransactionalWriter, transactional_id
from service.kafka.reader import StoredRecord, TopicFeed, read_topic
from service.kafka.records import TopicRecords
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


def settings_of(kafka: KafkaStack, **producer: object) -> KafkaSettings:
    """Settings for the run's broker."""
    return KafkaSettings(bootstrap=kafka.bootstrap, producer=ProducerSettings(**producer))  # type: ignore[arg-type]


def records(topic: str, values: list[bytes | None], keys: list[bytes | None] | None = None) -> TopicRecords:
    """Columns of plain lists."""
    return TopicRecords(topic, pa.array(values, pa.binary()), None if keys is None else pa.array(keys, pa.binary()))


async def stored(settings: KafkaSettings, topic: str) -> list[StoredRecord]:
    """All committed records of a topic."""
    return [record async for batch in read_topic(settings, topic) for record in batch]


async def make_topic(settings: KafkaSettings, name: str, **options: object) -> None:
    """Create a topic."""
    async with KafkaAdmin.opened(settings) as admin:
        assert await admin.ensure_topic(name, **options)  # type: ignore[arg-type]


async def test_a_commit_is_read_back_whole(kafka: KafkaStack, topic_name: str) -> None:
    """Values, tombstones, keys, time stamps and headers arrive as given, over several topics and batches."""
    settings = settings_of(kafka, batch_bytes_max=4096)
    other = f"{topic_name}-other"
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    values: list[bytes | None] = [b"value %d" % index for index in range(2000)]
    special = TopicRecords(
        other,
        pa.array([b"x", None], pa.binary()),
        pa.array([b"k", "k\u2028😀".encode()], pa.binary()),
        pa.array([1234, None], pa.int64()),
        [[("name", b"text"), ("nothing", None)], []],
    )
    await writer.commit([records(topic_name, values), special])
    await writer.stop()
    assert [record.value for record in await stored(settings, topic_name)] == values
    first, second = await stored(settings, other)
    assert (first.key, first.value, first.timestamp) == (b"k", b"x", 1234)
    assert list(first.headers) == [("name", b"text"), ("nothing", None)]
    assert (second.key, second.value) == ("k\u2028😀".encode(), None)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_is_taken_by_the_broker(kafka: KafkaStack, topic_name: str, compression: str) -> None:
    """A compressed commit reads back the same."""
    settings = settings_of(kafka, compression=Compression(compression))
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    values: list[bytes | None] = [b"the same text over and over %d" % index for index in range(3000)]
    await writer.commit([records(topic_name, values)])
    await writer.stop()
    assert [record.value for record in await stored(settings, topic_name)] == values


async def test_keys_go_where_java_sends_them_and_the_rest_is_spread(kafka: KafkaStack, topic_name: str) -> None:
    """Keyed records land in the hashed partition, in order; keyless ones use every partition over time."""
    settings = settings_of(kafka)
    await make_topic(settings, topic_name, partitions=4)
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    keys: list[bytes | None] = [b"key-%d" % (index % 50) for index in range(1000)]
    await writer.commit([records(topic_name, [b"%04d" % index for index in range(1000)], keys)])
    for index in range(4):
        await writer.commit([records(topic_name, [b"keyless %d" % index])])
    await writer.stop()
    expected = key_partitions(pa.array(keys, pa.binary()), partitions=4)
    found = await stored(settings, topic_name)
    by_partition: dict[int, list[bytes]] = {number: [] for number in range(4)}
    for record in found:
        if record.key is not None:
            by_partition[record.partition].append(record.value or b"")
    for number, values in by_partition.items():
        assert values == [b"%04d" % index for index in range(1000) if expected[index] == number]
    assert {record.partition for record in found if record.key is None} == {0, 1, 2, 3}


async def test_an_empty_commit_does_nothing(kafka: KafkaStack, topic_name: str) -> None:
    """No writes, or writes without rows: no transaction, no topic, and the writer stays usable."""
    writer = TransactionalWriter(settings_of(kafka), transactional_id=topic_name)
    await writer.start()
    await writer.commit([])
    await writer.commit([records(topic_name, [])])
    assert writer.is_usable
    await writer.stop()
    with pytest.raises(DeliveryFatal, match="does not exist"):
        await stored(settings_of(kafka), topic_name)


async def test_a_newer_writer_fences_the_older(kafka: KafkaStack, topic_name: str) -> None:
    """The older writer with the same id is told that it is fenced, and nothing of it is visible."""
    settings = settings_of(kafka)
    name = transactional_id(group_id="group", connector=topic_name, task=0)
    old, new = (TransactionalWriter(settings, transactional_id=name) for _ in range(2))
    await old.start()
    await old.commit([records(topic_name, [b"before"])])
    await new.start()
    with pytest.raises(WriterFenced):
        await old.commit([records(topic_name, [b"zombie"])])
    assert not old.is_usable
    with pytest.raises(DeliveryRetriable):
        await old.commit([records(topic_name, [b"zombie again"])])
    await new.commit([records(topic_name, [b"after"])])
    await old.stop()
    await new.stop()
    assert [record.value for record in await stored(settings, topic_name)] == [b"before", b"after"]


async def test_a_cancelled_commit_is_aborted(kafka: KafkaStack, topic_name: str) -> None:
    """Cancelling in mid-commit is passed on promptly; what was sent stays invisible to readers of committed data."""
    settings = settings_of(kafka, batch_bytes_max=2000)
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    await writer.commit([records(topic_name, [b"first"])])
    values: list[bytes | None] = [b"x" * 1000] * 3000
    async with TopicFeed.opened(settings, topic_name, is_committed=False) as feed, asyncio.TaskGroup() as group:
        commit = group.create_task(writer.commit([records(topic_name, values)]))
        # Some of it has reached the broker: the commit is under way.
        while max((await feed.ends()).values()) < 50:
            assert not commit.done()
        commit.cancel()
    assert commit.cancelled()
    assert not writer.is_usable
    await writer.stop()
    assert [record.value for record in await stored(settings, topic_name)] == [b"first"]


async def test_a_record_over_the_topics_limit_is_named(kafka: KafkaStack, topic_name: str) -> None:
    """The row that does not fit is said, before anything is sent; what fits the topic's limit exactly is taken."""
    settings = settings_of(kafka)
    await make_topic(settings, topic_name, config={"max.message.bytes": "5000"})
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    # Many records that fit singly: batches keep to the topic's limit, not only to the writer's own.
    await writer.commit([records(topic_name, [b"v" * 4000] * 20)])
    with pytest.raises(RecordsRefused, match=r"max\.message\.bytes is 5000") as caught:
        await writer.commit([records(topic_name, [b"small", b"v" * 5000, b"small too", b"v" * 6000])])
    assert [(each.row, each.reason) for each in caught.value.refused] == [(1, "too_large"), (3, "too_large")]
    assert caught.value.write.topic == topic_name
    await writer.commit([records(topic_name, [b"small", b"small too"])])
    await writer.stop()
    assert len(await stored(settings, topic_name)) == 22


async def test_a_limit_that_is_lowered_meanwhile_is_asked_for_by_the_next_writer(
    kafka: KafkaStack, topic_name: str
) -> None:
    """What the broker refuses by a setting that is new asks for a restart; the next writer names the record."""
    settings = settings_of(kafka)
    await make_topic(settings, topic_name, config={"max.message.bytes": "5000"})
    large = records(topic_name, [b"v" * 4000])
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    await writer.commit([large])
    async with connected(settings, doing="lowering a limit") as admin:
        lower = ConfigResource(ConfigResourceType.TOPIC, topic_name, configs={"max.message.bytes": "1000"})
        await admin.alter_configs([lower])
    with pytest.raises(DeliveryRetriable, match="have changed"):
        await commit_until_refused(writer, large)
    await writer.stop()
    successor = TransactionalWriter(settings, transactional_id=topic_name)
    await successor.start()
    with pytest.raises(RecordsRefused):
        await successor.commit([large])
    await successor.commit([records(topic_name, [b"v" * 300] * 20)])
    await successor.stop()


async def commit_until_refused(writer: TransactionalWriter, write: TopicRecords) -> None:
    """A setting counts a moment after it was changed."""
    async with asyncio.timeout(180):
        while True:
            await writer.commit([write])


async def test_large_records_go_alone(kafka: KafkaStack, topic_name: str) -> None:
    """A dead letter of two mebibytes passes where its topic allows it, though it is larger than a batch."""
    settings = settings_of(kafka)
    await make_topic(settings, topic_name, config={"max.message.bytes": str(3 * 1_048_576)})
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    await writer.commit([records(topic_name, [b"small", b"v" * 2 * 1_048_576, b"small too"])])
    await writer.stop()
    assert [len(record.value or b"") for record in await stored(settings, topic_name)] == [5, 2 * 1_048_576, 9]


async def test_a_compacted_topic_refuses_records_without_key(kafka: KafkaStack, topic_name: str) -> None:
    """What the broker will refuse for ever is fatal, not retried."""
    settings = settings_of(kafka)
    await make_topic(settings, topic_name, config={"cleanup.policy": "compact"})
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    with pytest.raises(DeliveryFatal):
        await writer.commit([records(topic_name, [b"no key"])])
    await writer.stop()


async def test_sequence_numbers_may_pass_their_largest(kafka: KafkaStack, topic_name: str) -> None:
    """After two billion records in a partition a writer goes on: the broker takes numbers that wrap to zero."""
    settings = settings_of(kafka, batch_bytes_max=1000)
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    producer = writer._connection.producer
    await producer.partitions_for(topic_name)
    # The first number of a producer in a partition may be any; from there on they must follow each other.
    partition = next(iter(producer.client.cluster.available_partitions_for_topic(topic_name)))
    producer._txn_manager._sequence_numbers[(topic_name, partition)] = 2**31 - 30
    for start in range(0, 90, 30):
        await writer.commit([records(topic_name, [b"%d" % index + b"." * 80 for index in range(start, start + 30)])])
    await writer.stop()
    assert len(await stored(settings, topic_name)) == 90


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("days", "limits"),
    [
        (2, {"message.timestamp.after.max.ms": "3600000"}),
        (-2, {"message.timestamp.before.max.ms": "3600000"}),
        (2, {"message.timestamp.after.max.ms": "3600000", "message.timestamp.type": "LogAppendTime"}),
    ],
)
async def test_a_time_is_taken_unless_the_topic_refuses_it(
    kafka: KafkaStack, topic_name: str, days: int, limits: dict[str, str]
) -> None:
    """A source's clock may be a day fast; a topic's setting that forbids it is named, and the others can be written."""
    settings = settings_of(kafka)
    strict = f"{topic_name}-strict"
    await make_topic(settings, topic_name)
    await make_topic(settings, strict, config=limits)
    now_ms = time.time_ns() // 1_000_000

    def at(topic: str, *times_ms: int | None) -> TopicRecords:
        values = pa.array([b"x"] * len(times_ms), pa.binary())
        return TopicRecords(topic, values, timestamps_ms=pa.array(times_ms, pa.int64()))

    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    off_ms = now_ms + days * DAY_MS
    await writer.commit([at(topic_name, off_ms)])
    if "message.timestamp.type" in limits:
        await writer.commit([at(strict, off_ms)])
    else:
        with pytest.raises(RecordsRefused, match=next(iter(limits)).replace(".", r"\.")) as caught:
            await writer.commit([at(strict, now_ms, off_ms, None)])
        assert [(each.row, each.reason) for each in caught.value.refused] == [(1, "out_of_range")]
        await writer.commit([at(strict, now_ms)])
    await writer.stop()
    assert [record.timestamp for record in await stored(settings, topic_name)] == [off_ms]
    assert len(await stored(settings, strict)) == 1


async def test_at_least_once_writes_offsets_last(kafka: KafkaStack, topic_name: str) -> None:
    """Without transactions the offsets are sent only when everything else is acknowledged."""
    settings = settings_of(kafka)
    offsets = f"{topic_name}-offsets"
    await make_topic(settings, offsets, config={"cleanup.policy": "compact", "max.message.bytes": "2000"})
    await make_topic(settings, topic_name, config={"max.message.bytes": "2000"})
    writer = IdempotentWriter(settings, last_topic=offsets)
    await writer.start()
    await writer.commit([records(offsets, [b"{}"], [b"k"]), records(topic_name, [b"a", b"b"])])
    with pytest.raises(RecordsRefused):
        await writer.commit([records(offsets, [b"{1}"], [b"k"]), records(topic_name, [b"v" * 3000])])
    with pytest.raises(RecordsRefused):
        await writer.commit([records(topic_name, [b"c"]), records(offsets, [b"v" * 3000], [b"k"])])
    await writer.stop()
    assert [record.value for record in await stored(settings, topic_name)] == [b"a", b"b"]
    assert [record.value for record in await stored(settings, offsets)] == [b"{}"]


async def test_at_least_once_keeps_the_order_of_writes(kafka: KafkaStack, topic_name: str) -> None:
    """State that calls records delivered is not written when the records before it were refused."""
    settings = settings_of(kafka)
    await make_topic(settings, topic_name, config={"cleanup.policy": "compact"})
    await make_topic(settings, f"{topic_name}-state")
    writer = IdempotentWriter(settings, last_topic="none")
    await writer.start()
    with pytest.raises(DeliveryFatal):
        await writer.commit([records(topic_name, [b"no key"]), records(f"{topic_name}-state", [b"seen"])])
    await writer.stop()
    assert await stored(settings, f"{topic_name}-state") == []


async def test_a_topic_that_cannot_be_is_fatal(kafka: KafkaStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that the broker neither has nor makes is said, and told apart from a broker that is away."""
    monkeypatch.setattr(delivery, "TOPIC_SECONDS_MAX", 5.0)
    writer = TransactionalWriter(settings_of(kafka), transactional_id="no-topic")
    await writer.start()
    with pytest.raises(DeliveryFatal, match="'no topic!' does not exist"):
        await writer.commit([records("no topic!", [b"x"])])
    await writer.stop()


async def test_a_wrong_transaction_limit_is_fatal_at_start(kafka: KafkaStack, topic_name: str) -> None:
    """A time limit over the broker's own is refused with a reason, and nothing hangs."""
    writer = TransactionalWriter(settings_of(kafka, transaction_seconds_max=2_000_000.0), transactional_id=topic_name)
    with pytest.raises(DeliveryFatal, match="InvalidTransactionTimeout"):
        await writer.start()
    await writer.stop()


async def test_an_unreachable_broker_is_retriable(topic_name: str) -> None:
    """No broker at the address: the start ends soon, with a reason, and stopping is harmless."""
    writer = TransactionalWriter(KafkaSettings(bootstrap="127.0.0.1:1"), transactional_id=topic_name)
    with pytest.raises(DeliveryRetriable, match=r"connecting to 127\.0\.0\.1:1"):
        await writer.start()
    await writer.stop()
    await writer.stop()
