"""A sink's task whose records wait for Spark or a registry before they can be put: it stays a member, loses nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from fetchers.sdk import Fatal
from metrics.events import SinkOffsetsCommitted
from service.sinks.converters import TextReader
from service.sinks.readings import Column, Reading
from tests.unit.sinks.fake_library import FakeGroup
from tests.unit.sinks.fakes import POLL_RECORDS, World, numbers, run_until, texts

pytestmark = pytest.mark.looptime
LONG_SECONDS = 400.0
"""Longer than `max.poll.interval.ms` allows without a poll."""


@dataclass
class SlowReader(TextReader):
    """Reads as `TextReader`, once a read of this number may go on."""

    waits_at: int
    error: Exception | None = None
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    reads: int = 0
    cancelled: int = 0

    async def read(self, column: Column) -> Reading:
        """Wait, and read or fail."""
        self.reads += 1
        if self.reads == self.waits_at:
            try:
                await self.may_go_on.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            if self.error is not None:
                raise self.error
        return await super().read(column)


async def test_it_stays_a_member_and_commits_what_was_put() -> None:
    """A wait of minutes costs no membership, and holds up no commit of what was put before."""
    reader = SlowReader(waits_at=2)
    world = World(FakeGroup(numbers(POLL_RECORDS + 3)), values=reader, flush_seconds=10)
    task = world.task()
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        async with asyncio.timeout(LONG_SECONDS):
            while reader.reads < 2:
                await asyncio.sleep(0.1)
        polls = world.clients[0].polls
        await asyncio.sleep(LONG_SECONDS)
        assert world.clients[0].polls - polls > LONG_SECONDS
        assert world.group.committed == POLL_RECORDS
        assert world.sink.values == texts(numbers(POLL_RECORDS))
        reader.may_go_on.set()
        while len(world.sink.values) < POLL_RECORDS + 3:
            await asyncio.sleep(0.1)
        task.request_stop()
    assert world.sink.values == texts(numbers(POLL_RECORDS + 3))
    assert world.group.committed == POLL_RECORDS + 3


async def test_a_stop_while_it_waits_is_prompt() -> None:
    """What waits is given up, uncommitted; the next incarnation has it again, once."""
    reader = SlowReader(waits_at=2)
    world = World(FakeGroup(numbers(POLL_RECORDS + 3)), values=reader)
    await run_until(world.task(), lambda: reader.reads == 2, seconds_max=5)
    assert reader.cancelled == 1
    assert world.sink.values == texts(numbers(POLL_RECORDS))
    assert world.group.committed == POLL_RECORDS
    await run_until(world.task(), lambda: len(world.sink.values) == POLL_RECORDS + 3)
    assert world.sink.values == texts(numbers(POLL_RECORDS + 3))
    assert world.memory.bytes_held == 0


async def test_a_rebalance_while_it_waits_gives_the_records_up() -> None:
    """Whoever gets the partitions has them from the committed offset on: here the same task, and each comes once."""
    reader = SlowReader(waits_at=2)
    world = World(FakeGroup(numbers(POLL_RECORDS + 3)), values=reader)
    task = world.task()
    async with asyncio.TaskGroup() as group:
        group.create_task(task.run())
        while reader.reads < 2:
            await asyncio.sleep(0.1)
        world.group.rebalance()
        while len(world.sink.values) < POLL_RECORDS + 3:
            await asyncio.sleep(0.1)
        task.request_stop()
    assert reader.cancelled == 1
    assert world.sink.values == texts(numbers(POLL_RECORDS + 3))
    assert [line for line in world.log if line.startswith("open")] == ["open [None]", f"open [{POLL_RECORDS}]"]
    assert world.group.committed == POLL_RECORDS + 3
    assert world.memory.bytes_held == 0


async def test_what_fails_while_it_waits_ends_the_task() -> None:
    """With that error; what was put before may be committed, nothing behind it is."""
    reader = SlowReader(waits_at=2, error=Fatal("no way"))
    reader.may_go_on.set()
    world = World(FakeGroup(numbers(POLL_RECORDS + 3)), values=reader)
    with pytest.raises(Fatal, match="no way"):
        await world.task().run()
    assert world.sink.values == texts(numbers(POLL_RECORDS))
    assert (world.group.committed or 0) <= POLL_RECORDS
    assert [event.records for event in world.told(SinkOffsetsCommitted)] in ([], [POLL_RECORDS])
    assert world.memory.bytes_held == 0
