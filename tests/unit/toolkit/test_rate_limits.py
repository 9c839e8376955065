"""Rate budgets in virtual time: never over a limit, fair, visible, and quick to give up."""

from __future__ import annotations

import asyncio
import random
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import BackOff
from fetchers.sdk.testing import FakeClock, FakeContext
from fetchers.toolkit.rate_limits import RateBudget, RateWindow, shared_budget
from metrics.events import RateLimitWaited

HOURLY = (RateWindow(3, 1.0), RateWindow(60, 3600.0))


async def _ask(budget: RateBudget, context: FakeContext, times: int, *, seconds: float = 0.0) -> list[float]:
    """Ask so many times; each request takes so long. Gives the moments at which they left."""
    moments = []
    for _ in range(times):
        async with budget.admitted(context):
            moments.append(context.clock.monotonic())
            await context.clock.sleep(seconds)
    return moments


async def test_two_years_of_days_keep_to_both_windows() -> None:
    """730 requests never exceed 3 in a second or 60 in an hour, and take no longer than they must."""
    budget, context = RateBudget(HOURLY), FakeContext()
    moments = await _ask(budget, context, 730)
    for window in HOURLY:
        for first, later in zip(moments, moments[window.count :], strict=False):
            assert later - first >= window.seconds - 1e-6
    assert moments[-1] == pytest.approx(12 * 3600, abs=60)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32))
def test_no_delay_of_the_network_lets_the_source_see_more(count: int, tasks: int, seed: int) -> None:
    """A request may reach the source at any moment between leaving and answer: still never too many in a window."""
    randomness = random.Random(seed)

    async def scenario() -> list[float]:
        clock = FakeClock()
        budget = RateBudget([RateWindow(count, 10.0)])
        arrivals: list[float] = []

        async def work() -> None:
            context = FakeContext(clock=clock)
            for _ in range(6):
                async with budget.admitted(context):
                    out, back = randomness.uniform(0, 8), randomness.uniform(0, 8)
                    await clock.sleep(out)
                    arrivals.append(clock.monotonic())
                    await clock.sleep(back)

        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(work())
        return sorted(arrivals)

    arrivals = asyncio.run(scenario())
    assert len(arrivals) == 6 * tasks
    assert all(later - first >= 10.0 - 1e-6 for first, later in zip(arrivals, arrivals[count:], strict=False))


