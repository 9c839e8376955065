"""Workers that are killed: their tasks run elsewhere, with nothing lost and nothing repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.processes import CALM_SESSION_MS, Field
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]


async def test_what_ran_on_a_killed_worker_runs_elsewhere(kafka: KafkaStack, tmp_path: Path) -> None:
    """First one that does not lead, then the leader; what ran on the others stays where it is."""
    async with Field.opened(kafka.bootstrap, tmp_path, session_timeout_ms=CALM_SESSION_MS) as field:
        workers = await field.start(3)
        await field.load(6)
        before = await field.wait_owned(workers[0], workers)
        await field.wait_growth()
        leader = await field.leader()
        follower = next(worker for worker in workers if worker is not leader)
        await follower.kill()
        workers.remove(follower)
        after = await field.wait_owned(workers[0], workers)
        stayed = {name for name, owner in before.items() if owner != follower.worker_id}
        assert {name: after[name] for name in stayed} == {name: before[name] for name in stayed}
        await field.wait_growth()
        await leader.kill()
        workers.remove(leader)
        await field.wait_owned(workers[0], workers)
        await field.wait_growth()
        # Whoever is left leads, and can write.
        await workers[0].done("PUT", "/connectors/c0/pause")
        await workers[0].wait_states("c0", {"": "PAUSED", "0": "PAUSED"})
        await workers[0].done("PUT", "/connectors/c0/resume")
        await field.demand_all_once()
