"""Whole workers in one process, on the real broker and over their real REST; only Spark is a stand-in."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pyarrow as pa

from service.app import RunningWorker, open_worker
from service.job import make_job
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.reader import read_topic
from spark_batch.plan import ConversionPlan, PlanFinding
from tests.cluster.worker_keys import group_properties
from tests.rest_client import LOOK_SECONDS, WAIT_SECONDS_MAX, RestClient
from tests.unit.pipeline.fakes import verdicts

TOPIC_LOOK_SECONDS = 0.4
"""Each look reads a topic from its beginning."""


class InstantConversion:
    """Takes every record for valid, at once."""

    is_ready = True

    async def run(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to end."""

    async def convert(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """Verdicts."""
        del is_alone
        return verdicts(plan, batch)

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """Nothing is wrong."""
        del plan
        return ()


class GatedConversion(InstantConversion):
    """Converts nothing while its gate is closed."""

    def __init__(self) -> None:
        """The gate is open."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()
        """Whether a micro-batch has come to the closed gate."""

    async def convert(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """Verdicts, once the gate is open."""
        if not self.gate.is_set():
            self.waiting.set()
            await self.gate.wait()
        return await super().convert(plan, batch, is_alone=is_alone)


class ClusterWorker(RestClient):
    """One worker and a client of it."""

    def __init__(self, running: RunningWorker, client: aiohttp.ClientSession) -> None:
        """Asks it at its own address."""
        super().__init__(running.addresses.rest, client)
        self.running = running


@dataclass
class Cluster:
    """Workers of one group, and what their connectors wrote."""

    bootstrap: str
    folder: Path
    name: str = field(default_factory=lambda: f"cluster-{uuid.uuid4().hex[:8]}")
    more: Mapping[str, str] = field(default_factory=dict)

    def properties(self, **more: str) -> dict[str, str]:
        """Of a worker."""
        return {**group_properties(self.bootstrap, self.name, data=self.folder), **self.more, **more}

    @asynccontextmanager
    async def worker(
        self,
        *connectors: Mapping[str, str],
        is_distributed: bool = True,
        conversion: InstantConversion | None = None,
        **more: str,
    ) -> AsyncIterator[ClusterWorker]:
        """A worker for the length of a block; ended as by SIGTERM."""
        job = make_job(self.properties(**{key.replace("_", "."): value for key, value in more.items()}), connectors)
        async with (
            open_worker(job, is_distributed=is_distributed, conversion=conversion or InstantConversion()) as running,
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
                    await asyncio.sleep(TOPIC_LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{len(found)} of {len(expected)} lines: {found[-3:]}") from None
