"""Workers of one group, each a process that can be killed, frozen and restarted, under a load that must arrive once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

from service.embedded.ports import free_ports
from service.kafka.client import KafkaSettings
from service.kafka.reader import read_topic
from tests.bound import bound
from tests.cluster.arrivals import Arrivals
from tests.cluster.worker_keys import group_properties
from tests.faults.numbered_lines import GrowingFile, line
from tests.faults.worker_life import ROOT, write_properties
from tests.rest_client import LOOK_SECONDS, WAIT_SECONDS_MAX, RestClient

SESSION_SECONDS = 6
"""The least that brokers allow by default."""
CALM_SESSION_MS = "30000"
"""For workers of which none is killed or frozen: a busy machine does not put them out of their group either."""
STOP_SECONDS_MAX = 180.0
READY_SECONDS_MAX = 300.0
"""Spark of several workers may start at once, on few cores."""
LINES_PER_SECOND = 100
RUNNING = {"": "RUNNING", "0": "RUNNING"}
INSTANT = ("-m", "tests.cluster.worker_process")
REAL = ("-m", "service.cli", "worker")


class WorkerProcess(RestClient):
    """A worker that keeps its address over restarts, as a worker on a host does."""

    def __init__(self, file: Path, url: str, client: aiohttp.ClientSession, *, command: tuple[str, ...]) -> None:
        """Nothing runs yet."""
        super().__init__(url, client)
        self.process: subprocess.Popen[bytes] | None = None
        self._command = bound([sys.executable, *command, str(file)])
        self._python_path = os.pathsep.join([str(ROOT), str(file.parent)])
        self.log = file.with_suffix(".log")

    def start(self) -> None:
        """Begin; see ``wait_healthy``."""
        environment = {**os.environ, "PYTHONPATH": self._python_path}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self.process is not None:
            self.process.send_signal(number)

    async def stop(self) -> int:
        """As by an operator; its exit code."""
        self.signal(signal.SIGTERM)
        return await self.wait_ended()

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.signal(signal.SIGKILL)
        await self.wait_ended()

    async def end(self) -> None:
        """Leave nothing behind, whatever it is doing."""
        if self.process is not None and self.process.poll() is None:
            await self.kill()

    async def wait_ended(self) -> int:
        """Its exit code."""
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, STOP_SECONDS_MAX)

    async def persist(self, method: str, path: str, body: object = None) -> None:
        """Ask until it is told that it is so, as a client does that is tried by a cluster in turmoil."""

        async def is_done() -> bool:
            try:
                status, _ = await self.ask(method, path, body)
            except (aiohttp.ClientError, TimeoutError):
                return False
            assert status < 400 or status in {404, 409} or status >= 500, status
            return status < 400 or (status == 404 and method == "DELETE")

        await wait_for(is_done, f"{method} {path}")

    async def is_healthy(self) -> bool:
        """Whether it answers that all is well; what has ended by itself never will."""
        assert self.process is None or self.process.poll() is None, self.log.read_text()[-1000:]
        return await self._says_ok("/health")

    async def is_ready(self) -> bool:
        """Whether it is in the group and can convert: what a rollout waits for before it goes on."""
        return await self._says_ok("/health/ready")

    async def _says_ok(self, path: str) -> bool:
        try:
            return (await self.ask("GET", path))[0] == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def wait_healthy(self) -> None:
        """Until it is at work."""
        await wait_for(self.is_healthy, f"{self.url} healthy")

    async def wait_ready(self, *, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Until the next worker may be restarted."""
        await self.wait_healthy()
        await wait_for(self.is_ready, f"{self.url} ready", seconds_max=seconds_max)

    def events(self, name: str) -> list[dict[str, Any]]:
        """What it has logged under this name, in all its lives."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        # The last one may be half written.
        events = [json.loads(text) for text in lines if text.startswith('{"') and text.endswith("}\n")]
        return [event for event in events if event.get("event") == name]


async def wait_for(
    condition: Callable[[], Awaitable[bool]],
    what: str,
    *,
    seconds_max: float = WAIT_SECONDS_MAX,
    look_seconds: float = LOOK_SECONDS,
) -> None:
    """Look again and again."""
    try:
        async with asyncio.timeout(seconds_max):
            while not await condition():
                await asyncio.sleep(look_seconds)
    except TimeoutError:
        raise AssertionError(f"not {what}") from None


@dataclass
class Load:
    """A connector, the file that it reads, and its topic."""

    name: str
    file: GrowingFile
    topic: str
    arrivals: Arrivals

    @property
    def lines(self) -> list[bytes]:
        """All that is in the file."""
        return [line(number) for number in range(self.file.lines)]


@dataclass
class Field:
    """The workers, and what runs on them. Use ``opened``."""

    bootstrap: str
    folder: Path
    client: aiohttp.ClientSession
    stack: AsyncExitStack
    command: tuple[str, ...] = INSTANT
    more: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"fire-{uuid.uuid4().hex[:8]}")
    workers: list[WorkerProcess] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, bootstrap: str, folder: Path, *, command: tuple[str, ...] = INSTANT, **more: str
    ) -> AsyncIterator[Self]:
        """Without a worker yet; at the end nothing is left of it, whatever has happened."""
        keys = {key.replace("_", "."): value for key, value in more.items()}
        async with aiohttp.ClientSession() as client, AsyncExitStack() as stack:
            yield cls(bootstrap, folder, client, stack, command, keys)

    def _properties(self, port: int) -> dict[str, str]:
        return {
            **group_properties(self.bootstrap, self.name, data=self.folder / f"data-{port}", port=port),
            "session.timeout.ms": str(SESSION_SECONDS * 1000),
            "log.format": "json",
            "topic.creation.default.partitions": "1",
            **self.more,
        }

    def prepare(self, count: int) -> list[WorkerProcess]:
        """So many more workers, not started."""
        new = []
        for port in free_ports(count):
            file = write_properties(self.folder / f"worker-{port}.properties", self._properties(port))
            new.append(WorkerProcess(file, f"http://127.0.0.1:{port}", self.client, command=self.command))
            self.stack.push_async_callback(new[-1].end)
        return new

    async def start(self, count: int) -> list[WorkerProcess]:
        """So many more workers, at work on return."""
        new = self.prepare(count)
        for worker in new:
            worker.start()
        for worker in new:
            await worker.wait_healthy()
        self.workers += new
        return new

    def idle_source(self, name: str) -> dict[str, str]:
        """Config of a source whose file has one line and does not grow."""
        path = self.folder / f"{name}.txt"
        path.write_bytes(line(1) + b"\n")
        return {
            "connector.class": "FileStreamSource",
            "file": str(path),
            "topic": f"{self.name}-{name}",
            "tasks.max": "1",
        }

    async def sink(self, load: Load) -> Path:
        """A file sink on the topic of a load; returns its file."""
        copy = self.folder / f"{load.name}.copy"
        config = {"connector.class": "FileStreamSink", "file": str(copy), "topics": load.topic, "tasks.max": "1"}
        await self.workers[0].done("POST", "/connectors", {"name": f"sink-{load.name}", "config": config})
        await self.workers[0].wait_states(f"sink-{load.name}", RUNNING)
        return copy

    async def demand_copied(self, load: Load, copy: Path) -> None:
        """The sink's file becomes what the source's is, byte for byte."""
        expected = load.file.path.read_bytes()

        async def is_whole() -> bool:
            return copy.exists() and copy.stat().st_size >= len(expected)

        await wait_for(is_whole, f"{copy} whole")
        assert copy.read_bytes() == expected

    async def load(self, count: int, **more: str) -> list[Load]:
        """So many more file sources, RUNNING on return; their files grow until ``demand_all_once``."""
        new = [self._new_load() for _ in range(count)]
        for number, each in enumerate(new):
            config = {
                "connector.class": "FileStreamSource",
                "file": str(each.file.path),
                "topic": each.topic,
                "tasks.max": "1",
                "poll.interval.ms": "100",
                **{key.replace("_", "."): value for key, value in more.items()},
            }
            worker = self.workers[number % len(self.workers)]
            await worker.done("POST", "/connectors", {"name": each.name, "config": config})
        for each in new:
            await self.workers[0].wait_states(each.name, RUNNING)
        return new

    def _new_load(self) -> Load:
        name = f"c{len(self.loads)}"
        file = GrowingFile(self.folder / f"{name}.txt", lines_per_second=LINES_PER_SECOND)
        topic = f"{self.name}-{name}"
        load = Load(name, file, topic, Arrivals(self.bootstrap, topic))
        self.stack.push_async_callback(load.arrivals.close)
        load.file.append(1)
        self.stack.enter_context(load.file.growing())
        self.loads.append(load)
        return load

    async def leader(self) -> WorkerProcess:
        """Who leads, by what the workers have logged of the last round."""
        rounds = [event for worker in self.workers for event in worker.events("group_round_ended")]
        url = max(rounds, key=lambda event: event["generation"])["leader"].rstrip("/")
        return next(worker for worker in self.workers if worker.url == url)

    async def owners(self, asked: RestClient) -> dict[str, str]:
        """Worker of the task of each load, as ``asked`` knows; empty text where it does not run."""
        states = {load.name: (await asked.states(load.name)).get("0", ("", "")) for load in self.loads}
        return {name: worker if state == "RUNNING" else "" for name, (state, worker) in states.items()}

    async def wait_owned(self, asked: RestClient, by: list[WorkerProcess]) -> dict[str, str]:
        """Until everything runs on these, evenly to within one."""
        found: dict[str, str] = {}
        names = [worker.worker_id for worker in by]

        async def is_so() -> bool:
            nonlocal found
            found = await self.owners(asked)
            counts = [list(found.values()).count(name) for name in names]
            return sum(counts) == len(found) and max(counts) - min(counts) <= 1

        try:
            await wait_for(is_so, "spread evenly")
        except AssertionError:
            raise AssertionError(f"stays {found}, not on {names}") from None
        return found

    async def wait_growth(self, loads: list[Load] | None = None) -> None:
        """Until lines that are written from now on have arrived, of each of these (of all)."""
        wanted = [(load, load.file.lines + 1) for load in (self.loads if loads is None else loads)]
        for load, lines in wanted:
            await self.wait_arrived(load, lines)

    async def wait_arrived(self, load: Load, lines: int) -> None:
        """Until there are so many."""

        async def are_there() -> bool:
            return await load.arrivals.count() >= lines

        await wait_for(are_there, f"{lines} lines of {load.name}")

    async def arrived(self, load: Load) -> list[bytes]:
        """What a consumer of committed records sees, in order."""
        batches = read_topic(KafkaSettings(bootstrap=self.bootstrap), load.topic)
        return [record.value or b"" async for records in batches for record in records]

    async def demand_all_once(self) -> None:
        """No more is written; every line of every file arrives, once, in order."""
        for load in self.loads:
            load.file.stop()
        for load in self.loads:
            expected = load.lines
            await self.wait_arrived(load, len(expected))
            found = await self.arrived(load)
            assert found == expected, _difference(load.name, found, expected)


def _difference(name: str, found: list[bytes], expected: list[bytes]) -> str:
    first = next((at for at, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), -1)
    return f"{name}: {len(found)} of {len(expected)}, {len(set(expected) - set(found))} lost, first difference {first}"
