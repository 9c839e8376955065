"""Sink tasks as a worker runs them, on the real broker, and what they have written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from fetchers.catalog import shared_http
from fetchers.sdk import HttpDoor, SystemClock
from metrics.events import Event, TaskEvent
from service.domain.ids import TaskId
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.producer import IdempotentWriter
from service.kafka.reader import StoredRecord, read_topic
from service.kafka.records import TopicRecords
from service.pipeline.memory import MemoryBudget
from service.sinks.connectors import DefinedSink, SinkParts
from service.sinks.definition import SINKS
from service.sinks.task import SinkTask
from service.sinks.transforms.selecting import Spark
from service.worker.connectors import confirm_always
from service.worker.kinds import KindMaker
from service.worker.lending import ClientSettings
from service.worker.schemas import RegistrySchemas
from tests.unit.sinks.fakes import NoSpark

WAIT_SECONDS_MAX = 240.0
LOOK_SECONDS = 0.05
CALM = {"consumer.session.timeout.ms": "60000"}
"""Of tasks in this process, which take leave: a busy machine that keeps them waiting does not take partitions away."""
QUICK = {"consumer.override.session.timeout.ms": "6000"}
"""Of tasks in a process that is killed or frozen: so that the group soon notices."""


@dataclass
class Sinks:
    """Makes and runs tasks of one sink."""

    bootstrap: str
    properties: Mapping[str, str]
    registries: RegistrySchemas = field(default_factory=RegistrySchemas)
    flush_seconds: float = 60.0
    events: list[Event] = field(default_factory=list)
    spark: Spark = field(default_factory=NoSpark)

    async def task(self, number: int = 0, *, http: HttpDoor | None = None) -> SinkTask:
        """An incarnation of a task; nothing of it runs yet. ``http``: an open client, for sinks that ask by it."""
        clients = ClientSettings(CALM, self.bootstrap)
        parts = SinkParts(
            clients,
            self.registries,
            SystemClock(),
            self.events.append,
            MemoryBudget(2**30),
            http or shared_http(),
            self.spark,
            self.flush_seconds,
        )
        worker = {"key.converter": "string", "value.converter": "string"}
        kind = KindMaker(SINKS, worker, partial(DefinedSink, parts))
        task_id = TaskId(self.properties["name"], number)
        task = await kind.define(self.properties).prepare_task(task_id, lambda _topic: None, confirm_always)()
        assert isinstance(task, SinkTask)
        return task

    @asynccontextmanager
    async def running(self, number: int = 0) -> AsyncIterator[SinkTask]:
        """A task that runs while the block does; then it is asked to stop, and must."""
        async with shared_http() as http, asyncio.TaskGroup() as group:
            task = await self.task(number, http=http)
            group.create_task(task.run(), name=str(task.task_id))
            try:
                yield task
            finally:
                task.request_stop()

    def told(self, kind: type[TaskEvent]) -> list[TaskEvent]:
        """Events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


def sink_properties(name: str, topic: str, file: Path, **more: str) -> dict[str, str]:
    """A file sink's config; dots of keys as double underscores."""
    return {
        "name": name,
        "connector.class": "FileStreamSink",
        "topics": topic,
        "file": str(file),
        **{key.replace("__", "."): value for key, value in more.items()},
    }


async def make_topic(bootstrap: str, name: str, *, partitions: int = 1) -> None:
    """Create a topic."""
    async with KafkaAdmin.opened(KafkaSettings(bootstrap=bootstrap)) as admin:
        await admin.ensure_topic(name, partitions=partitions)


async def produce(
    bootstrap: str, topic: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None
) -> None:
    """Write values."""
    writer = IdempotentWriter(KafkaSettings(bootstrap=bootstrap), last_topic="")
    await writer.start()
    try:
        key_column = None if keys is None else pa.array(keys, pa.binary())
        await writer.commit([TopicRecords(topic, pa.array(values, pa.binary()), key_column)])
    finally:
        await writer.stop()


async def stored(bootstrap: str, topic: str) -> list[StoredRecord]:
    """Everything in a topic."""
    return [record async for batch in read_topic(KafkaSettings(bootstrap=bootstrap), topic) for record in batch]


async def wait_until(condition: Callable[[], bool], *, seconds_max: float = WAIT_SECONDS_MAX) -> None:
    """Look again and again; fails when the condition does not come true in time."""
    async with asyncio.timeout(seconds_max):
        while not condition():
            await asyncio.sleep(LOOK_SECONDS)


async def wait_until_found(condition: Callable[[], bool], *, seconds_max: float = WAIT_SECONDS_MAX) -> None:
    """The same in a thread, for what a server is asked: tasks of this process go on meanwhile."""
    async with asyncio.timeout(seconds_max):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(LOOK_SECONDS)


def lines_of(file: Path) -> list[bytes]:
    """The lines of a file, without their line feeds; none while there is no file."""
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []
