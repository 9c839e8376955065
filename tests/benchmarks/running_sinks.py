"""A worker of headrace with one sink, from its creation on, and how far that is by what its target says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import aiohttp

from service.embedded.ports import free_ports
from tests.benchmarks.processes import Child, headrace
from tests.benchmarks.throughput import Field
from tests.benchmarks.watching import POLL_SECONDS, WAIT_SECONDS_MAX, Passage, Sample, processor_seconds
from tests.rest_client import LOOK_SECONDS, RestClient

Count = Callable[[], Awaitable[int]]
"""How many records the target has."""
READY_SECONDS_MAX = 300.0


@asynccontextmanager
async def running_sink(field: Field, name: str, properties: Mapping[str, str]) -> AsyncIterator[Child]:
    """A worker that was ready, its Spark included, before it was given the sink.

    Spark starts with every worker and is asked for nothing by a sink: its start is no part of what is measured.
    """
    own = f"bench-sink-{name}-{time.time_ns()}"
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    worker = field.worker(own, offset_flush_interval_ms="1000", listeners=url)
    with headrace("standalone", str(worker), log=field.folder / f"{own}.log") as child:
        async with aiohttp.ClientSession() as session, asyncio.timeout(WAIT_SECONDS_MAX):
            client = RestClient(url, session)
            await _wait_ready(client)
            config = {"name": own, "config": {"tasks.max": "1", **properties}}
            await client.done("POST", "/connectors", config)
        yield child


async def _wait_ready(client: RestClient) -> None:
    async with asyncio.timeout(READY_SECONDS_MAX):
        while True:
            try:
                if (await client.ask("GET", "/health/ready"))[0] == 200:
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(LOOK_SECONDS)


async def run_sink(field: Field, name: str, properties: Mapping[str, str], count: Count, *, records: int) -> Passage:
    """A worker with one sink until its target has all records; as ``watched``."""
    async with running_sink(field, name, properties) as child:
        return await watched(records, count, processor_seconds({"Python": child.pid}))


async def watched(records: int, count: Count, sample: Sample) -> Passage:
    """From the first look at the target that saw any record to the one that saw all."""
    first: tuple[int, float, Mapping[str, float]] | None = None
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            found, now = await count(), time.monotonic()
            if found and first is None:
                first = (found, now, sample())
            elif first is not None and found >= records:
                used = {part: seconds - first[2].get(part, 0.0) for part, seconds in sample().items()}
                return Passage(found, first[0], first[1], now, used)
            await asyncio.sleep(POLL_SECONDS)
