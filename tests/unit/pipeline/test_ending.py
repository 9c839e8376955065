"""Fetchers that do not want to end."""

from __future__ import annotations

import asyncio

import pytest

from service.pipeline.task import CLEANUP_SECONDS_MAX
from tests.unit.pipeline.fake_kafka import TOPIC
from tests.unit.pipeline.fakes import World, numbers, payloads, wait_until

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_fetcher_that_hangs_while_it_cleans_up_is_cut_off(*, is_cancelled: bool) -> None:
    """What it had handed over is delivered all the same, where the stop is staged."""
    world, source, hanging = World(), numbers(payloads(4)), asyncio.Event()

    async def hang(_position: int) -> None:
        hanging.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    source.script = lambda position: hang(position) if position == 2 else None
    async with asyncio.TaskGroup() as group:
        task = world.task(source)
        run = group.create_task(task.run())
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 2)
        await hanging.wait()
        if is_cancelled:
            run.cancel()
        else:
            task.request_stop()
        asked_at = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - asked_at == pytest.approx(CLEANUP_SECONDS_MAX, abs=0.1)
    assert world.kafka.values(TOPIC) == payloads(2)
