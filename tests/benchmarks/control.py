"""The control plane of one worker: how soon it is there, how it answers and what it costs with many connectors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from tests.benchmarks.rows import Row, quantile
from tests.cluster.processes import REAL, Field, WorkerProcess, wait_for
from tests.java_connect import opened_connect
from tests.rest_client import RestClient

MEBIBYTE = 1024 * 1024
STARTS = 3
POSTS = 500
"""Timed, one after the other, beside so many connectors that are there already."""
PEER_POSTS = 100
"""Fewer, because each costs the peer a rebalance."""
RUNS = 20
"""Connectors of which it is timed how soon they run."""
LISTS = 10
IDLE_SECONDS = 30.0
LOOK_SECONDS = 0.01
POSTS_AT_ONCE = 8
"""While connectors are only made, not timed."""
ALL_RUNNING_SECONDS_MAX = 600.0
EXPANDED = "/connectors?expand=status&expand=info"


@asynccontextmanager
async def workers(bootstrap: str, folder: Path) -> AsyncIterator[Field]:
    """Room for real workers; none is started."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"session_timeout_ms": "10000", "spark_driver_memory": "512m"}
    async with Field.opened(bootstrap, folder, command=REAL, **settings) as field:
        yield field


async def measure_health(bootstrap: str, folder: Path) -> list[Row]:
    """From the start of the process to the first 200."""
    seconds: list[float] = []
    async with workers(bootstrap, folder) as field:
        for _ in range(STARTS):
            (worker,) = field.prepare(1)
            began = time.monotonic()
            worker.start()
            while not await worker.is_healthy():
                await asyncio.sleep(0.02)
            seconds.append(time.monotonic() - began)
            await worker.stop()
    middle = quantile(seconds, 0.5)
    figure = f"{middle:.1f} s (median of {', '.join(f'{each:.1f}' for each in seconds)})"
    return [Row("worker start → /health 200", figure, "≤ 3 s", middle <= 3)]


@dataclass(frozen=True, slots=True)
class Answers:
    """How a worker with many connectors answers."""

    post_seconds: list[float]
    list_seconds: list[float]
    run_seconds: list[float]
    """From the request to RUNNING, one at a time."""

    @property
    def runs(self) -> str:
        """Middle and worst."""
        return f"{quantile(self.run_seconds, 0.5):.2f} s ({max(self.run_seconds):.2f} s)"


async def measure_many(bootstrap: str, folder: Path, *, connectors: int) -> list[Row]:
    """One worker with so many idle file connectors."""
    async with workers(bootstrap, folder) as field:
        (worker,) = await field.start(1)
        began = time.monotonic()
        await fill(worker, folder, connectors)
        filled_seconds = time.monotonic() - began
        await wait_all_running(worker, connectors)
        running_seconds = time.monotonic() - began
        answers = await ask(worker, folder, connectors, posts=POSTS)
        idle = connectors + RUNS + POSTS
        await wait_all_running(worker, idle)
        cpu_share, resident_bytes = await idle_cost(worker)
    p99, listed = quantile(answers.post_seconds, 0.99), quantile(answers.list_seconds, 0.5)
    return [
        Row(
            f"{connectors:,} connectors posted, {POSTS_AT_ONCE} at once; all RUNNING",
            f"{filled_seconds:.0f} s; {running_seconds:.0f} s",
            "to be known",
            is_reached=None,
        ),
        Row(
            f"POST /connectors beside {connectors:,}, p99 (p50)",
            f"{p99 * 1000:.0f} ms ({quantile(answers.post_seconds, 0.5) * 1000:.0f} ms)",
            "≤ 80 ms",
            p99 <= 0.08,
        ),
        Row("POST → the task RUNNING, median (worst)", answers.runs, "to be known", is_reached=None),
        Row(f"GET {EXPANDED} of {connectors:,}, median", f"{listed:.2f} s", "≤ 0.5 s", listed <= 0.5),
        Row(
            f"{idle:,} idle file connectors, Python process",
            f"{resident_bytes / MEBIBYTE:.0f} MiB",
            "≤ 600 MB",
            resident_bytes <= 600e6,
        ),
        Row("the same, CPU", f"{cpu_share:.1%} of a core", "≤ 15 %", cpu_share <= 0.15),
    ]


