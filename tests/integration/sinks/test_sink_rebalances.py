"""Rebalances on the real broker, with a sink that takes its time to open: no record is passed over.

The client library makes a new assignment live before its listener has been awaited, so records may come while the
sink still opens: what is polled then would be put before the position that ``open`` asked for, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Retriable, SystemClock
from metrics.events import discard
from service.domain.ids import TaskId
from service.kafka.client import ConsumerSettings, KafkaSettings
from service.kafka.group_consumer import GroupConsumer, GroupListener, Subscription
from service.pipeline.memory import MemoryBudget
from service.sinks.connectors import SinkParts, sink_task
from service.sinks.contract import Offsets, Partition, SinkBatch, SinkConfig, SinkConnector
from service.sinks.definition import read_sink_definition
from service.sinks.task import SinkTask
from service.worker.lending import ClientSettings
from service.worker.schemas import RegistrySchemas
from tests.integration.sinks.sink_runs import make_topic, produce, sink_properties, stored, wait_until
from tests.stack import KafkaStack
from tests.unit.sinks.fakes import NoSpark

pytestmark = pytest.mark.integration
RECORDS = 40
PREMATURE_SECONDS = 2.0
"""So long an ``open`` gives records a chance to come before it has ended."""


class SlowListener:
    """Gives records two seconds to come before they should, then asks for offset 5."""

    def __init__(self) -> None:
        self.is_placing = False
        self.premature = asyncio.Event()
        self.assignments = 0

    async def on_revoked(self, partitions: Collection[Partition]) -> None:
        """Nothing to make durable."""

    async def on_assigned(self, committed: Mapping[Partition, int | None]) -> Offsets:
        """Take the time."""
        self.is_placing = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self.premature.wait(), PREMATURE_SECONDS)
        self.is_placing = False
        self.assignments += 1
        return dict.fromkeys(committed, 5)


async def test_nothing_comes_before_the_listener_has_said_where_to_begin(kafka: KafkaStack, topic_name: str) -> None:
    """The first record is the one that was asked for, however long the listener takes."""
    await make_topic(kafka.bootstrap, topic_name)
    await produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(10)])
    listener = SlowListener()
    settings = KafkaSettings(bootstrap=kafka.bootstrap, consumer=ConsumerSettings(session_seconds_max=60.0))
    consumer = GroupConsumer(settings, Subscription((topic_name,)), group_id=topic_name, listener=listener)
    await consumer.start()
    try:
        offsets: list[int] = []
        async with asyncio.timeout(300):
            while not offsets or offsets[-1] < 9:
                table = await consumer.poll(seconds_max=0.2)
                if table is not None:
                    offsets += cast("list[int]", table.column("offset").to_pylist())
                if table is not None and listener.is_placing:
                    listener.premature.set()
    finally:
        await consumer.stop()
    assert offsets == [5, 6, 7, 8, 9]
    assert not listener.premature.is_set()


class HeldConfig(SinkConfig):
    """Nothing to configure."""


class HeldSink(SinkConnector[HeldConfig]):
    """Is away until released; from its second assignment on it opens slowly."""

    def __init__(self) -> None:
        super().__init__(HeldConfig.model_validate({}))
        self.is_released = False
        self.tries = 0
        self.put_offsets: list[int] = []
        self.kept: list[Partition] = []
        self.opened = 0
        self.premature = asyncio.Event()

    @property
    def is_opening(self) -> bool:
        """Whether it is taking its time."""
        return len(self.kept) != self.opened

    async def open(self, partitions: Mapping[Partition, int | None]) -> Offsets:
        """Take the time, but for the first assignment."""
        self.kept = []
        self.opened = len(partitions)
        if len(partitions) == 1:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.premature.wait(), PREMATURE_SECONDS)
        self.kept = list(partitions)
        return {}

    async def put(self, batch: SinkBatch) -> None:
        """Keep the offsets."""
        self.tries += 1
        if not self.is_released:
            raise Retriable("away", wait_seconds=0.5)
        self.put_offsets += cast("list[int]", batch.records.column("offset").to_pylist())


class WatchedConsumer(GroupConsumer):
    """Tells the sink of records that come while it opens."""

    sink: HeldSink

    async def poll(self, *, seconds_max: float) -> pa.Table | None:
        """As it is."""
        table = await super().poll(seconds_max=seconds_max)
        if table is not None and self.sink.is_opening:
            self.sink.premature.set()
        return table


async def test_a_rebalance_while_a_put_is_tried_again_passes_over_nothing(
    kafka: KafkaStack, topic_name: str, tmp_path: Path
) -> None:
    """Another member joins while the sink is away; when it is back it gets every record of what it has kept."""
    await make_topic(kafka.bootstrap, topic_name, partitions=2)
    keys: list[bytes | None] = [b"%d" % number for number in range(RECORDS)]
    await produce(kafka.bootstrap, topic_name, keys, keys)
    sink = HeldSink()
    task, group_id = await held_task(sink, kafka.bootstrap, topic_name, tmp_path)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(task.run())
        await wait_until(lambda: sink.tries > 0)
        other = group.create_task(be_member(kafka.bootstrap, group_id, topic_name))
        await wait_until(lambda: len(sink.kept) == 1)
        sink.is_released = True
        [(_, partition)] = sink.kept
        records = await stored(kafka.bootstrap, topic_name)
        expected = [record.offset for record in records if record.partition == partition]
        await wait_until(lambda: len(sink.put_offsets) >= len(expected) or running.done())
        other.cancel()
        task.request_stop()
    assert sink.put_offsets == expected
    assert not sink.premature.is_set()


async def held_task(sink: HeldSink, bootstrap: str, topic: str, folder: Path) -> tuple[SinkTask, str]:
    """A task of this sink that polls three records at a time, and its group."""
    text = {"key.converter": "string", "value.converter": "string"}
    definition = read_sink_definition(sink_properties(topic, topic, folder / "out.txt"), worker=text).definition
    assert definition is not None
    parts = SinkParts(
        ClientSettings({}, bootstrap),
        RegistrySchemas(),
        SystemClock(),
        discard,
        MemoryBudget(2**30),
        shared_http(),
        NoSpark(),
    )
    task = await sink_task(TaskId(topic, 0), definition, parts, connector=sink)
    settings = KafkaSettings(
        bootstrap=bootstrap, consumer=ConsumerSettings(poll_records_max=3, session_seconds_max=60.0)
    )

    def open_consumer(listener: GroupListener) -> GroupConsumer:
        consumer = WatchedConsumer(settings, definition.subscription, group_id=definition.group_id, listener=listener)
        consumer.sink = sink
        return consumer

    task.open_consumer = open_consumer
    return task, definition.group_id


async def be_member(bootstrap: str, group_id: str, topic: str) -> None:
    """Take a share of the partitions and do nothing with it, until cancelled."""
    settings = KafkaSettings(bootstrap=bootstrap, consumer=ConsumerSettings(session_seconds_max=60.0))
    consumer = GroupConsumer(settings, Subscription((topic,)), group_id=group_id, listener=SlowListener())
    await consumer.start()
    try:
        while True:
            await consumer.poll(seconds_max=0.2)
    finally:
        await consumer.stop()
