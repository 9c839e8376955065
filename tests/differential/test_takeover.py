"""A group changes hands: from Kafka Connect to headrace and back, with its connectors, states and offsets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from service.domain.states import TargetState
from service.embedded.ports import free_ports
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.reader import read_topic
from tests.cluster.processes import REAL, WorkerProcess, wait_for
from tests.differential.stores_between import TASK_CLASS, StoresBetween
from tests.faults.worker_life import write_properties
from tests.java_connect import PATIENT, opened_connect, worker_properties
from tests.rest_client import RestClient
from tests.stack import KafkaStack

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

EXACTLY_ONCE = {"exactly.once.source.support": "enabled"}
"""So that Connect repeats nothing either; headrace always does it so."""
SPARK_LOOKS_MAX = 300
CONNECT_STOP_SECONDS_MAX = 120.0
"""So that it commits the offsets of its sink on a busy machine too: who comes next would write lines twice."""
TOPIC_LOOK_SECONDS = 0.5
"""Each look reads a topic from its beginning."""
SOURCES = ("runs", "rests", "stands", "again", "leaves")
"""Connectors that read a file each into a topic each; besides them there are ``copies``, a sink, and two more later."""
RUNNING = {"": "RUNNING", "0": "RUNNING"}
PAUSED = {"": "PAUSED", "0": "PAUSED"}
STOPPED = {"": "STOPPED"}
NEVER = "stopped-1"
"""Created stopped, and named like a task."""
OURS = "ours"
"""Written by our stores alone."""


@dataclass(frozen=True, slots=True)
class Group:
    """What changes hands."""

    bootstrap: str
    spark_remote: str
    folder: Path
    name: str

    def file(self, connector: str) -> Path:
        """What a source reads, or what the sink ``copies`` writes."""
        return self.folder / f"{connector} in voller größe.txt"

    def topic(self, connector: str) -> str:
        """What a source writes."""
        return f"{self.name}-{connector}"

    def source(self, connector: str) -> dict[str, str]:
        """Its config."""
        names = {"file": str(self.file(connector)), "topic": self.topic(connector)}
        return {"name": connector, "connector.class": "FileStreamSource", "tasks.max": "1", **names}

    def sink(self) -> dict[str, str]:
        """Config of what copies the topic of ``runs``."""
        names = {"file": str(self.file("copies")), "topics": self.topic("runs")}
        return {"name": "copies", "connector.class": "FileStreamSink", "tasks.max": "1", **names}

    def append(self, *lines: str) -> None:
        """To every source's file."""
        for connector in SOURCES:
            with self.file(connector).open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)

    async def wait_records(self, connector: str, lines: Sequence[str]) -> None:
        """Until a topic holds these lines, each once and in order, as the default converter writes them."""
        expected = [{"schema": {"type": "string", "optional": False}, "payload": line} for line in lines]

        async def is_there() -> bool:
            found = await self._records(connector)
            assert found == expected[: len(found)]
            return len(found) == len(expected)

        await wait_for(is_there, f"{connector} has {len(expected)} records", look_seconds=TOPIC_LOOK_SECONDS)

    async def _records(self, connector: str) -> list[object]:
        try:
            batches = read_topic(KafkaSettings(bootstrap=self.bootstrap), self.topic(connector))
            return [json.loads(record.value or b"") async for records in batches for record in records]
        except DeliveryFatal:
            return []

    async def wait_copied(self, lines: Sequence[str]) -> None:
        """Until the sink has written them, each once."""
        expected = "".join(f"{line}\n" for line in lines)

        async def is_written() -> bool:
            found = self.file("copies").read_text(encoding="utf-8") if self.file("copies").exists() else ""
            assert expected.startswith(found), found
            return found == expected

        await wait_for(is_written, "copied")

    @asynccontextmanager
    async def in_connects_hands(self, folder: str) -> AsyncIterator[RestClient]:
        """One worker of Kafka Connect."""
        opened = opened_connect(
            self.folder / folder,
            bootstrap=self.bootstrap,
            group=self.name,
            overrides=EXACTLY_ONCE,
            stop_seconds_max=CONNECT_STOP_SECONDS_MAX,
        )
        async with opened as java, aiohttp.ClientSession() as client:
            yield RestClient(java.url, client)

    @asynccontextmanager
    async def in_our_hands(self) -> AsyncIterator[RestClient]:
        """One worker of headrace, as its operator starts it, from the same file but for the port."""
        (port,) = free_ports(1)
        properties = worker_properties(self.bootstrap, group=self.name, port=port)
        own = {"data.dir": str(self.folder / "data"), "spark.remote": self.spark_remote, **PATIENT}
        file = write_properties(self.folder / "headrace.properties", {**properties, **EXACTLY_ONCE, **own})
        async with aiohttp.ClientSession() as client:
            worker = WorkerProcess(file, f"http://127.0.0.1:{port}", client, command=REAL)
            try:
                worker.start()
                await _wait_spark(worker)
                yield worker
                assert await worker.stop() == 0
            finally:
                await worker.end()


async def wait_states(worker: RestClient, expected: Mapping[str, Mapping[str, str]]) -> None:
    """Until each connector is in these states, as told by this worker itself and not by the one before."""
    for connector, states in expected.items():
        own = {key: (state, worker.worker_id) for key, state in states.items()}
        await worker.wait_until(connector, own.__eq__)


async def _wait_spark(worker: WorkerProcess) -> None:
    """It starts beside everything else; on a busy machine that takes longer than a record should be waited for."""
    for _ in range(SPARK_LOOKS_MAX):
        await asyncio.sleep(1)
        if await worker.is_healthy() and (await worker.ask("GET", "/health/ready"))[0] == 200:
            return
    raise AssertionError(worker.log.read_text(encoding="utf-8")[-1000:])


