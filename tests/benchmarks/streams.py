"""Listeners: an endless body at a given rate with flat memory, how soon a message can be read, and what one costs."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized

from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.ndjson.config import NdjsonStreamConfig
from fetchers.ndjson.fetcher import NdjsonStreamSource
from fetchers.sdk.testing import FakeContext
from tests.benchmarks.processes import headrace
from tests.benchmarks.service_level import TIMED_SCHEMA, delays_of, quantile
from tests.benchmarks.throughput import Field
from tests.benchmarks.watching import watch

RATE_PER_SECOND = 20_000
LATENCY_RATE_PER_SECOND = 200
LATENCY_SECONDS = 30.0
_TICK_SECONDS = 0.005
_LOOK_SECONDS = 0.5


async def _talk(pipe: Connection, connections: Synchronized[int], rate: float | None, count: int) -> None:
    """Say ``count`` messages, so many a second (None: as fast as they are taken), from the first connection on.

    Each is said once: whoever connects again hears what has not been said yet, and not what was said to nobody.
    """
    begin: float | None = None
    number = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal begin, number
        connections.value += 1
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        begin = time.monotonic() if begin is None else begin
        while number < count:
            now = time.monotonic()
            first, number = number, min(count, number + 500 if rate is None else int((now - begin) * rate))
            lines = (b'{"sent_at":%f,"number":%d}\r\n' % (now, each) for each in range(first, number))
            await response.write(b"".join(lines))
            if rate is not None:
                await asyncio.sleep(_TICK_SECONDS)
        await asyncio.Event().wait()
        return response

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    pipe.send(f"http://127.0.0.1:{runner.addresses[0][1]}/")
    await asyncio.Event().wait()


def _run(pipe: Connection, connections: Synchronized[int], rate: float | None, count: int) -> None:
    asyncio.run(_talk(pipe, connections, rate, count))


@contextmanager
def talking(*, rate: float | None, count: int) -> Iterator[tuple[str, Synchronized[int]]]:
    """A server in a process of its own; gives its URL, and how many connections it has had."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    connections: Synchronized[int] = spawning.Value("i", 0)
    process = spawning.Process(target=_run, args=(theirs, connections, rate, count), daemon=True)
    process.start()
    try:
        yield str(ours.recv()), connections
    finally:
        process.terminate()
        process.join()


@dataclass(frozen=True, slots=True)
class Steady:
    """A stream at ``RATE_PER_SECOND``, from its first message to when its last one could be read."""

    messages: int
    behind_seconds: float
    """How much later the last message could be read than it was sent."""
    memory_early_bytes: int
    memory_late_bytes: int
    gaps: int


async def steady(field: Field, run: str, *, seconds: float) -> Steady:
    """20,000 messages a second through a worker whose memory is looked at after a tenth and at the end."""
    name, count = f"steady-{run}", int(RATE_PER_SECOND * seconds)
    log = field.folder / f"{name}.log"
    with talking(rate=RATE_PER_SECOND, count=count) as (url, _):
        files = str(field.worker(name)), str(field.connector(name, _properties(url)))
        with headrace("standalone", *files, log=log) as child:
            await watch(field.servers.bootstrap, name, records=count // 10)
            early_bytes, early_at = child.memory_bytes(), time.monotonic()
            await watch(field.servers.bootstrap, name, records=count)
            late_bytes, late_at = child.memory_bytes(), time.monotonic()
    behind_seconds = late_at - early_at - 0.9 * seconds
    gaps = log.read_text("utf-8", "replace").count("source_gap")
    return Steady(count, behind_seconds, early_bytes, late_bytes, gaps)


async def latency(field: Field, run: str) -> tuple[float, float, int]:
    """Median and 99th percentile of the seconds from sent to readable at 200/s, and the number of messages."""
    name = f"stream-latency-{run}"
    with talking(rate=LATENCY_RATE_PER_SECOND, count=10_000_000) as (url, _):
        files = str(field.worker(name)), str(field.connector(name, _properties(url)))
        with headrace("standalone", *files, log=field.folder / f"{name}.log"):
            await watch(field.servers.bootstrap, name, records=1_000)
            delays = sorted(await delays_of(field.servers.bootstrap, name, seconds=LATENCY_SECONDS))
    return quantile(delays, 0.5), quantile(delays, 0.99), len(delays)


def _properties(url: str) -> dict[str, str]:
    return {
        "connector.class": "NdjsonStreamSource",
        "stream.url": url,
        "value.converter": "json",
        "contract.schema": json.dumps(TIMED_SCHEMA),
    }


async def cost(*, count: int) -> tuple[float, float, int]:
    """Messages a second by processor time and by the clock of the fetcher alone, and its peak memory in bytes."""
    with talking(rate=None, count=count) as (url, _):
        config = NdjsonStreamConfig.parse({"topic": "t", "stream.url": url}).config
        if config is None:
            raise ValueError(url)
        async with shared_http() as http:
            context, taken = FakeContext(http=http), 0
            started, used = time.perf_counter(), time.process_time()
            async for page in NdjsonStreamSource(config).fetch(context):
                taken += len(page)
                if taken >= count:
                    break
            wall, cpu = time.perf_counter() - started, time.process_time() - used
    return taken / cpu, taken / wall, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """``python -m tests.benchmarks.streams``: what a message costs the fetcher alone."""
    by_cpu, by_clock, memory = asyncio.run(cost(count=2_000_000))
    print(f"{by_cpu:,.0f} messages a second of processor time, {by_clock:,.0f} by the clock, peak {memory >> 20} MiB")


if __name__ == "__main__":
    main()
