"""Whatever happens to a sink's task, no offset is committed before its record was put or is a dead letter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import Retriable
from service.domain.errors import Recovery, recovery_of
from service.sinks.contract import Offsets, Partition, PutLimits, SinkBatch
from service.sinks.dead_letters import DeadLetterRules
from tests.unit.sinks.fake_library import FakeGroup
from tests.unit.sinks.fakes import World, numbers, run_until

pytestmark = pytest.mark.looptime
RECORDS = 37


class Fate(StrEnum):
    """What becomes of one call of the sink."""

    WELL = "well"
    AWAY = "away"
    HANGS = "hangs"
    SLOW = "slow"
    REFUSES = "refuses"
    REBALANCE = "rebalance"
    REBALANCE_AND_AWAY = "rebalance and away"


@dataclass
class Story:
    """The fates of calls in their order; when they are used up all goes well."""

    puts: list[Fate]
    opens: list[Fate]
    flushes: list[Fate]
    world: World
    settled: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    """Whatever the sink has refused once it refuses whenever it comes again."""
    premature: list[int] = field(default_factory=list)
    """Offsets that were committed before their records were put or dead letters."""

    def __post_init__(self) -> None:
        """Let the sink act it out, and look at every commit."""
        sink = self.world.sink
        open_, flush = sink.open, sink.flush

        async def put(batch: SinkBatch) -> None:
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

        async def open_as_told(partitions: Mapping[Partition, int | None]) -> Offsets:
            await self._suffer(self._next(self.opens))
            return await open_(partitions)

        async def flush_as_told(offsets: Offsets) -> Offsets:
            await self._suffer(self._next(self.flushes))
            return await flush(offsets)

        sink.put, sink.open, sink.flush = put, open_as_told, flush_as_told  # type: ignore[method-assign]

    @property
    def letters(self) -> set[str]:
        """Values of the dead letters."""
        return {(value or b"").decode() for value in self.world.letters.values}

    def is_over(self) -> bool:
        """Whether all is committed; looks at what is."""
        committed, settled = self.world.group.committed or 0, self.settled | self.letters
        self.premature += [number for number in range(committed) if str(number) not in settled]
        return committed == RECORDS

    def _next(self, fates: list[Fate]) -> Fate:
        return fates.pop(0) if fates else Fate.WELL

    async def _suffer(self, fate: Fate) -> None:
        if fate in {Fate.REBALANCE, Fate.REBALANCE_AND_AWAY}:
            self.world.group.rebalance()
        await asyncio.sleep(25 if fate is Fate.SLOW else 0.01)
        if fate is Fate.HANGS:
            await asyncio.Event().wait()
        if fate in {Fate.AWAY, Fate.REBALANCE_AND_AWAY}:
            raise Retriable("away")


fates = st.lists(st.sampled_from(Fate), max_size=8)


@given(fates, st.lists(st.sampled_from([Fate.WELL, Fate.SLOW, Fate.AWAY, Fate.HANGS]), max_size=4), fates)
@settings(max_examples=30, deadline=None)
async def test_nothing_is_committed_that_was_not_put(puts: list[Fate], opens: list[Fate], flushes: list[Fate]) -> None:
    """Time-outs, rebalances, restarts: in the end every record was put, and their first times were in order."""
    rules = DeadLetterRules(is_tolerant=True, topic="letters")
    limits = PutLimits(records_max=4, seconds_max=30)
    world = World(FakeGroup(numbers(RECORDS)), rules, flush_seconds=1, limits=limits)
    story = Story(puts, opens, flushes, world)
    while not story.is_over():
        try:
            await run_until(world.task(), story.is_over, seconds_max=2_000)
        except ExceptionGroup as error:
            if recovery_of(error) is not Recovery.RETRY:
                raise
    assert story.premature == []
    first_times = [int(value or "") for value in dict.fromkeys(world.sink.values)]
    assert first_times == sorted(first_times)
    assert {*map(str, first_times), *story.letters} == {str(number) for number in range(RECORDS)}
