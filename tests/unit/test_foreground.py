"""Work that can wait lets go first what somebody waits for, and is not kept waiting for ever."""

from __future__ import annotations

import asyncio

import pytest

from service.foreground import CALM_AFTER_SECONDS, TRICKLE_SECONDS, Foreground

pytestmark = pytest.mark.looptime


def now() -> float:
    """Virtual time."""
    return asyncio.get_running_loop().time()


async def test_nothing_waits_while_it_is_calm() -> None:
    """From the start."""
    foreground = Foreground()
    assert foreground.is_calm
    await foreground.give_way()
    assert now() == 0


async def test_who_asks_again_at_once_is_waited_for_again() -> None:
    """It is calm a little after the last one was answered, also when it failed."""
    foreground = Foreground()
    for _ in range(2):
        with pytest.raises(TimeoutError), foreground.in_hand():
            await asyncio.wait_for(asyncio.Event().wait(), 0.04)
        await asyncio.sleep(CALM_AFTER_SECONDS - 0.01)
        assert not foreground.is_calm
    await foreground.give_way()
    assert now() == pytest.approx(2 * 0.04 + 2 * CALM_AFTER_SECONDS - 0.01)


async def test_two_at_once_are_both_waited_for() -> None:
    """The one that is answered first makes it no calmer."""
    foreground = Foreground()
    with foreground.in_hand():
        with foreground.in_hand():
            pass
        await asyncio.sleep(TRICKLE_SECONDS / 2)
        assert not foreground.is_calm
    await foreground.give_way()
    assert now() == pytest.approx(TRICKLE_SECONDS / 2 + CALM_AFTER_SECONDS)


async def test_one_after_the_other_comes_through_meanwhile_and_all_as_soon_as_it_is_calm() -> None:
    """In order of arrival."""
    foreground, passed = Foreground(), list[tuple[int, float]]()

    async def work(number: int) -> None:
        await foreground.give_way()
        passed.append((number, now()))

    async with asyncio.TaskGroup() as group:
        with foreground.in_hand():
            for number in range(5):
                group.create_task(work(number))
            await asyncio.sleep(2.5 * TRICKLE_SECONDS)
    calm = 2.5 * TRICKLE_SECONDS + CALM_AFTER_SECONDS
    assert [number for number, _ in passed] == list(range(5))
    expected = (TRICKLE_SECONDS, 2 * TRICKLE_SECONDS, calm, calm, calm)
    assert [seconds for _, seconds in passed] == pytest.approx(expected)


async def test_who_gives_up_keeps_nobody_behind_it_waiting() -> None:
    """A start that is cancelled while it is the first of the line."""
    foreground = Foreground()
    with foreground.in_hand():
        async with asyncio.TaskGroup() as group:
            first = group.create_task(foreground.give_way())
            group.create_task(foreground.give_way())
            await asyncio.sleep(TRICKLE_SECONDS / 2)
            first.cancel()
    assert now() == pytest.approx(1.5 * TRICKLE_SECONDS)
