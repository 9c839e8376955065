"""One run of an errand serves everyone who asked before it began, and nobody who asked after."""

from __future__ import annotations

import asyncio

import pytest

from service.kafka.rounds import SharedRounds


class Errand:
    """Counts its runs; each takes a second of virtual time."""

    def __init__(self) -> None:
        """Nothing ran yet."""
        self.runs = 0
        self.running = 0
        self.fails_in: int | None = None

    async def __call__(self) -> int:
        """The number of the run."""
        self.runs += 1
        number = self.runs
        self.running += 1
        assert self.running == 1
        try:
            await asyncio.sleep(1)
        finally:
            self.running -= 1
        if number == self.fails_in:
            raise OSError("broken")
        return number


@pytest.mark.looptime
async def test_a_thousand_who_ask_together_cost_two_runs() -> None:
    """The first asks alone, the second run is everybody else's."""
    errand = Errand()
    rounds = SharedRounds(errand)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(rounds.answer()) for _ in range(1000)]
    assert [task.result() for task in asking] == [1] + [2] * 999
    assert errand.runs == 2


@pytest.mark.looptime
async def test_who_asks_during_a_run_waits_for_the_next() -> None:
    """What is written during a run may be missing from its answer."""
    rounds = SharedRounds(Errand())
    async with asyncio.TaskGroup() as group:
        first = group.create_task(rounds.answer())
        await asyncio.sleep(0.5)
        second = group.create_task(rounds.answer())
    assert (first.result(), second.result()) == (1, 2)
    assert await rounds.answer() == 3


@pytest.mark.looptime
async def test_an_error_is_nobody_elses() -> None:
    """Whose run fails hears of it; the others get a run that succeeds. So it is with cancellation."""
    errand = Errand()
    errand.fails_in = 1
    rounds = SharedRounds(errand)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(_outcome(rounds)) for _ in range(3)]
    assert [task.result() for task in asking] == ["broken", 2, 2]
    async with asyncio.TaskGroup() as group:
        cancelled, other = (group.create_task(_outcome(rounds)) for _ in range(2))
        await asyncio.sleep(0.5)
        cancelled.cancel()
    assert other.result() == 4


async def _outcome(rounds: SharedRounds[int]) -> int | str:
    try:
        return await rounds.answer()
    except OSError as error:
        return str(error)


@pytest.mark.looptime
async def test_an_answer_may_last() -> None:
    """So long nobody's question is asked again, counted from when it was; an error lasts for no time at all."""
    errand = Errand()
    errand.fails_in = 1
    rounds = SharedRounds(errand, lasting_seconds=10)
    assert [await _outcome(rounds), await _outcome(rounds)] == ["broken", 2]
    await asyncio.sleep(8.5)
    assert await rounds.answer() == 2
    await asyncio.sleep(1)
    assert await rounds.answer() == 3
