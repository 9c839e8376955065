"""Three workers under load: how soon what one ran runs elsewhere, and what a rolling restart is felt by."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.benchmarks.control import workers
from tests.benchmarks.rows import Row
from tests.cluster.processes import Field, Load, WorkerProcess, wait_for

SESSION_SECONDS = 10.0
CONNECTORS = 6
SPARK_SECONDS_MAX = 300.0
"""Three of them start at once."""


async def measure_cluster(bootstrap: str, folder: Path) -> list[Row]:
    """Rolling restart first, then one that is killed and does not come back, then the leader."""
    rows: list[Row] = []
    async with workers(bootstrap, folder) as running:
        group = await running.start(3)
        for worker in group:
            await wait_for(lambda worker=worker: has_spark(worker), "Spark", seconds_max=SPARK_SECONDS_MAX)  # type: ignore[misc] # bound
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


async def has_spark(worker: WorkerProcess) -> bool:
    """Whether it can convert."""
    return bool(worker.events("spark_started"))


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


async def _rolling(running: Field) -> list[Row]:
    before = await running.owners(running.workers[0])
    watch = ArrivalWatch()
    seconds: list[float] = []
    for worker in list(running.workers):
        others = [load for load in running.loads if before[load.name] != worker.worker_id]
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch.run(running.bootstrap, others), name="arrivals")
            began = time.monotonic()
            await _restart(worker)
            seconds.append(time.monotonic() - began)
            watching.cancel()
    after = await running.wait_owned(running.workers[0], running.workers)
    moved = sum(after[name] != before[name] for name in before)
    return [
        Row(
            "rolling restart of 3: longest pause of a task elsewhere",
            f"{watch.pause_seconds_max:.1f} s",
            "never stopped (≤ 3 s)",
            watch.pause_seconds_max <= 3,
        ),
        Row("its length a worker; tasks moved by it", f"{max(seconds):.1f} s; {moved}", "moved 0", moved == 0),
    ]


async def _restart(worker: WorkerProcess) -> None:
    await worker.stop()
    worker.start()
    await worker.wait_healthy()


@dataclass
class ArrivalWatch:
    """The longest time between two arrivals in any of some topics, for a ``read_committed`` consumer."""

    pause_seconds_max: float = 0.0
    _last: dict[str, float] = field(default_factory=dict)

    async def run(self, bootstrap: str, loads: list[Load]) -> None:
        """Until cancelled; every topic has one partition."""
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(load.topic, 0) for load in loads])
            await consumer.seek_to_end()
            self._last = {load.topic: time.monotonic() for load in loads}
            while True:
                arrived = await consumer.getmany(timeout_ms=50)
                now = time.monotonic()
                self._last.update({partition.topic: now for partition in arrived})
                self.pause_seconds_max = max(self.pause_seconds_max, *(now - last for last in self._last.values()))
        finally:
            await consumer.stop()


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
