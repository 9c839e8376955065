"""Three workers under load: how soon what one ran runs elsewhere, and what a rolling restart is felt by."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.arrivals import ArrivalWatch
from tests.benchmarks.control import workers
from tests.benchmarks.rows import Row
from tests.cluster.processes import Field, WorkerProcess, wait_for

SESSION_SECONDS = 10.0
CONNECTORS = 6


async def measure_cluster(bootstrap: str, folder: Path) -> list[Row]:
    """Rolling restart first, then one that is killed and does not come back, then the leader."""
    rows: list[Row] = []
    async with workers(bootstrap, folder) as running:
        group = await running.start(3)
        for worker in group:
            await worker.wait_ready()
        await running.load(CONNECTORS)
        await running.wait_owned(group[0], group)
        await running.wait_growth()
        rows += await _rolling(running)
        rows.append(await _killed(running, "a worker", leads=False))
        rows.append(await _killed(running, "the leader", leads=True))
        lost, repeated = await _account(running)
        is_exact = not lost and not repeated
        rows.append(Row("after all that, lost and repeated", f"{lost} and {repeated}", "0 and 0", is_exact))
    return rows


async def _killed(running: Field, who: str, *, leads: bool) -> Row:
    leader = await running.leader()
    victim = next(worker for worker in running.workers if (worker is leader) == leads)
    asked = next(worker for worker in running.workers if worker is not victim)
    running.workers.remove(victim)
    began = time.monotonic()
    await victim.kill()
    while {"", victim.worker_id} & {*(await running.owners(asked)).values()}:
        await asyncio.sleep(0.05)
    seconds = time.monotonic() - began
    await running.wait_growth()
    limit = SESSION_SECONDS + 5
    what = f"{who} of {len(running.workers) + 1} killed → its tasks RUNNING elsewhere"
    return Row(what, f"{seconds:.1f} s", f"≤ {limit:.0f} s (session {SESSION_SECONDS:.0f} s + 5 s)", seconds <= limit)


@dataclass(slots=True)
class Rolling:
    """What a rolling restart was felt by."""

    back_seconds: list[float] = field(default_factory=list)
    """From SIGTERM until the worker answers again."""
    ready_seconds: list[float] = field(default_factory=list)
    """From SIGTERM until it is in the group, with Spark: then comes the next."""
    elsewhere_seconds: list[float] = field(default_factory=list)
    """Longest pause of each task that ran on another worker when one was stopped, whatever has become of it then."""
    own_seconds: list[float] = field(default_factory=list)
    """The same of the tasks of the restarted ones."""


async def _rolling(running: Field) -> list[Row]:
    before = await running.owners(running.workers[0])
    seen = Rolling()
    for place, worker in enumerate(running.workers):
        owners = await running.owners(running.workers[place - 1])
        async with ArrivalWatch.opened(running.bootstrap, [load.topic for load in running.loads]) as watch:
            await _restart(worker, seen)
            await _wait_all_deliver(watch)
            for load in running.loads:
                is_own = owners[load.name] == worker.worker_id
                pauses = seen.own_seconds if is_own else seen.elsewhere_seconds
                pauses.append(watch.pause_seconds[load.topic])
    after = await running.wait_owned(running.workers[0], running.workers)
    return _rows(seen, moved=sum(after[name] != before[name] for name in before))


def _rows(seen: Rolling, *, moved: int) -> list[Row]:
    longest, own = max(seen.elsewhere_seconds), max(seen.own_seconds)
    length = f"{max(seen.back_seconds):.1f} s; {max(seen.ready_seconds):.1f} s"
    return [
        Row(
            f"rolling restart of {len(seen.back_seconds)}: longest pause of a task elsewhere",
            f"{longest:.1f} s",
            "never stopped (≤ 3 s)",
            longest <= 3,
        ),
        Row("tasks moved by it", f"{moved}", "0", moved == 0),
        Row("a worker's restart: until it answers; until it is ready (Spark)", length, "to be known", is_reached=None),
        Row("longest pause of its own tasks meanwhile", f"{own:.1f} s", "to be known", is_reached=None),
    ]


async def _restart(worker: WorkerProcess, seen: Rolling) -> None:
    """As docs/guides/cluster.md has it."""
    began = time.monotonic()
    await worker.stop()
    worker.start()
    await worker.wait_healthy()
    seen.back_seconds.append(time.monotonic() - began)
    await worker.wait_ready()
    seen.ready_seconds.append(time.monotonic() - began)


async def _wait_all_deliver(watch: ArrivalWatch) -> None:
    now = time.monotonic()
    await wait_for(lambda: watch.has_heard_of_all_since(now), "delivery of all")


async def _account(running: Field) -> tuple[int, int]:
    """Lines lost and repeated, after the last has arrived."""
    lost = repeated = 0
    for load in running.loads:
        load.file.stop()
    for load in running.loads:
        await running.wait_arrived(load, len(load.lines))
        found = await running.arrived(load)
        lost += len({*load.lines} - {*found})
        repeated += len(found) - len({*found})
    return lost, repeated
