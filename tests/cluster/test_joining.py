"""One worker more takes its share and nothing else; work goes on, and so do changes through any worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.processes import CALM_SESSION_MS, Field, wait_for
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]


async def test_a_worker_that_joins_takes_its_share_while_connectors_come_and_go(
    kafka: KafkaStack, tmp_path: Path
) -> None:
    """Of six tasks on two workers two move; what is created, resized and deleted meanwhile disturbs nobody."""
    async with Field.opened(kafka.bootstrap, tmp_path, session_timeout_ms=CALM_SESSION_MS) as field:
        workers = await field.start(2)
        await field.load(6)
        before = await field.wait_owned(workers[0], workers)
        async with asyncio.TaskGroup() as group:
            group.create_task(come_and_go(field, times=8), name="changes")
            group.create_task(field.start(1), name="joining")
        after = await field.wait_owned(field.workers[0], field.workers)
        third = field.workers[2]
        moved = {name for name in before if after[name] != before[name]}
        assert {after[name] for name in moved} == {third.worker_id}
        assert len(moved) == 2
        await field.wait_growth()
        left = sorted(load.name for load in field.loads)

        async def knows() -> bool:
            # What another worker has written is here once it was read from the config topic.
            return bool(await third.done("GET", "/connectors") == left)

        await wait_for(knows, f"{left} on {third.url}")
        await field.demand_all_once()


async def come_and_go(field: Field, *, times: int) -> None:
    """Connectors created through one worker, changed and deleted through the others."""
    for number in range(times):
        name = f"brief{number}"
        first, second, third = (field.workers[(number + step) % len(field.workers)] for step in range(3))
        await first.persist("PUT", f"/connectors/{name}/config", field.idle_source(name))
        await second.persist("PUT", f"/connectors/{name}/pause")
        await third.persist("DELETE", f"/connectors/{name}")
