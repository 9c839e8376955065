"""Whatever happens to a sink's task, no offset is committed before its record was put or is a dead letter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import Retriable
from service.domain.errors import Recovery, StartAnew, recovery_of
from service.sinks.contract import Offsets, Partition, PutLimits, SinkBatch
from service.sinks.dead_letters import DeadLetterRules
from service.sinks.task import SinkTask
from tests.unit.sinks.fake_library import FakeGroup
from tests.unit.sinks.fakes import World, numbers

pytestmark = pytest.mark.looptime
RECORDS = 37
SECONDS_MAX = 5_000
"""Of virtual time, for one incarnation: many times what all its fates take together."""


class Fate(StrEnum):
    """What becomes of one call of the sink."""

    WELL = "well"
    AWAY = "away"
    HANGS = "hangs"
    SLOW = "slow"
    REFUSES = "refuses"
    REBALANCE = "rebalance"
    REBALANCE_AND_AWAY = "rebalance and away"
    SLOW_REBALANCE = "a rebalance begins and ends, were it not for the call"
    LOST = "the group gives the member up"
    ANEW = "anew"
    STOP = "the task is stopped meanwhile"


@dataclass
class Story:
    """The fates of calls in their order; when they are used up all goes well."""

    puts: list[Fate]
    opens: list[Fate]
    flushes: list[Fate]
    world: World
    task: SinkTask | None = None
    """The incarnation that runs now."""
    settled: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    """Whatever the sink has refused once it refuses whenever it comes again."""
    premature: list[int] = field(default_factory=list)
    """Offsets that were committed before their records were put or dead letters."""
    under_way: list[str] = field(default_factory=list)
    """Calls of the sink."""
    beside: set[tuple[str, ...]] = field(default_factory=set)
    """Calls that were under way together."""
    taken: list[str] = field(default_factory=list)
    """What was put since partitions came last."""
    twice: list[str] = field(default_factory=list)
    """What was put again though nothing had failed since."""

    def __post_init__(self) -> None:
        """Let the sink act it out, and look at every commit."""
        sink = self.world.sink
        open_, flush, committed, close = sink.open, sink.flush, sink.committed, sink.close

        async def put(batch: SinkBatch) -> None:
            async with self._call("put"):
                fate = self._next(self.puts)
                values = [str(value) for value in batch.records.column("value").to_pylist()]
                self.refused |= {values[0]} if fate is Fate.REFUSES else set()
                for row, value in enumerate(values):
                    if value in self.refused:
                        batch.refuse(row, "odd", "no")
                values = [value for value in values if value not in self.refused]
                await self._suffer(fate)
                sink.values += values
                self.settled |= set(values)
                self.twice += [value for value in values if value in self.taken]
                self.taken += values

        async def open_as_told(partitions: Mapping[Partition, int | None]) -> Offsets:
            async with self._call("open"):
                self.taken.clear()
                await self._suffer(self._next(self.opens))
                return await open_(partitions)

        async def flush_as_told(offsets: Offsets) -> Offsets:
            async with self._call("flush"):
                await self._suffer(self._next(self.flushes))
                return await flush(offsets)

        async def committed_alone(offsets: Offsets) -> None:
            async with self._call("committed"):
                await asyncio.sleep(0.01)
                await committed(offsets)

        async def close_alone(partitions: Collection[Partition]) -> None:
            async with self._call("close"):
                await asyncio.sleep(0.01)
                await close(partitions)

        sink.put, sink.open, sink.flush = put, open_as_told, flush_as_told  # type: ignore[method-assign]
        sink.committed, sink.close = committed_alone, close_alone  # type: ignore[method-assign]

    @property
    def letters(self) -> list[str]:
        """Values of the dead letters."""
        return [(value or b"").decode() for value in self.world.letters.values]

    def is_over(self) -> bool:
        """Whether all is committed; looks at what is."""
        committed, settled = self.world.group.committed or 0, self.settled.union(self.letters)
        self.premature += [number for number in range(committed) if str(number) not in settled]
        return committed == RECORDS

    async def run_once(self) -> None:
        """One incarnation, until all is committed or it ends; raises what a restart does not mend."""
        self.task = self.world.task()
        try:
            async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
                running = group.create_task(self.task.run())
                while not (running.done() or self.is_over()):
                    await asyncio.sleep(0.1)
                self.task.request_stop()
        except ExceptionGroup as error:
            if recovery_of(error) not in {Recovery.RETRY, Recovery.RESTART}:
                raise

    @asynccontextmanager
    async def _call(self, name: str) -> AsyncIterator[None]:
        self.under_way.append(name)
        self.beside.add(tuple(self.under_way))
        try:
            yield
        finally:
            self.under_way.remove(name)

    def _next(self, fates: list[Fate]) -> Fate:
        return fates.pop(0) if fates else Fate.WELL

    async def _suffer(self, fate: Fate) -> None:
        if fate in {Fate.REBALANCE, Fate.REBALANCE_AND_AWAY, Fate.SLOW_REBALANCE}:
            self.world.group.rebalance()
        if fate is Fate.LOST:
            self.world.group.lose_member()
        if fate is Fate.STOP and self.task is not None:
            self.task.request_stop()
        await asyncio.sleep(25 if fate in {Fate.SLOW, Fate.SLOW_REBALANCE, Fate.LOST, Fate.STOP} else 0.01)
        if fate is Fate.HANGS:
            await asyncio.Event().wait()
        if fate in {Fate.AWAY, Fate.REBALANCE_AND_AWAY}:
            raise Retriable("away")
        if fate is Fate.ANEW:
            raise StartAnew("anew")


fates = st.lists(st.sampled_from(Fate), max_size=8)
of_opens = st.lists(st.sampled_from([Fate.WELL, Fate.SLOW, Fate.AWAY, Fate.HANGS, Fate.ANEW, Fate.STOP]), max_size=4)


@given(fates, of_opens, fates, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
async def test_nothing_is_committed_that_was_not_put(
    puts: list[Fate], opens: list[Fate], flushes: list[Fate], puts_max: int
) -> None:
    """Time-outs, rebalances, restarts: in the end every record was put, and their first times were in order.

    Each refused record has one letter, and the sink is never called while another call is under way, but for puts.
    """
    rules = DeadLetterRules(is_tolerant=True, topic="letters")
    limits = PutLimits(records_max=4, seconds_max=30, puts_max=puts_max)
    world = World(FakeGroup(numbers(RECORDS)), rules, flush_seconds=1, limits=limits)
    story = Story(puts, opens, flushes, world)
    while not story.is_over():
        await story.run_once()
    assert story.premature == []
    assert story.twice == []
    first_times = [int(value or "") for value in dict.fromkeys(world.sink.values)]
    if puts_max == 1:
        assert first_times == sorted(first_times)
    assert {*map(str, first_times), *story.letters} == {str(number) for number in range(RECORDS)}
    assert len(story.letters) == len(set(story.letters))
    assert [calls for calls in story.beside if len(calls) > 1 and set(calls) != {"put"}] == []
    assert max(map(len, story.beside)) <= puts_max
