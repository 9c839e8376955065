"""Blocking code of connectors, in real threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, get_native_id

import pytest

from service.domain.errors import ConnectorExitError
from service.worker.foreign_calls import CALLS_AT_ONCE, ForeignCallHangsError, ForeignCalls


@contextmanager
def calls_with(seconds_max: float) -> Iterator[ForeignCalls]:
    """Calls whose threads end with the block."""
    calls = ForeignCalls(seconds_max=seconds_max)
    try:
        yield calls
    finally:
        calls.close()


def fail() -> None:
    """A connector's bug."""
    message = "no such table"
    raise LookupError(message)


async def test_a_call_returns_and_raises_as_if_it_were_made_here() -> None:
    """Through a thread."""
    with calls_with(300) as calls:
        assert await calls.run(lambda: 6 * 7, subject="a") == 42
        with pytest.raises(LookupError, match="no such table"):
            await calls.run(fail, subject="a")


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError(), StopIteration()])
async def test_a_call_that_wants_to_end_the_process_fails_and_no_more(error: BaseException) -> None:
    """Its thread lives on, its subject may be asked again, and nobody waits for the time limit."""

    def end() -> None:
        raise error

    with calls_with(300) as calls:
        for _ in range(2 * CALLS_AT_ONCE):
            with pytest.raises(ConnectorExitError, match=type(error).__name__):
                await calls.run(end, subject="a")
        assert await calls.run(lambda: "well", subject="a") == "well"


async def test_a_call_that_hangs_is_left_behind_and_made_no_second_time() -> None:
    """Others go on, and so does the same connector once the call has returned."""
    release = Event()
    with calls_with(0.05) as calls:
        for number in range(3 * CALLS_AT_ONCE):
            with pytest.raises(ForeignCallHangsError, match="did not return within"):
                await calls.run(release.wait, subject=number)
        with pytest.raises(ForeignCallHangsError, match="still hangs"):
            await calls.run(release.wait, subject=0)
        release.set()
        while True:
            try:
                assert await calls.run(lambda: "well", subject=0) == "well"
            except ForeignCallHangsError:
                await asyncio.sleep(0.01)
            else:
                break


async def test_a_thousand_calls_take_a_few_threads() -> None:
    """And these are used again."""
    with calls_with(300) as calls:
        used: set[int] = set()
        for number in range(1_000):
            used.add(await calls.run(get_native_id, subject=number))
        assert len(used) <= CALLS_AT_ONCE
