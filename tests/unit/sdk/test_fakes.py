"""The fakes that fetchers are tested with: virtual time, the context, and ``collect``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fetchers.sdk import FetchContext, FetcherConfig, Page, Retriable, SourceConnector, SystemClock
from fetchers.sdk.testing import FakeClock, FakeContext, collect, running


class Counter(SourceConnector[FetcherConfig]):
    """Counts, two numbers a page and three pages a round, then waits for the next round."""

    has_ended = False

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Numbers from the stored offset on."""
        number = int(context.offset.get("n") or 0)
        try:
            while True:
                for _ in range(3):
                    number += 2
                    yield Page([b"%d" % (number - 2), b"%d" % (number - 1)], offset={"n": number})
                context.finish_round()
                await context.clock.sleep(self.config.poll_interval)
        finally:
            self.has_ended = True


def counter() -> Counter:
    """A counter."""
    parsed = FetcherConfig.parse({"topic": "t"})
    assert parsed.config is not None
    return Counter(parsed.config)


async def test_sleepers_wake_in_order_without_waiting() -> None:
    """An hour passes at once, and whoever sleeps shorter wakes first."""
    clock, order = FakeClock(), []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        order.append((seconds, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for seconds in (3600.0, 5.0, 60.0):
            group.create_task(sleeper(seconds))
    assert order == [(5.0, 5.0), (60.0, 60.0), (3600.0, 3600.0)]
    assert (clock.now() - clock.start).total_seconds() == 3600.0


async def test_time_by_hand() -> None:
    """With ``is_automatic`` off only ``advance`` moves time, and a cancelled sleeper does not."""
    clock = FakeClock(is_automatic=False)
    async with asyncio.TaskGroup() as group:
        gone, stays = group.create_task(clock.sleep(5.0)), group.create_task(clock.sleep(10.0))
        await clock.wait_for_sleeper()
        gone.cancel()
        await clock.advance(9.0)
        assert not stays.done()
        await clock.advance(1.0)
    assert clock.monotonic() == 10.0


async def test_the_wall_clock_may_jump() -> None:
    """A jump moves ``now`` and leaves ``monotonic`` alone."""
    clock = FakeClock()
    clock.jump(-3600.0)
    assert ((clock.now() - clock.start).total_seconds(), clock.monotonic()) == (-3600.0, 0.0)


async def test_the_real_clock() -> None:
    """The system's clock is aware, in UTC, and its seconds are those of the event loop."""
    clock = SystemClock()
    await clock.sleep(0)
    assert clock.now().utcoffset() is not None
    assert clock.monotonic() == pytest.approx(asyncio.get_running_loop().time(), abs=1.0)


async def test_collects_one_round() -> None:
    """Without more words ``collect`` takes one round, and stops the fetcher as the worker would."""
    made = counter()
    pages = await collect(made, FakeContext())
    assert [page.offset["n"] for page in pages] == [2, 4, 6]
    assert made.has_ended


async def test_collects_pages_and_resumes() -> None:
    """``pages`` takes so many; a context with the last offset goes on after them."""
    pages = await collect(counter(), FakeContext(), pages=4)
    context = FakeContext()
    context.commit(pages[-1])
    assert list((await collect(counter(), context, pages=1))[0].values()) == [b"8", b"9"]
    assert FakeContext(offset={"n": 8}).offset == context.offset_of({})


async def test_collects_rounds() -> None:
    """``rounds`` counts from where the context stands."""
    context = FakeContext()
    assert len(await collect(counter(), context, rounds=2)) == 6
    assert context.rounds == 2
    assert len(await collect(counter(), context, rounds=1)) == 3


async def test_whoever_wants_to_hear_of_rounds_does() -> None:
    """``collect`` listens to them too, and takes nobody's place."""
    context, heard = FakeContext(), list[int]()
    context.on_round = heard.append
    await collect(counter(), context, rounds=2)
    await collect(counter(), context)
    assert heard == [1, 2, 3]


async def test_errors_come_through() -> None:
    """What the fetcher raises is raised, after the pages before it were seen."""

    class Failing(Counter):
        """Fails after a page."""

        async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
            """One page, then an error."""
            del context
            yield Page([b"1"], offset={})
            raise Retriable("gone")

    seen: list[Page] = []
    with pytest.raises(Retriable, match="gone"):
        await collect(Failing(counter().config), FakeContext(), on_page=seen.append)
    assert len(seen) == 1


async def test_a_fetcher_that_hangs_is_told_from_one_that_ends() -> None:
    """A fetcher that does nothing is a time-out of the test, one that returns is not."""

    class Hanging(Counter):
        """Never yields."""

        async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
            """Wait for ever."""
            await asyncio.Event().wait()
            yield Page([], offset=context.offset)

    class Ending(Counter):
        """Has no more."""

        async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
            """One page."""
            yield Page([], offset=context.offset)

    with pytest.raises(TimeoutError):
        await collect(Hanging(counter().config), FakeContext(), seconds_max=0.1)
    assert len(await collect(Ending(counter().config), FakeContext(), rounds=5)) == 1


async def test_leaving_the_block_stops_the_fetcher() -> None:
    """``running`` closes the generator."""
    made = counter()
    async with running(made, FakeContext()) as stream:
        await anext(stream)
        assert not made.has_ended
    assert made.has_ended