async def test_the_wait_shows() -> None:
    """While it waits the context says so, and afterwards an event tells how long it was."""
    budget, context = RateBudget([RateWindow(1, 60.0)]), FakeContext()
    context.clock.is_automatic = False
    await _ask(budget, context, 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(_ask(budget, context, 1))
        await context.clock.wait_for_sleeper()
        waits = [context.is_waiting_for_limit]
        await context.clock.advance(60.0)
    assert [*waits, context.is_waiting_for_limit] == [True, False]
    assert context.events == [RateLimitWaited("test", 0, seconds=60.0)]


async def test_no_wait_no_event() -> None:
    """A request that may leave at once is nobody's news."""
    budget, context = RateBudget(HOURLY), FakeContext()
    assert await _ask(budget, context, 3) == [0.0, 0.0, 0.0]
    assert (context.events, context.limit_waits) == ([], 0)


async def test_a_cancelled_wait_ends_at_once_and_takes_nobodys_turn() -> None:
    """Whoever gives up the wait does not use up the budget; the next in the queue gets the turn."""
    budget, context = RateBudget([RateWindow(1, 60.0)]), FakeContext()
    context.clock.is_automatic = False
    await _ask(budget, context, 1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_ask(budget, context, 1))
        await context.clock.wait_for_sleeper()
        second = group.create_task(_ask(budget, context, 1))
        first.cancel()
        await asyncio.wait({first})
        await context.clock.wait_for_sleeper()
        await context.clock.advance(60.0)
    assert second.result() == [60.0]


async def test_waits_for_an_unanswered_request() -> None:
    """While a request is not answered, nobody knows when it reached the source: it holds its place."""
    budget, context = RateBudget([RateWindow(1, 10.0)]), FakeContext()
    async with asyncio.TaskGroup() as group:
        group.create_task(_ask(budget, context, 1, seconds=1000.0))
        later = group.create_task(_ask(budget, context, 1))
    assert later.result() == [pytest.approx(1010.0)]


async def test_all_hold_still_when_the_source_says_so() -> None:
    """After a 429 with Retry-After nobody asks with this credential until the time is over."""
    budget, context = RateBudget(HOURLY), FakeContext()
    assert budget.refuse(context.clock, asked_seconds=900.0) == 900.0
    assert await _ask(budget, context, 1) == [pytest.approx(900.0)]


async def test_a_refusal_that_does_not_say_how_long_holds_all_as_well() -> None:
    """Waits grow from refusal to refusal, also of a task that is started again, until the source gives something."""
    back_off, context = BackOff(first_seconds=2.0, jitter_seconds=0.0), FakeContext()
    waits = []
    for _ in range(3):
        refused = shared_budget("refused", (), clock=context.clock, back_off=back_off)
        waits.append(refused.refuse(context.clock, asked_seconds=None))
        assert refused.refuse(context.clock, asked_seconds=None) == waits[-1], "had left before the wait began"
        del refused
        other = shared_budget("refused", HOURLY, clock=context.clock)
        other.accept(context.clock)
        assert await _ask(other, context, 1) == [pytest.approx(sum(waits))]
        del other
    assert waits == [2.0, 4.0, 8.0]
    taken = shared_budget("refused", (), clock=context.clock, back_off=back_off)
    taken.accept(context.clock)
    assert taken.refuse(context.clock, asked_seconds=None) == 2.0


async def test_a_jump_of_the_wall_clock_changes_nothing() -> None:
    """Waits are counted in monotonic time: an administrator's hand on the clock neither cuts nor prolongs them."""
    budget, context = RateBudget([RateWindow(1, 60.0)]), FakeContext()
    await _ask(budget, context, 1)
    context.clock.jump(-86_400.0)
    assert await _ask(budget, context, 1) == [pytest.approx(60.0)]
    context.clock.jump(2 * 86_400.0)
    assert await _ask(budget, context, 1) == [pytest.approx(120.0)]


async def test_one_credential_one_budget() -> None:
    """What one task asks counts for all with its credential, and for nobody else."""
    context, windows = FakeContext(), [RateWindow(1, 60.0)]
    for name, moment in (("credential-one", 0.0), ("credential-two", 0.0), ("credential-one", 60.0)):
        assert await _ask(shared_budget(name, windows, clock=context.clock), context, 1) == [pytest.approx(moment)]


@pytest.mark.parametrize("counts", [(1, 2), (2, 1)])
async def test_whoever_names_the_strictest_limit_names_it_for_all(counts: tuple[int, int]) -> None:
    """A credential has one limit at its source; where two connectors name two, both hold for each."""
    clock = FakeClock()
    budgets = [shared_budget(f"limits {counts}", [RateWindow(count, 10.0)], clock=clock) for count in counts]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_ask(budget, FakeContext(clock=clock), 3)) for budget in budgets]
    moments = sorted(moment for task in tasks for moment in task.result())
    assert moments == [pytest.approx(10.0 * number, abs=0.1) for number in range(6)]


async def test_a_limit_ends_with_the_task_that_named_it() -> None:
    """A connector whose limit was raised is not held to the old one; what it has asked still counts."""
    context = FakeContext()
    await _ask(shared_budget("raised", [RateWindow(1, 60.0)], clock=context.clock), context, 1)
    raised = shared_budget("raised", [RateWindow(2, 60.0)], clock=context.clock)
    assert await _ask(raised, context, 2) == [0.0, pytest.approx(60.0)]


async def test_a_restarted_task_gets_no_fresh_allowance() -> None:
    """What was asked outlives the task that asked it for as long as it counts, and not longer."""
    windows, context = [RateWindow(1, 60.0)], FakeContext()
    await _ask(shared_budget("restarted", windows, clock=context.clock), context, 1)
    again = shared_budget("restarted", windows, clock=context.clock)
    assert await _ask(again, context, 1) == [pytest.approx(60.0)]
    ledger = ref(again._ledger)
    del again
    shared_budget("somebody else", windows, clock=context.clock)
    assert ledger() is not None
    await context.clock.advance(120.0)
    shared_budget("somebody else", windows, clock=context.clock)
    assert ledger() is None


async def test_a_clock_of_its_own_has_a_budget_of_its_own() -> None:
    """Times of one clock say nothing on another: what one test has asked must not hold up the next."""
    for _ in range(2):
        context = FakeContext()
        context.clock.is_automatic = False
        assert await _ask(shared_budget("each", [RateWindow(2, 60.0)], clock=context.clock), context, 2) == [0.0, 0.0]
