"""FileStreamSink on the real broker: every record once in the file, whatever happens to its tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from metrics.events import SinkLagMeasured, SinkOffsetsCommitted, SinkPartitionsChanged
from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError
from service.herder.offsets import SinkOffsetAccess
from service.kafka.client import KafkaSettings
from service.kafka.group_consumer import GroupConsumer, Subscription
from service.sinks.task import SinkTask
from tests.integration.sinks.sink_runs import (
    Sinks,
    lines_of,
    make_topic,
    produce,
    sink_properties,
    stored,
    wait_until,
)
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


class _Nobody:
    """Hears nothing."""

    async def on_revoked(self, _partitions: object) -> None:
        """Nothing."""

    async def on_assigned(self, _committed: object) -> dict[tuple[str, int], int]:
        """Nothing."""
        return {}


async def committed_offset(bootstrap: str, name: str, topic: str) -> int | None:
    """The offset of a sink's group in the topic's first partition."""
    consumer = GroupConsumer(
        KafkaSettings(bootstrap=bootstrap), Subscription((topic,)), group_id=f"connect-{name}", listener=_Nobody()
    )
    await consumer.start()
    try:
        return (await consumer.committed([(topic, 0)]))[topic, 0]
    finally:
        await consumer.stop()


def partitions_of(sinks: Sinks) -> dict[int, int]:
    """How many partitions each task has, as last told."""
    return {event.task: event.count for event in sinks.events if isinstance(event, SinkPartitionsChanged)}


async def test_lines_come_out_as_they_went_in(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Any text, empty and long lines, tombstones as Connect prints them; in order."""
    file = tmp_path / "out.txt"
    values: list[bytes | None] = [
        b"plain", b"", "ä€🙂 \u2028 and \u0085".encode(), b"with\rCR", b"x" * 300_000, None, b"last",
    ]  # fmt: skip
    await produce(kafka.bootstrap, topic_name, values)
    sinks = Sinks(kafka.bootstrap, sink_properties(topic_name, topic_name, file))
    async with sinks.running():
        await wait_until(lambda: len(lines_of(file)) == len(values))
    assert lines_of(file) == [b"null" if value is None else value for value in values]


async def test_a_stop_commits_what_was_put(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """The group's offset is the end of the file, and a next run goes on there."""
    file = tmp_path / "out.txt"
    sinks = Sinks(kafka.bootstrap, sink_properties(topic_name, topic_name, file))
    for count in (3, 7):
        await produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(len(lines_of(file)), count)])
        async with sinks.running():
            await wait_until(lambda count=count: len(lines_of(file)) == count)  # type: ignore[misc]
        assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == count
    assert lines_of(file) == [b"%d" % number for number in range(7)]


