"""So many at once, and nobody keeps the others out."""

from __future__ import annotations

import asyncio

import pytest

from service.worker.turnstile import Turnstile

pytestmark = pytest.mark.looptime


async def test_the_next_one_enters_when_one_leaves() -> None:
    """In order of arrival."""
    turnstile, log = Turnstile(2, seconds_max=100), list[int]()

    async def pass_through(number: int) -> None:
        place = await turnstile.enter()
        log.append(number)
        await asyncio.sleep(1)
        place.leave()
        place.leave()

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(pass_through(number))
        await asyncio.sleep(0.5)
        assert log == [0, 1]
        await asyncio.sleep(1)
        assert log == [0, 1, 2, 3]


async def test_one_that_hangs_no_longer_counts() -> None:
    """And when it leaves at last, it makes no second place."""
    turnstile = Turnstile(1, seconds_max=5)
    hanging = await turnstile.enter()
    second = await turnstile.enter()
    assert asyncio.get_running_loop().time() == pytest.approx(5)
    hanging.leave()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await turnstile.enter()
    second.leave()
    await turnstile.enter()


async def test_nobody_enters_before_having_given_way() -> None:
    """And who waits for that takes no place."""
    turnstile = Turnstile(1, seconds_max=100, give_way=lambda: asyncio.sleep(3))
    place = await turnstile.enter()
    assert asyncio.get_running_loop().time() == 3
    place.leave()
    await turnstile.enter()
    assert asyncio.get_running_loop().time() == 6
