"""How far behind its files a task says it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from fetchers.file.fetcher import FileStreamSource
from fetchers.sdk.testing import FakeContext, collect, running

MakeSource = Callable[..., FileStreamSource]
HOUR_SECONDS = 3600.0


def write(path: Path, lines: bytes, context: FakeContext, *, seconds_ago: float = 0.0) -> None:
    """Add lines, as somebody did so long before the context's now."""
    with path.open("ab") as file:
        file.write(lines)
    at = (context.clock.now() - timedelta(seconds=seconds_ago)).timestamp()
    os.utime(path, (at, at))


async def test_a_backlog_is_told_before_its_first_page_and_its_end_after_the_last(
    source: MakeSource, log: Path
) -> None:
    """A queue that is full may keep the first page waiting for hours."""
    context = FakeContext()
    write(log, b"line\n" * 100, context, seconds_ago=HOUR_SECONDS)
    async with running(source(file=log, file_page_bytes=50, batch_size=1), context) as pages:
        await anext(pages)
        assert context.lags == [pytest.approx(HOUR_SECONDS)]
    await collect(source(file=log), context)
    assert context.lags[-1] == 0


async def test_the_oldest_of_several_files_counts(source: MakeSource, tmp_path: Path) -> None:
    """One that is read to its end does not."""
    context = FakeContext()
    write(tmp_path / "read.log", b"1\n", context, seconds_ago=3 * HOUR_SECONDS)
    for page in await collect(source(file=tmp_path / "*.log"), context):
        context.commit(page)
    context.lags.clear()
    write(tmp_path / "new.log", b"2\n" * 100, context, seconds_ago=60)
    write(tmp_path / "old.log", b"3\n" * 100, context, seconds_ago=HOUR_SECONDS)
    await collect(source(file=tmp_path / "*.log"), context)
    assert context.lags == [pytest.approx(HOUR_SECONDS), 0]


async def test_a_file_that_always_grows_is_as_far_behind_as_what_is_unread_is_old(
    source: MakeSource, log: Path
) -> None:
    """Its time of modification is always now: what it held at an earlier look, and is not read, tells its age."""
    context = FakeContext()
    context.clock.is_automatic = False
    write(log, b"line\n" * 100, context)
    async with running(source(file=log, file_page_bytes=50, batch_size=1), context) as pages:
        for _ in range(6):
            await anext(pages)
            await context.clock.advance(60)
            write(log, b"line\n" * 100, context)
    assert context.lags[0] == 0
    assert context.lags[-1] == pytest.approx(300, abs=61), context.lags
