"""Background work that nothing unforeseen ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from service.background import Background, located, persist

pytestmark = pytest.mark.looptime


async def test_what_nobody_foresaw_is_told_and_the_work_goes_on() -> None:
    """Once for each end; work that returns is done."""
    runs: list[int] = []
    told: list[str] = []

    async def work() -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            raise KeyError(len(runs))

    async with Background() as background:
        background.start(persist(work, tell=lambda error: told.append(repr(error)), wait_seconds=5), name="work")
        await asyncio.sleep(11)
    assert runs == [0, 1, 2]
    assert told == ["KeyError(1)", "KeyError(2)"]


async def test_work_is_not_run_again_at_once() -> None:
    """What always fails leaves time for the others."""
    runs: list[float] = []

    async def work() -> None:
        runs.append(asyncio.get_running_loop().time())
        raise ValueError

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(9):
            await persist(work, tell=lambda _error: None, wait_seconds=4)
    assert [at - runs[0] for at in runs] == [0, 4, 8]


def test_an_error_says_in_a_line_where_it_was_raised() -> None:
    """A log that says only what, of a bug, helps nobody."""
    try:
        raise LookupError("of nothing")  # noqa: TRY301 - it needs a trace
    except LookupError as error:
        said = located(error)
    assert said.startswith("LookupError: of nothing (")
    assert f"{Path(__file__).name}:" in said
    assert located(LookupError("never raised")) == "LookupError: never raised"
