"""Whole workers in one process, on the real broker and over their real REST; only Spark is a stand-in."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pyarrow as pa

from service.app import RunningWorker, open_worker
from service.config.job import make_job
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.reader import read_topic
from spark_batch.plan import ConversionPlan, Finding
from tests.unit.pipeline.fakes import verdicts

WAIT_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.1


class InstantConversion:
    """Takes every record for valid, at once."""

    async def run(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to end."""

    async def convert(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """Verdicts."""
        del is_alone
        return verdicts(plan, batch)

    async def check(self, plan: ConversionPlan) -> Sequence[Finding]:
        """Nothing is wrong."""
        del plan
        return ()


@dataclass
class ClusterWorker:
    """One worker and a client of it."""

    running: RunningWorker
    client: aiohttp.ClientSession

    @property
    def url(self) -> str:
        """Of its REST."""
        return self.running.addresses.rest

    @property
    def worker_id(self) -> str:
        """As states show it."""
        return self.url.partition("//")[2]

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and decoded body."""
        async with self.client.request(method, f"{self.url}{path}", json=body) as answer:
            return answer.status, await answer.json() if answer.content_length else None

    async def done(self, method: str, path: str, body: object = None) -> Any:
        """The body of a request that succeeds, if need be after some 409, as clients do it."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True:
                status, answer = await self.ask(method, path, body)
                if status < 300:
                    return answer
                assert status == 409, (status, answer)
                await asyncio.sleep(LOOK_SECONDS)

    async def states(self, name: str) -> dict[str, tuple[str, str]]:
        """State and worker of the connector (``""``) and of each task; nothing where there is no status."""
        status, body = await self.ask("GET", f"/connectors/{quote(name, safe='')}/status")
        if status == 404:
            return {}
        tasks = {str(task["id"]): (task["state"], task["worker_id"]) for task in body["tasks"]}
        return {"": (body["connector"]["state"], body["connector"]["worker_id"]), **tasks}

    async def wait_states(self, name: str, expected: Mapping[str, str]) -> None:
        """Until the connector and its tasks are in these states."""
        await self.wait_until(name, lambda states: {key: state for key, (state, _) in states.items()} == expected)

    async def wait_until(self, name: str, is_so: Callable[[dict[str, tuple[str, str]]], bool]) -> None:
        """Until the states of a connector are so."""
        seen: dict[str, tuple[str, str]] = {}
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not is_so(seen := await self.states(name)):
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{name} stays {seen}") from None


@dataclass
class Cluster:
    """Workers of one group, and what their connectors wrote."""

    bootstrap: str
    folder: Path
    name: str = field(default_factory=lambda: f"cluster-{uuid.uuid4().hex[:8]}")
    more: Mapping[str, str] = field(default_factory=dict)

    def properties(self, **more: str) -> dict[str, str]:
        """Of a worker."""
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.name,
            "config.storage.topic": f"{self.name}-configs",
            "offset.storage.topic": f"{self.name}-offsets",
            "offset.storage.partitions": "3",
            "status.storage.topic": f"{self.name}-status",
            "status.storage.partitions": "2",
            "dedupe.storage.topic": f"{self.name}-dedupe",
            "data.dir": str(self.folder),
            "listeners": "http://127.0.0.1:0",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            **self.more,
            **more,
        }

    @asynccontextmanager
    async def worker(
        self, *connectors: Mapping[str, str], is_distributed: bool = True, **more: str
    ) -> AsyncIterator[ClusterWorker]:
        """A worker for the length of a block; ended as by SIGTERM."""
        job = make_job(self.properties(**{key.replace("_", "."): value for key, value in more.items()}), connectors)
        async with (
            open_worker(job, is_distributed=is_distributed, conversion=InstantConversion()) as running,
            aiohttp.ClientSession() as client,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(running.worker.run())
            worker = ClusterWorker(running, client)
            await self._wait_healthy(worker)
            try:
                yield worker
            finally:
                running.worker.request_stop("test")

    async def _wait_healthy(self, worker: ClusterWorker) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while (await worker.ask("GET", "/health"))[0] != 200:
                await asyncio.sleep(LOOK_SECONDS)

    def file(self, lines: Sequence[str], *, name: str = "lines.txt") -> Path:
        """A file that ends with a whole line."""
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    def source(self, path: Path, **more: str) -> dict[str, str]:
        """Config of a file source; its topic is named after the file."""
        topic = f"{self.name}-{path.stem}"
        return {"connector.class": "FileStreamSource", "file": str(path), "topic": topic, "tasks.max": "1", **more}

    async def lines(self, path: Path) -> list[str]:
        """What consumers of committed records see."""
        found: list[str] = []
        try:
            async for records in read_topic(KafkaSettings(bootstrap=self.bootstrap), f"{self.name}-{path.stem}"):
                found += [(record.value or b"").decode() for record in records]
        except DeliveryFatal:
            return []
        return found

    async def wait_lines(self, path: Path, expected: Sequence[str]) -> None:
        """Until exactly these are there."""
        found: list[str] = []
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while (found := await self.lines(path)) != list(expected):
                    assert len(found) <= len(expected), found
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{len(found)} of {len(expected)} lines: {found[-3:]}") from None