async def test_tasks_share_partitions_and_a_file(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Two tasks have a partition each; one that goes leaves its to the other; no record is lost or written twice."""
    file = tmp_path / "out.txt"
    await make_topic(kafka.bootstrap, topic_name, partitions=2)
    sinks = Sinks(kafka.bootstrap, sink_properties(topic_name, topic_name, file))
    keys: list[bytes | None] = [b"%d" % number for number in range(3_000)]
    written = keys
    async with sinks.running(0):
        async with sinks.running(1):
            await wait_until(lambda: partitions_of(sinks) == {0: 1, 1: 1})
            await produce(kafka.bootstrap, topic_name, written, keys)
            await wait_until(lambda: len(lines_of(file)) == len(written))
        await wait_until(lambda: partitions_of(sinks)[0] == 2)
        more: list[bytes | None] = [b"more %d" % number for number in range(1_000)]
        await produce(kafka.bootstrap, topic_name, more, keys[:1_000])
        await wait_until(lambda: len(lines_of(file)) == len(written) + len(more))
    assert Counter(lines_of(file)) == Counter(written + more)


async def test_rebalances_under_load_lose_and_repeat_nothing(
    kafka: KafkaStack, topic_name: str, tmp_path: Path
) -> None:
    """Tasks come and go while records are written; each record stands in the file once."""
    file = tmp_path / "out.txt"
    await make_topic(kafka.bootstrap, topic_name, partitions=2)
    sinks = Sinks(
        kafka.bootstrap, sink_properties(topic_name, topic_name, file, consumer__override__max__poll__records="50")
    )
    keys: list[bytes | None] = [b"%d" % number for number in range(5_000)]

    async def write() -> None:
        for begin in range(0, len(keys), 250):
            await produce(kafka.bootstrap, topic_name, keys[begin : begin + 250], keys[begin : begin + 250])

    async with sinks.running(0), asyncio.TaskGroup() as group:
        group.create_task(write())
        for number in (1, 2):
            async with sinks.running(number):
                seen = len(lines_of(file))
                await wait_until(lambda seen=seen: len(lines_of(file)) > seen or seen == len(keys))  # type: ignore[misc]
        await wait_until(lambda: len(lines_of(file)) >= len(keys))
    assert Counter(lines_of(file)) == Counter(keys)


async def test_what_was_put_and_not_committed_is_not_written_again(
    kafka: KafkaStack, topic_name: str, tmp_path: Path
) -> None:
    """A task that is cut off between writing and committing leaves records that come again, and are passed over."""
    file = tmp_path / "out.txt"
    # The first commit comes with the first put, and no other before the cut, however long it takes.
    sinks = Sinks(kafka.bootstrap, sink_properties(topic_name, topic_name, file), flush_seconds=3600.0)
    await produce(kafka.bootstrap, topic_name, [b"first"])
    task = await sinks.task()
    async with asyncio.TaskGroup() as group:
        work = group.create_task(task.run())
        await wait_until(lambda: bool(sinks.told(SinkOffsetsCommitted)))
        await produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(100)])
        await wait_until(lambda: len(lines_of(file)) == 101)
        work.cancel()
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == 1
    async with sinks.running():
        await produce(kafka.bootstrap, topic_name, [b"last"])
        await wait_until(lambda: lines_of(file)[-1] == b"last")
    assert lines_of(file) == [b"first", *(b"%d" % number for number in range(100)), b"last"]


async def test_a_reset_group_writes_its_lines_again(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Offsets that someone has set back are obeyed, as in Connect."""
    file = tmp_path / "out.txt"
    sinks = Sinks(kafka.bootstrap, sink_properties(topic_name, topic_name, file))
    await produce(kafka.bootstrap, topic_name, [b"a", b"b", b"c"])
    async with sinks.running():
        await wait_until(lambda: len(lines_of(file)) == 3)
    await set_offset(kafka.bootstrap, topic_name, topic_name, 1)
    async with sinks.running():
        await wait_until(lambda: len(lines_of(file)) == 5)
    assert lines_of(file) == [b"a", b"b", b"c", b"b", b"c"]


async def test_a_sink_may_refuse_offsets(kafka: KafkaStack, topic_name: str) -> None:
    """As one does whose target says how far it is; the group stays as it was, and its text is the answer."""
    asked: list[object] = []

    async def refuse(_config: object, offsets: object) -> None:
        asked.append(offsets)
        message = "the names of the files are the offsets"
        raise ValueError(message)

    settings = KafkaSettings(bootstrap=kafka.bootstrap)
    access = SinkOffsetAccess(lambda _role, _config: settings, lambda name, _config: f"connect-{name}", refuse)
    await produce(kafka.bootstrap, topic_name, [b"a", b"b"])
    await set_offset(kafka.bootstrap, topic_name, topic_name, 1)
    wanted = [({"kafka_topic": topic_name, "kafka_partition": 0}, {"kafka_offset": 2})]
    for change in (access.alter(topic_name, {}, wanted), access.reset(topic_name, {})):
        with pytest.raises(BadRequestError, match="the names of the files are the offsets"):
            await change
    assert asked == [{(topic_name, 0): 2}, {(topic_name, 0): None}]
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == 1


async def test_partitions_that_there_are_not_and_offsets_beyond_the_end(kafka: KafkaStack, topic_name: str) -> None:
    """The first are refused, and nothing is changed; the others are taken, as in Connect, and it is said what comes."""
    settings = KafkaSettings(bootstrap=kafka.bootstrap)

    async def take(_config: object, _offsets: object) -> None:
        """Whatever it is."""

    access = SinkOffsetAccess(lambda _role, _config: settings, lambda name, _: f"connect-{name}", take)
    await produce(kafka.bootstrap, topic_name, [b"a", b"b"])

    def of(offset: int | None, number: int = 0, topic: str = topic_name) -> OffsetEntry:
        known = None if offset is None else {"kafka_offset": offset}
        return ({"kafka_topic": topic, "kafka_partition": number}, known)

    assert await access.alter(topic_name, {}, [of(2)]) == (True, "")
    begin = f"Failed to alter consumer group offsets for connector {topic_name}: topic '{topic_name}"
    for wrong, told in (
        (of(1, 7), "' has no partition 7: there are 1, counted from 0"),
        (of(1, 0, f"{topic_name}-nowhere"), "-nowhere' does not exist"),
        (of(None, 0, f"{topic_name}-nowhere"), "-nowhere' does not exist"),
    ):
        with pytest.raises(BadRequestError) as refused:
            await access.alter(topic_name, {}, [of(1), wrong])
        assert str(refused.value) == begin + told
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == 2
    altered = await access.alter(topic_name, {}, [of(99)])
    assert f"offset 99 is beyond the end of partition 0 of topic '{topic_name}', which is 2" in altered.remark
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == 99


async def set_offset(bootstrap: str, name: str, topic: str, offset: int) -> None:
    """Alter the offset of a stopped sink's group, as a member of it."""
    consumer = GroupConsumer(
        KafkaSettings(bootstrap=bootstrap), Subscription((topic,)), group_id=f"connect-{name}", listener=_Nobody()
    )
    await consumer.start()
    try:
        while not consumer.lags():
            await consumer.poll(seconds_max=0.1)
        await consumer.commit({(topic, 0): offset})
    finally:
        await consumer.stop()


async def test_topics_by_pattern(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """The whole name must match; a topic that is made later is found too."""
    file = tmp_path / "out.txt"
    for suffix in ("-a", "-ab"):
        await produce_to_new(kafka.bootstrap, topic_name + suffix, suffix.encode())
    properties = sink_properties(topic_name, "", file, consumer__override__metadata__max__age__ms="300")
    del properties["topics"]
    sinks = Sinks(kafka.bootstrap, {**properties, "topics.regex": f"{topic_name}-[a-z]"})
    async with sinks.running():
        await wait_until(lambda: lines_of(file) == [b"-a"])
        await produce_to_new(kafka.bootstrap, f"{topic_name}-z", b"-z")
        await wait_until(lambda: lines_of(file) == [b"-a", b"-z"])


async def test_a_topic_that_is_made_later_is_found_soon(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """A sink may be started before whoever makes its topic, and does not wait for the next look at the cluster."""
    file = tmp_path / "out.txt"
    sinks = Sinks(kafka.bootstrap, sink_properties(topic_name, topic_name, file))
    async with sinks.running():
        await wait_until(lambda: partitions_of(sinks) == {0: 0})
        await produce_to_new(kafka.bootstrap, topic_name, b"late")
        await wait_until(lambda: lines_of(file) == [b"late"])


async def produce_to_new(bootstrap: str, topic: str, value: bytes) -> None:
    """A topic with one record."""
    await make_topic(bootstrap, topic)
    await produce(bootstrap, topic, [value])


async def test_poison_goes_to_the_dead_letters(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Records that are no UTF-8 go there with their bytes, key and time, and headers that say why; the rest goes on."""
    file, letters = tmp_path / "out.txt", f"{topic_name}-letters"
    sinks = Sinks(
        kafka.bootstrap,
        sink_properties(
            topic_name,
            topic_name,
            file,
            errors__tolerance="all",
            errors__deadletterqueue__topic__name=letters,
            errors__deadletterqueue__context__headers__enable="true",
        ),
    )
    await produce(kafka.bootstrap, topic_name, [b"good", b"\xff\xfe", b"better"], [b"k1", b"k2", b"k3"])
    async with sinks.running():
        await wait_until(lambda: len(lines_of(file)) == 2)
    assert lines_of(file) == [b"good", b"better"]
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == 3
    [letter] = await stored(kafka.bootstrap, letters)
    [_, original, _] = await stored(kafka.bootstrap, topic_name)
    assert (letter.key, letter.value, letter.timestamp) == (b"k2", b"\xff\xfe", original.timestamp)
    headers = dict(letter.headers)
    assert headers["__connect.errors.topic"] == topic_name.encode()
    assert headers["__connect.errors.partition"] == b"0"
    assert headers["__connect.errors.offset"] == b"1"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert headers["__connect.errors.connector.name"] == topic_name.encode()
    assert headers["__connect.errors.exception.message"] == b"not UTF-8 at byte 0"


async def test_lag_is_told(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """What lies behind the batch in hand, and zero at the end."""
    file = tmp_path / "out.txt"
    await produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(100)])
    properties = sink_properties(topic_name, topic_name, file, consumer__override__max__poll__records="10")
    sinks = Sinks(kafka.bootstrap, properties)
    async with sinks.running() as task:
        await wait_until(lambda: is_idle(task))
    lags = [event.records for event in sinks.events if isinstance(event, SinkLagMeasured)]
    assert lags[0] == 90
    assert lags[-1] == 0


def is_idle(task: SinkTask) -> bool:
    """Whether it has nothing to do."""
    return task.activity.idle_seconds is not None
