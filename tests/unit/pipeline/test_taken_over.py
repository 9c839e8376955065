"""A changed config that a running task takes over, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from fetchers.sdk import Fatal, Retriable
from metrics.events import RetryScheduled
from service.pipeline.task import SourceTask
from tests.unit.pipeline.fake_kafka import TOPIC
from tests.unit.pipeline.fakes import (
    FakeConversion,
    Numbers,
    NumbersConfig,
    World,
    fail,
    payloads,
    running,
    wait_until,
)

pytestmark = pytest.mark.looptime


class Following(Numbers):
    """Takes over what begins with ``live.``; applying a config goes as ``troubles`` say."""

    def __init__(self, config: NumbersConfig) -> None:
        super().__init__(config)
        self.troubles: list[Exception] = []

    def takes_over(self, keys: Collection[str]) -> bool:
        """Its own keys."""
        return all(key.startswith("live.") for key in keys)

    async def apply_config(self, config: NumbersConfig) -> None:
        """As long as there is no trouble."""
        if self.troubles:
            raise self.troubles.pop(0)
        await super().apply_config(config)


def following() -> Following:
    """With nothing to give."""
    return Following(NumbersConfig.model_validate({"topic": TOPIC}))


async def test_a_changed_config_is_applied_beside_the_fetch_and_tried_again_while_that_may_help() -> None:
    """The fetch goes on meanwhile; of several changes the last one counts."""
    world, source, older, newer = World(), following(), following(), following()
    task = world.task(source)

    async def made(other: Following) -> SourceTask:
        return world.task(other)

    source.troubles[:] = [Retriable("not now"), Retriable("nor now", wait_seconds=7.0)]
    async with running(task):
        await wait_until(lambda: source.opened == 1)
        assert not task.take_over({"live.rule", "topic"}, lambda: made(older))
        assert task.take_over({"live.rule"}, lambda: made(older))
        assert task.take_over({"live.rule"}, lambda: made(newer))
        await wait_until(lambda: source.config is newer.config)
        assert [event.wait_seconds for event in world.told(RetryScheduled)][1] == 7.0
    assert (source.opened, source.closed) == (1, 1)


async def test_a_config_that_cannot_be_applied_ends_the_task_behind_what_was_fetched() -> None:
    """As a fetch that fails does: with its error, and nothing of what was fetched is left behind."""
    world, source = World(conversion=FakeConversion(script=lambda _: 5.0)), following()
    source.payloads = payloads(6)
    source.troubles[:] = [Fatal("the rule is refused")]
    task = world.task(source)

    async def made() -> SourceTask:
        await asyncio.sleep(1)
        return world.task(following())

    def change() -> None:
        assert task.take_over({"live.rule"}, made)

    task.on_running = change
    error = await fail(task)
    assert isinstance(error, Fatal)
    assert world.kafka.values(TOPIC) == payloads(6)
    assert source.closed == 1