async def wait_position(worker: RestClient, connector: str, expected: int) -> None:
    """Until a file source stands there: Connect may list partitions before it has read what it has just written."""

    async def is_there() -> bool:
        found = (await worker.done("GET", f"/connectors/{connector}/offsets"))["offsets"]
        return [entry["offset"]["position"] for entry in found] == [expected]

    await wait_for(is_there, f"{connector} at {expected}")


async def test_a_group_goes_from_connect_to_headrace_and_back(
    kafka: KafkaStack, spark_remote: str, tmp_path: Path, topic_name: str
) -> None:
    """What ran runs on where it stood, what rested rests, what was stopped is stopped: nothing lost or repeated."""
    group = Group(kafka.bootstrap, spark_remote, tmp_path, f"taken-{topic_name}")
    group.append("one", "two")
    async with group.in_connects_hands("before") as connect:
        await _begin(group, connect)
    await _demand_as_connect_left(group)
    group.append("three")
    async with group.in_our_hands() as headrace:
        await wait_states(headrace, {"runs": RUNNING, "copies": RUNNING, "rests": PAUSED, "stands": STOPPED})
        await group.wait_records("runs", ["one", "two", "three"])
        await group.wait_copied(["one", "two", "three"])
        assert await headrace.done("GET", "/connectors/runs/config") == group.source("runs")
        await wait_position(headrace, "stands", len("one\n"))
        await headrace.done("PUT", "/connectors/rests/resume", {})
        await group.wait_records("rests", ["one", "two", "three"])
        await headrace.done("PUT", "/connectors/runs/pause", {})
        await wait_states(headrace, {"runs": PAUSED, "rests": RUNNING, NEVER: STOPPED})
        await group.wait_records("again", ["one", "two", "three"])
    await _change_behind_their_backs(group)
    group.append("four")
    async with group.in_connects_hands("after") as connect:
        await wait_states(connect, {"runs": PAUSED, "copies": RUNNING, "rests": RUNNING, "stands": STOPPED})
        await group.wait_records("rests", ["one", "two", "three", "four"])
        await connect.done("PUT", "/connectors/runs/resume", {})
        await connect.done("PUT", "/connectors/stands/resume", {})
        await group.wait_records("runs", ["one", "two", "three", "four"])
        await group.wait_copied(["one", "two", "three", "four"])
        await group.wait_records("stands", ["one", "two", "two", "three", "four"])
        await group.wait_records("again", ["one", "two", "three", "three", "four"])
        await _demand_changed(group, connect)


async def _begin(group: Group, connect: RestClient) -> None:
    """Two lines are read by each; then one pauses, and one is stopped and set back by a line."""
    for config in (*map(group.source, SOURCES), group.sink()):
        await connect.done("PUT", f"/connectors/{config['name']}/config", config)
    never = {"name": NEVER, "config": group.source(NEVER), "initial_state": "STOPPED"}
    await connect.done("POST", "/connectors", never)
    for connector in SOURCES:
        await group.wait_records(connector, ["one", "two"])
    await group.wait_copied(["one", "two"])
    for connector in ("rests", "leaves"):
        await connect.done("PUT", f"/connectors/{connector}/pause", {})
    await connect.done("PUT", "/connectors/stands/stop", {})
    await wait_states(connect, {"runs": RUNNING, "copies": RUNNING, "rests": PAUSED, "leaves": PAUSED})
    await wait_states(connect, {"again": RUNNING, "stands": STOPPED, NEVER: STOPPED})
    back = {"partition": {"filename": str(group.file("stands"))}, "offset": {"position": len("one\n")}}
    await connect.done("PATCH", "/connectors/stands/offsets", {"offsets": [back]})
    await wait_position(connect, "runs", len("one\ntwo\n"))


async def _demand_as_connect_left(group: Group) -> None:
    """Running, paused and stopped connectors, states, topics, offsets and fencing counts are read right."""
    configs = {name: group.source(name) for name in (*SOURCES, NEVER)} | {"copies": group.sink()}
    other = {"rests": TargetState.PAUSED, "leaves": TargetState.PAUSED}
    other |= dict.fromkeys(("stands", NEVER), TargetState.STOPPED)
    async with StoresBetween.opened(group.bootstrap, group.name) as stores:
        stores.demand_states(configs, {**dict.fromkeys(configs, TargetState.STARTED), **other}, stopped=NEVER)
        await stores.demand_source(
            "runs", topic=group.topic("runs"), file=str(group.file("runs")), position=len("one\ntwo\n")
        )


def _ours(group: Group) -> dict[str, str]:
    return {**group.source(OURS), "connector.class": TASK_CLASS.replace("Task", "Connector")}


async def _change_behind_their_backs(group: Group) -> None:
    """A new connector, one removed, one set back by a line: what Connect finds was written by our stores."""
    async with StoresBetween.opened(group.bootstrap, group.name) as stores:
        await stores.put_paused(OURS, _ours(group))
        await stores.remove("leaves")
        await stores.set_back("again", file=str(group.file("again")), position=len("one\ntwo\n"))


async def _demand_changed(group: Group, connect: RestClient) -> None:
    """All of it is so for Connect."""
    kept = {*SOURCES, "copies", NEVER, OURS} - {"leaves"}
    assert sorted(await connect.done("GET", "/connectors")) == sorted(kept)
    assert await connect.done("GET", f"/connectors/{OURS}/config") == _ours(group)
    await wait_states(connect, {OURS: PAUSED, "again": RUNNING, NEVER: STOPPED})
    (task,) = await connect.done("GET", f"/connectors/{OURS}/tasks")
    assert task["config"]["topic"] == group.topic(OURS)
