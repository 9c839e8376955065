"""Turns to change a connector: how they end when the worker stops."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.states import TargetState
from service.herder.errors import ConflictError, RequestError
from service.herder.requests import ConnectorLocks
from service.herder.view import NO_LEADER
from service.kafka.errors import DeliveryRetriable, KafkaFailure, WriterFenced
from service.stores.state_log import ClaimMissing
from tests.unit.herder.world import SOURCE, HerderWorld

pytestmark = pytest.mark.looptime


async def test_changes_that_have_begun_end_before_the_turns_are_closed() -> None:
    """Whoever asks later is told of a conflict, and has written nothing."""
    turns, may_end, told = ConnectorLocks(), asyncio.Event(), []

    async def change() -> None:
        async with turns.changing("c"):
            await may_end.wait()
            told.append("changed")

    async def close() -> None:
        await turns.close(seconds_max=10)
        told.append("closed")

    async with asyncio.TaskGroup() as group:
        group.create_task(change())
        await asyncio.sleep(0)
        group.create_task(close())
        await asyncio.sleep(0)
        with pytest.raises(ConflictError):
            async with turns.changing("d"):
                told.append("too late")
        may_end.set()
    assert told == ["changed", "closed"]


async def test_a_change_that_does_not_end_keeps_nobody_for_long() -> None:
    """Its write fails once the store is gone, and its client hears of that."""
    turns = ConnectorLocks()
    loop = asyncio.get_running_loop()

    async def hang() -> None:
        async with turns.changing("c"):
            await asyncio.sleep(60)
            raise DeliveryRetriable("the log is stopped")

    hanging = loop.create_task(hang())
    await asyncio.sleep(0)
    began = loop.time()
    await turns.close(seconds_max=10)
    assert loop.time() - began == 10
    with pytest.raises(RequestError, match="the log is stopped"):
        await hanging


async def test_a_stopped_worker_changes_nothing() -> None:
    """Not even what needs no leader: pause and resume."""
    async with HerderWorld().started() as world:
        await world.herder.changes.create("c", SOURCE, None)
        await world.herder.life.stop()
        with pytest.raises(ConflictError):
            await world.herder.changes.set_target("c", TargetState.PAUSED)
        assert world.configs.config.connectors["c"].target_state is TargetState.STARTED


@pytest.mark.parametrize(
    ("failure", "told"), [(WriterFenced("x"), ["failed", "fenced"]), (ClaimMissing("x"), ["failed"])]
)
async def test_only_a_fence_says_that_another_leads(failure: KafkaFailure, told: list[str]) -> None:
    """A write that waited behind one that failed has no claim left; to the client both are the same."""
    heard: list[str] = []
    turns = ConnectorLocks(on_fenced=lambda: heard.append("fenced"), on_failed=lambda: heard.append("failed"))
    with pytest.raises(ConflictError) as conflict:
        async with turns.changing("c"):
            raise failure
    assert str(conflict.value) == NO_LEADER
    assert heard == told
