"""Workers that are stopped for longer than their session, and wake up to find their tasks run elsewhere."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cluster.processes import Field, wait_for
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize("leads", [False, True])
async def test_a_frozen_worker_is_fenced_and_comes_back(kafka: KafkaStack, tmp_path: Path, *, leads: bool) -> None:
    """What it was about to deliver is delivered by others; it lets go quietly, joins again and gets its share."""
    async with Field.opened(kafka.bootstrap, tmp_path) as field:
        workers = await field.start(3)
        await field.load(6)
        await field.wait_owned(workers[0], workers)
        await field.wait_growth()
        leader = await field.leader()
        frozen = leader if leads else next(worker for worker in workers if worker is not leader)
        others = [worker for worker in workers if worker is not frozen]
        frozen.signal(signal.SIGSTOP)
        try:
            await field.wait_owned(others[0], others)
            await field.wait_growth()
        finally:
            frozen.signal(signal.SIGCONT)
        await field.wait_owned(others[0], workers)
        await frozen.wait_healthy()

        async def agrees() -> bool:
            owners = await field.owners(others[0])
            return all(owners.values()) and await field.owners(frozen) == owners

        # Healthy is who has joined again: what others have written meanwhile may still be on its way to it. A machine
        # that keeps another one waiting for a session moves its tasks once more.
        await wait_for(agrees, f"{frozen.url} and {others[0].url} of one mind")
        await field.wait_growth()
        assert frozen.events("task_failed") == []
        await field.demand_all_once()
