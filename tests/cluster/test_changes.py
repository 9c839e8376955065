"""Changes that meet: with a leader's end, with each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.processes import RUNNING, Field, WorkerProcess, wait_for
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]
WRITES = 12


async def test_changes_that_are_asked_for_while_the_leader_dies_are_made_in_the_end(
    kafka: KafkaStack, tmp_path: Path
) -> None:
    """A client that tries again until it is told yes finds exactly what it was told, on every worker."""
    async with Field.opened(kafka.bootstrap, tmp_path) as field:
        workers = await field.start(3)
        for name in ("deleted", "paused"):
            await workers[0].persist("PUT", f"/connectors/{name}/config", field.idle_source(name))
        # One that is paused before it has begun has no tasks.
        await workers[0].wait_states("paused", RUNNING)
        leader = await field.leader()
        workers.remove(leader)
        async with asyncio.TaskGroup() as group:
            group.create_task(create_many(field, workers), name="creating")
            group.create_task(leader.kill(), name="killing")
            group.create_task(workers[0].persist("PUT", "/connectors/paused/pause"), name="pausing")
            group.create_task(workers[1].persist("DELETE", "/connectors/deleted"), name="deleting")
        names = sorted(["paused", *(f"new{number}" for number in range(WRITES))])
        for worker in workers:
            # What went through another worker is here once it was read from the config topic.
            await wait_for(lambda worker=worker: has_names(worker, names), f"{names} on {worker.url}")  # type: ignore[misc] # bound
            await worker.wait_states("paused", {"": "PAUSED", "0": "PAUSED"})
            await worker.wait_states("deleted", {})
            for number in range(WRITES):
                await worker.wait_states(f"new{number}", {"": "RUNNING", "0": "RUNNING"})


async def has_names(worker: WorkerProcess, names: list[str]) -> bool:
    """Whether these are all connectors that a worker knows."""
    return bool(await worker.done("GET", "/connectors") == names)


async def create_many(field: Field, workers: list[WorkerProcess]) -> None:
    """Through the workers in turn."""
    for number in range(WRITES):
        name = f"new{number}"
        await workers[number % len(workers)].persist("PUT", f"/connectors/{name}/config", field.idle_source(name))


async def test_of_configs_put_at_once_one_wins_whole(kafka: KafkaStack, tmp_path: Path) -> None:
    """The same on every worker, and its tasks are made from it and from no other."""
    async with Field.opened(kafka.bootstrap, tmp_path) as field:
        workers = await field.start(3)
        config = field.idle_source("c")

        async def put(number: int) -> None:
            wanted = {**config, "topic": f"{field.name}-{number}"}
            await workers[number % 3].persist("PUT", "/connectors/c/config", wanted)

        async with asyncio.TaskGroup() as group:
            for number in range(WRITES):
                group.create_task(put(number), name=f"put {number}")
        told: list[str] = []

        async def is_agreed() -> bool:
            told[:] = [(await worker.done("GET", "/connectors/c"))["config"]["topic"] for worker in workers]
            return len(set(told)) == 1

        await wait_for(is_agreed, "the same config on every worker")
        assert set(told) <= {f"{field.name}-{number}" for number in range(WRITES)}
        await demand_whole(workers, told[0])
        await put(WRITES)
        await demand_whole(workers, f"{field.name}-{WRITES}")


async def demand_whole(workers: list[WorkerProcess], topic: str) -> None:
    """Every worker comes to tell of this config, and of one task made from it, which runs."""

    async def is_whole(worker: WorkerProcess) -> bool:
        info = await worker.done("GET", "/connectors/c")
        tasks = await worker.done("GET", "/connectors/c/tasks")
        topics = [info["config"]["topic"], *(task["config"]["topic"] for task in tasks)]
        return topics == [topic] * 2 and len(info["tasks"]) == 1

    for worker in workers:
        await wait_for(lambda worker=worker: is_whole(worker), f"{topic} on {worker.url}")  # type: ignore[misc] # bound
        await worker.wait_states("c", {"": "RUNNING", "0": "RUNNING"})
