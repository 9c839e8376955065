"""File connectors as instances on a real broker: Java's task configs run, no transition loses or repeats a line."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from metrics.events import Event, TaskStarted
from service.config.definition import SOURCES
from service.config.worker import WorkerConfig
from service.control import version_of
from service.domain.cluster import Properties
from service.domain.errors import Recovery, TaskSupersededError
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.ports import Desired
from service.kafka.client import KafkaSettings
from service.kafka.reader import read_topic
from service.pipeline.memory import MemoryBudget
from service.pipeline.task import FlowParts
from service.stores.connector_offsets import OffsetTopics
from service.stores.dedupe_store import DedupeStore
from service.stores.offsets import OffsetStore
from service.worker import instances as running_instances
from service.worker.connectors import ConnectorParts
from service.worker.instances import InstanceParts, RunningInstances
from service.worker.kinds import KindMaker, Kinds
from service.worker.lending import ClientSettings, DedupeStates, Writers
from service.worker.schemas import RegistrySchemas
from service.worker.sources import DefinedSource
from service.worker.topics import ConnectorTopics
from tests.stack import KafkaStack
from tests.unit.pipeline.fakes import FakeConversion, InThreads

pytestmark = pytest.mark.integration
JAVA_TASK = "org.apache.kafka.connect.file.FileStreamSourceTask"
WAIT_SECONDS = 180


@dataclass
class Site:
    """A worker's instances on a broker, and what they told."""

    bootstrap: str
    folder: Path
    topic: str
    states: dict[InstanceId, list[State]] = field(default_factory=dict)
    traces: list[str] = field(default_factory=list)
    configs: list[Sequence[Properties]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    superseded: set[int] = field(default_factory=set)
    """Generations of tasks that the config log no longer asks for."""

    async def confirm(self, task: TaskId, begun: Desired) -> None:
        """See ``InstanceParts``."""
        if begun.generation in self.superseded:
            message = f"{task} has newer configs"
            raise TaskSupersededError(message)

    def on_state(
        self,
        instance: InstanceId,
        state: State,
        *,
        trace: str | None,
        version: str | None,
        failure: Recovery | None = None,
    ) -> None:
        """See ``InstanceObserver``."""
        del version, failure
        self.states.setdefault(instance, []).append(state)
        self.traces.extend([trace] if trace else [])

    def on_task_configs(self, connector: ConnectorId, tasks: Sequence[Properties], made_from: Properties) -> None:
        """See ``InstanceObserver``."""
        del connector, made_from
        self.configs.append(tasks)

    def on_topic(self, task: TaskId, topic: str) -> None:
        """See ``InstanceObserver``."""
        del task
        self.topics.append(topic)

    @asynccontextmanager
    async def instances(self) -> AsyncIterator[RunningInstances]:
        """As the composition root makes them, Spark aside."""
        properties = {"bootstrap.servers": self.bootstrap, "group.id": self.topic, "value.converter": "string"}
        properties["key.converter"] = "string"
        config = WorkerConfig.parse({**properties, "offset.storage.topic": f"{self.topic}-offsets"}).config
        assert config is not None
        clients, clock = ClientSettings(properties, self.bootstrap), SystemClock()
        offsets = OffsetTopics(clients.of("consumer"), config.offset_storage_topic)
        dedupe = DedupeStore(clients.of("consumer"), f"{self.topic}-dedupe")
        topics = ConnectorTopics(clients.of("admin"), offsets, dedupe, config)
        async with shared_http() as http, RegistrySchemas() as schemas:
            parts = ConnectorParts(
                flow=FlowParts(
                    offsets.of(), FakeConversion(), http, MemoryBudget(2**30), clock, self.events.append, InThreads()
                ),
                offsets=offsets,
                writers=Writers(clients, config.group_id, config.offset_storage_topic),
                dedupe=DedupeStates(dedupe, self.folder / "dedupe"),
                schemas=schemas,
                topics=topics,
                check_plan=FakeCheck(),
            )
            kinds = Kinds([KindMaker(SOURCES, properties, partial(DefinedSource, parts))])
            lent = InstanceParts(
                kinds, self.confirm, self, clock, self.events.append, 30.0, partial(version_of, worker={})
            )
            async with RunningInstances(lent) as instances:
                yield instances
                await instances.stop()
        await topics.close()
        await offsets.close()

    async def values(self) -> list[bytes | None]:
        """All committed values."""
        settings = KafkaSettings(bootstrap=self.bootstrap)
        return [record.value async for batch in read_topic(settings, self.topic) for record in batch]

    async def wait_values(self, count: int) -> None:
        """Until a task has run, which makes the topic, and so many are there."""
        await self.wait(lambda: State.RUNNING in self.states.get(TaskId("c", 0), []))
        async with asyncio.timeout(WAIT_SECONDS):
            while len(await self.values()) < count:
                await asyncio.sleep(0.2)

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Until it holds."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                await asyncio.sleep(0.05)


class FakeCheck:
    """Finds nothing wrong with a plan."""

    async def __call__(self, plan: object) -> tuple[()]:
        """No finding."""
        del plan
        return ()


def append(file: Path, lines: range) -> None:
    """More lines at the end of the file."""
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(f"{line}\n" for line in lines)


async def test_a_task_config_of_java_connect_runs_as_it_is(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """With the connector's config under Java's class name; the topic in use is told."""
    site, file = Site(kafka.bootstrap, tmp_path, topic_name), tmp_path / "in.txt"
    append(file, range(5))
    config = {
        "name": "c",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic_name,
    }
    async with site.instances() as instances:
        instances.apply("c", {ConnectorId("c"): Desired(config, TargetState.STARTED)})
        await site.wait(lambda: bool(site.configs))
        assert [dict(task) for task in site.configs[0]] == [{**config, "task.class": JAVA_TASK}]
        written_by_java = json.loads(json.dumps({**config, "task.class": JAVA_TASK, "batch.size": "2000"}))
        instances.apply("c", {TaskId("c", 0): Desired(config, TargetState.STARTED, written_by_java, 1)})
        await site.wait_values(5)
        await site.wait(lambda: site.topics == [topic_name])
        assert await site.values() == [str(line).encode() for line in range(5)]
    assert site.traces == []


async def test_no_transition_loses_or_repeats_a_line(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Lines are written all the while the task is paused, resumed, restarted and reconfigured in haste."""
    site, file, task_id = Site(kafka.bootstrap, tmp_path, topic_name), tmp_path / "in.txt", TaskId("c", 0)
    config = {"name": "c", "connector.class": "FileStreamSource", "file": str(file), "topic": topic_name}

    def desired(target: TargetState = TargetState.STARTED, generation: int = 1) -> dict[InstanceId, Desired]:
        return {task_id: Desired({**config, "poll.interval.ms": "10"}, target, {"batch.size": "7"}, generation)}

    async with site.instances() as instances:
        append(file, range(100))
        instances.apply("c", desired())
        await site.wait_values(100)
        for step in range(8):
            append(file, range(100 + step * 50, 150 + step * 50))
            instances.apply(
                "c", desired(TargetState.PAUSED if step % 2 else TargetState.STARTED, generation=1 + step // 2)
            )
            instances.restart([task_id] if step == 4 else [])
            await asyncio.sleep(0.3)
        instances.apply("c", desired(TargetState.PAUSED, 9))
        await site.wait(lambda: site.states[task_id][-1] is State.PAUSED)
        assert instances.idle_seconds == math.inf
        instances.apply("c", desired(generation=10))
        await site.wait_values(500)
    assert await site.values() == [str(line).encode() for line in range(500)]
    assert State.FAILED not in site.states[task_id]
    assert site.states[task_id][-1] is State.UNASSIGNED


async def test_a_connector_goes_on_with_an_offset_topic_of_its_own_and_without(
    kafka: KafkaStack, topic_name: str, tmp_path: Path
) -> None:
    """Given one, or deprived of it again, a task begins where it has ended."""
    site, file, task_id = Site(kafka.bootstrap, tmp_path, topic_name), tmp_path / "in.txt", TaskId("c", 0)
    config = {"name": "c", "connector.class": "FileStreamSource", "file": str(file), "topic": topic_name}
    own = {**config, "offsets.storage.topic": f"{topic_name}-own"}
    async with site.instances() as instances:
        for generation, made_from in enumerate((config, own, config), start=1):
            append(file, range(5 * generation - 5, 5 * generation))
            instances.apply("c", {task_id: Desired(made_from, TargetState.STARTED, {}, generation)})
            await site.wait_values(5 * generation)
    assert await site.values() == [str(line).encode() for line in range(15)]
    assert site.topics == [topic_name] * 3
    settings = KafkaSettings(bootstrap=kafka.bootstrap)
    positions = {}
    for topic in (f"{topic_name}-offsets", f"{topic_name}-own"):
        store = OffsetStore(settings, topic)
        positions[topic] = [offset["position"] for _, offset in await store.entries("c")]
        await store.close()
    written = file.read_bytes()
    assert positions == {
        f"{topic_name}-offsets": [len(written)],
        f"{topic_name}-own": [written.index(b"10\n")],
    }


async def test_fenced_by_a_newer_incarnation_elsewhere_it_ends_quietly(
    kafka: KafkaStack, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other worker goes on where this one was; here nothing is FAILED once the task is no longer wanted."""
    monkeypatch.setattr(running_instances, "FENCED_GRACE_SECONDS", 600.0)
    here, there = (Site(kafka.bootstrap, tmp_path, topic_name) for _ in range(2))
    file, task_id = tmp_path / "in.txt", TaskId("c", 0)
    config = {"name": "c", "connector.class": "FileStreamSource", "file": str(file), "topic": topic_name}
    desired: dict[InstanceId, Desired] = {task_id: Desired(config, TargetState.STARTED, {}, 1)}
    append(file, range(10))
    async with here.instances() as old, there.instances() as new:
        old.apply("c", desired)
        await here.wait_values(10)
        new.apply("c", desired)
        await there.wait(lambda: there.states.get(task_id) == [State.RUNNING])
        append(file, range(10, 20))
        await there.wait_values(20)
        old.apply("c", {})
        await here.wait(lambda: here.states[task_id][-1] is State.UNASSIGNED)
    assert await there.values() == [str(line).encode() for line in range(20)]
    assert here.states[task_id] == [State.RUNNING, State.UNASSIGNED]
    assert here.traces == []


async def test_work_that_has_moved_to_a_task_of_another_number_is_not_begun_again_by_a_worker_cut_off(
    kafka: KafkaStack, topic_name: str, tmp_path: Path
) -> None:
    """Nothing that the other task does fences this one: started again as it was, it would deliver every line too."""
    here, there = (Site(kafka.bootstrap, tmp_path, topic_name) for _ in range(2))
    file, before, after = tmp_path / "in.txt", TaskId("c", 1), TaskId("c", 0)
    config = {"name": "c", "connector.class": "FileStreamSource", "file": str(file), "topic": topic_name}
    append(file, range(10))
    async with here.instances() as old, there.instances() as new:
        old.apply("c", {before: Desired(config, TargetState.STARTED, {}, 1)})
        await here.wait(lambda: here.states.get(before) == [State.RUNNING])
        async with asyncio.timeout(WAIT_SECONDS):
            while len(await here.values()) < 10:
                await asyncio.sleep(0.2)
        here.superseded.add(1)
        new.apply("c", {after: Desired(config, TargetState.STARTED, {}, 2)})
        await there.wait(lambda: there.states.get(after) == [State.RUNNING])
        old.restart([before])
        await here.wait(lambda: any(not event.is_success for event in here.events if isinstance(event, TaskStarted)))
        append(file, range(10, 20))
        await there.wait_values(20)
        old.apply("c", {})
    assert await there.values() == [str(line).encode() for line in range(20)]
    assert here.traces == []