async def measure_peer(bootstrap: str, folder: Path, *, connectors: int) -> list[Row]:
    """A worker of Kafka Connect asked the same; with fewer connectors, because each costs it a rebalance."""
    group = f"peer-{folder.name}"
    async with (
        opened_connect(folder, bootstrap=bootstrap, group=group) as peer,
        aiohttp.ClientSession() as client,
    ):
        worker = RestClient(peer.url, client)
        await fill(worker, folder, connectors)
        await wait_all_running(worker, connectors)
        answers = await ask(worker, folder, connectors, posts=PEER_POSTS)
    posts = answers.post_seconds
    figure = f"{quantile(posts, 0.99) * 1000:.0f} ms ({quantile(posts, 0.5) * 1000:.0f} ms)"
    listed = f"{quantile(answers.list_seconds, 0.5):.2f} s"
    return [
        Row(f"Kafka Connect: POST beside {connectors:,}, p99 (p50)", figure, "the peer", is_reached=None),
        Row("Kafka Connect: POST → the task RUNNING, median (worst)", answers.runs, "the peer", is_reached=None),
        Row(f"Kafka Connect: GET expanded of {connectors:,}, median", listed, "the peer", is_reached=None),
    ]


def body_of(folder: Path, number: int) -> dict[str, object]:
    """A file source with one line; all write to one topic."""
    path = folder / f"idle-{number}.txt"
    path.write_text("a line\n", encoding="utf-8")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(path),
        "topic": f"{folder.name}-idle",
        "tasks.max": "1",
    }
    return {"name": f"idle-{number:05d}", "config": config}


async def fill(worker: RestClient, folder: Path, connectors: int) -> None:
    """Create them, several at once."""
    numbers = iter(range(connectors))

    async def create_on() -> None:
        for number in numbers:
            await worker.done("POST", "/connectors", body_of(folder, number))

    async with asyncio.TaskGroup() as group:
        for each in range(POSTS_AT_ONCE):
            group.create_task(create_on(), name=f"filler {each}")


async def wait_all_running(worker: RestClient, connectors: int) -> None:
    """Every connector with its task."""
    until = time.monotonic() + ALL_RUNNING_SECONDS_MAX
    while time.monotonic() < until:
        listed = (await worker.done("GET", EXPANDED)).values()
        if sum(_is_running(each["status"]) for each in listed if "status" in each) == connectors:
            return
        await asyncio.sleep(1.0)
    message = f"not all of {connectors} connectors are RUNNING"
    raise TimeoutError(message)


def _is_running(status: dict[str, list[dict[str, str]]]) -> bool:
    return [task["state"] for task in status["tasks"]] == ["RUNNING"]


async def ask(worker: RestClient, folder: Path, connectors: int, *, posts: int) -> Answers:
    """Lists, then connectors created one after the other: some until they run, the rest at once."""
    lists, answered, running = [], [], []
    for _ in range(LISTS):
        began = time.monotonic()
        await worker.done("GET", EXPANDED)
        lists.append(time.monotonic() - began)
    for number in range(connectors, connectors + RUNS):
        body = body_of(folder, number)
        began = time.monotonic()
        await worker.done("POST", "/connectors", body)
        while (await worker.states(str(body["name"]))).get("0", ("", ""))[0] != "RUNNING":
            await asyncio.sleep(LOOK_SECONDS)
        running.append(time.monotonic() - began)
    for number in range(connectors + RUNS, connectors + RUNS + posts):
        body = body_of(folder, number)
        began = time.monotonic()
        await worker.done("POST", "/connectors", body)
        answered.append(time.monotonic() - began)
    return Answers(answered, lists, running)


async def idle_cost(worker: WorkerProcess) -> tuple[float, int]:
    """Share of a core, and resident bytes, of the Python process alone."""
    assert worker.process is not None
    process = psutil.Process(worker.process.pid)
    await wait_for(lambda: _is_quiet(process), "quiet")
    before = process.cpu_times()
    await asyncio.sleep(IDLE_SECONDS)
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    return used / IDLE_SECONDS, int(process.memory_info().rss)


async def _is_quiet(process: psutil.Process) -> bool:
    """The rush of the start is over."""
    before = sum(process.cpu_times()[:2])
    await asyncio.sleep(3.0)
    return sum(process.cpu_times()[:2]) - before < 1.5
