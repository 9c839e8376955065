"""Rate budgets in virtual time: never over a limit, fair, visible, and quick to give up."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk.testing import FakeClock, FakeContext
from fetchers.toolkit.rate_limits import RateBudget, RateWindow, shared_budget
from metrics.events import RateLimitWaited

HOURLY = (RateWindow(3, 1.0), RateWindow(60, 3600.0))


async def _ask(budget: RateBudget, context: FakeContext, times: int, *, seconds: float = 0.0) -> list[float]:
    """Ask so many times; each request takes so long. Gives the moments at which they left."""
    moments = []
    for _ in range(times):
        async with budget.turn(context):
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
                async with budget.turn(context):
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
    budget.hold(900.0, context.clock)
    assert await _ask(budget, context, 1) == [pytest.approx(900.0)]


async def test_a_jump_of_the_wall_clock_changes_nothing() -> None:
    """Waits are counted in monotonic time: an administrator's hand on the clock neither cuts nor prolongs them."""
    budget, context = RateBudget([RateWindow(1, 60.0)]), FakeContext()
    await _ask(budget, context, 1)
    context.clock.jump(-86_400.0)
    assert await _ask(budget, context, 1) == [pytest.approx(60.0)]
    context.clock.jump(2 * 86_400.0)
    assert await _ask(budget, context, 1) == [pytest.approx(120.0)]


async def test_one_credential_one_budget() -> None:
    """Tasks with the same credential share a budget, others do not."""
    clock = FakeClock()
    mine, yours = (shared_budget(name, HOURLY, clock=clock) for name in ("credential-one", "credential-two"))
    assert shared_budget("credential-one", HOURLY, clock=clock) is mine
    assert mine is not yours


async def test_a_restarted_task_gets_no_fresh_allowance() -> None:
    """A budget outlives the task that used it for as long as its requests count, and not longer."""
    windows, context = [RateWindow(1, 60.0)], FakeContext()
    await _ask(shared_budget("restarted", windows, clock=context.clock), context, 1)
    again = shared_budget("restarted", windows, clock=context.clock)
    assert await _ask(again, context, 1) == [pytest.approx(60.0)]
    number = id(again)
    del again
    await context.clock.advance(120.0)
    shared_budget("somebody else", windows, clock=context.clock)
    assert not shared_budget("restarted", windows, clock=context.clock)._turns, number
