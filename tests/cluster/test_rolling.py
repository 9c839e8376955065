"""Restarts one after the other, as for an upgrade: nothing is lost, repeated or moved, and the others do not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.processes import CALM_SESSION_MS, REAL, Field, WorkerProcess
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]
GRACE_MS = "600000"
"""Far more than a restart takes, but on a machine with far too much to do; how long it takes is measured elsewhere."""
RUNNING_STATES = "task_state_changed"


async def test_a_rolling_restart_moves_nothing_and_stops_nobody_else(kafka: KafkaStack, tmp_path: Path) -> None:
    """While one is away the tasks of the others deliver on, in the incarnation they were in."""
    async with Field.opened(
        kafka.bootstrap, tmp_path, session_timeout_ms=CALM_SESSION_MS, scheduled_rebalance_max_delay_ms=GRACE_MS
    ) as field:
        workers = await field.start(3)
        loads = await field.load(6)
        copy = await field.sink(loads[0])
        await restart_each(field, workers)
        await field.demand_all_once()
        await field.demand_copied(loads[0], copy)


async def test_workers_with_spark_keep_their_tasks_over_a_restart(kafka: KafkaStack, tmp_path: Path) -> None:
    """The command as users start it, with Spark."""
    more = {
        "session_timeout_ms": CALM_SESSION_MS,
        "scheduled_rebalance_max_delay_ms": GRACE_MS,
        "spark_driver_memory": "512m",
    }
    async with Field.opened(kafka.bootstrap, tmp_path, command=REAL, **more) as field:
        workers = await field.start(2)
        for worker in workers:
            await worker.wait_ready()
        await field.load(4)
        await restart_each(field, workers)
        await field.demand_all_once()


async def restart_each(field: Field, workers: list[WorkerProcess]) -> None:
    """One after the other, each when the one before is ready; nothing moves, and no task of the others changes."""
    before = await field.wait_owned(workers[0], workers)
    for worker in list(workers):
        others = [each for each in workers if each is not worker]
        told = tasks_told(others)
        assert await worker.stop() == 0
        await field.wait_growth([load for load in field.loads if before[load.name] != worker.worker_id])
        assert tasks_told(others) == told
        worker.start()
        await worker.wait_ready()
        assert await field.wait_owned(others[0], workers) == before
        assert tasks_told(others) == told


def tasks_told(workers: list[WorkerProcess]) -> list[tuple[str, str]]:
    """Every change of state of source tasks on these, so far."""
    events = [event for worker in workers for event in worker.events(RUNNING_STATES)]
    return [(event["connector"], event["state"]) for event in events if event["connector"].startswith("c")]
