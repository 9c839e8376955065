"""The first records of a source: how many are taken, and what ends it."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import (
    Disconnected,
    Fatal,
    FetchContext,
    FetcherConfig,
    Inbox,
    Page,
    RateLimited,
    Retriable,
    SourceConnector,
    listen,
)
from fetchers.sdk.page import Rejection
from service.config.definition import read_definition
from service.config.worker import with_defaults
from service.domain.errors import ConnectorExitError
from service.preview.sampling import Sample, SampleEnd, SampleLimits, first_records, sample, sample_of
from tests.unit.pipeline.fakes import HttpUnused

Fetch = Callable[[FetchContext], AsyncIterator[Page]]


class Scripted(SourceConnector[FetcherConfig]):
    """Fetches as the test says, and remembers whether it was let to clean up."""

    def __init__(self, script: Fetch) -> None:
        super().__init__(FetcherConfig.parse({"topic": "t"}).config or pytest.fail("the config is valid"))
        self.script = script
        self.has_cleaned_up = False
        self.commits = 0

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Follow the script."""
        try:
            script: Any = self.script(context)
            async with aclosing(script) as pages:
                async for page in pages:
                    yield page
        finally:
            self.has_cleaned_up = True

    async def on_committed(self, *_: Any) -> None:
        """Count what must not be heard of."""
        self.commits += 1


async def sampled(script: Fetch, **limits: Any) -> Sample:
    """A sample of what the script fetches, after which nothing of it is left."""
    connector = Scripted(script)
    taken = await sample_of(connector, SampleLimits(**limits), name="c", http=HttpUnused())
    assert connector.has_cleaned_up
    assert connector.commits == 0
    return taken


def page_of(*payloads: bytes | None, position: int = 0, **options: Any) -> Page:
    """A page that is resumed after at ``position``."""
    return Page(list(payloads), {"position": position}, **options)


def payloads(taken: Sample) -> list[bytes | None]:
    """All of them in order."""
    return [payload for page in taken.pages for payload in page.values()]


async def numbers_for_ever(context: FetchContext) -> AsyncIterator[Page]:
    """Four on each page."""
    first = int(context.offset.get("position") or 0)
    while True:
        yield page_of(*(b"%d" % number for number in range(first, first + 4)), position=first + 4)
        first += 4


async def test_a_source_without_end_is_left_as_soon_as_there_are_records_enough() -> None:
    """The offset told is that of the whole page, and what it had beyond the sample is counted."""
    taken = await sampled(numbers_for_ever, records_max=6)
    assert payloads(taken) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert (taken.end, taken.left, taken.has_more) == (SampleEnd.RECORDS, 2, True)
    assert taken.offsets == (({}, {"position": 8}),)


async def test_whether_there_is_more_is_unknown_where_the_page_ends_with_the_sample() -> None:
    """Nobody has asked the source again for it."""
    taken = await sampled(numbers_for_ever, records_max=4)
    assert (taken.end, taken.left, taken.has_more) == (SampleEnd.RECORDS, 0, None)


@pytest.mark.parametrize("is_told_before", [True, False])
async def test_a_source_that_is_read_to_its_end_says_so_at_once(is_told_before: bool) -> None:  # noqa: FBT001
    """Whether the fetcher says it before or after its last page; what it waits for afterwards is not waited for."""

    async def polled(context: FetchContext) -> AsyncIterator[Page]:
        if is_told_before:
            context.finish_round()
        yield page_of(b"1", None, position=2)
        context.finish_round()
        await asyncio.sleep(3600)

    taken = await sampled(polled)
    assert payloads(taken) == [b"1", None]
    assert (taken.end, taken.has_more) == (SampleEnd.SOURCE, False)


async def test_a_source_that_ends_has_no_more() -> None:
    """Standard input, for one."""

    async def empty(_: FetchContext) -> AsyncIterator[Page]:
        for page in list[Page]():
            yield page

    taken = await sampled(empty)
    assert (taken.records, taken.end, taken.has_more) == (0, SampleEnd.SOURCE, False)


@pytest.mark.looptime
async def test_a_source_that_answers_nothing_ends_with_the_time_limit() -> None:
    """What came before it is kept."""

    async def silent(_: FetchContext) -> AsyncIterator[Page]:
        yield page_of(b"1")
        await asyncio.Event().wait()

    taken = await sampled(silent, seconds_max=5.0)
    assert (payloads(taken), taken.end, taken.has_more) == ([b"1"], SampleEnd.TIME, None)


async def test_a_source_that_never_waits_cannot_keep_the_time_limit_from_coming() -> None:
    """Pages without records, one after another, for ever."""

    async def busy(_: FetchContext) -> AsyncIterator[Page]:
        while True:
            yield page_of()

    assert (await sampled(busy, seconds_max=0.01)).end is SampleEnd.TIME


async def test_payloads_are_bounded_in_bytes_and_the_first_is_taken_whatever_its_size() -> None:
    """A sample that shows nothing would help nobody."""

    async def large(_: FetchContext) -> AsyncIterator[Page]:
        yield page_of(b"x" * 100, b"y", position=2)

    assert payloads(await sampled(large, bytes_max=10)) == [b"x" * 100]
    taken = await sampled(large, bytes_max=100)
    assert (taken.records, taken.end, taken.left) == (1, SampleEnd.BYTES, 1)
    assert (await sampled(large, bytes_max=102)).records == 2


@pytest.mark.parametrize("error", [Fatal("401"), Retriable("reset"), ValueError("a bug")])
async def test_what_the_fetcher_raises_ends_the_sample_with_what_it_has(error: Exception) -> None:
    """Bad credentials, a source that is down, a mistake in the fetcher: told at once instead of tried for long."""

    async def failing(_: FetchContext) -> AsyncIterator[Page]:
        yield page_of(b"1")
        raise error

    taken = await sampled(failing)
    assert (payloads(taken), taken.end, taken.error) == ([b"1"], SampleEnd.ERROR, error)


@pytest.mark.parametrize("is_closing", [False, True])
async def test_a_fetcher_that_wants_to_end_the_process_ends_the_sample_only(is_closing: bool) -> None:  # noqa: FBT001
    """``sys.exit`` in a source's own code, also while it cleans up: the worker that previews it goes on."""

    async def leaving(_: FetchContext) -> AsyncIterator[Page]:
        try:
            yield page_of(b"1")
            if not is_closing:
                sys.exit("no licence")
        finally:
            if is_closing:
                sys.exit("no licence")

    taken = await sampled(leaving, records_max=1 if is_closing else 9)
    assert (payloads(taken), taken.end) == ([b"1"], SampleEnd.ERROR)
    assert isinstance(taken.error, ConnectorExitError)
    assert "SystemExit: no licence" in str(taken.error)


@pytest.mark.looptime
async def test_a_source_that_asks_for_no_wait_is_not_asked_without_a_pause() -> None:
    """One that answers ``Retry-After: 0`` for ever, within a time limit of ten seconds."""
    asked = 0

    async def limited(_: FetchContext) -> AsyncIterator[Page]:
        nonlocal asked
        asked += 1
        if asked > 100:
            raise Fatal("asked without a pause")
        for page in list[Page]():
            yield page
        raise RateLimited("429", wait_seconds=0.0)

    taken = await sampled(limited, seconds_max=10.0)
    assert taken.end is SampleEnd.TIME
    assert 5 <= asked <= 10


@pytest.mark.parametrize("is_calling", [False, True])
async def test_a_cancelled_sample_leaves_no_thread(is_calling: bool) -> None:  # noqa: FBT001
    """Neither one that waits for calls, nor one whose call returns when nobody waits for it any more."""
    threads: list[threading.Thread] = []
    reached, is_let_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def call() -> None:
        threads.append(threading.current_thread())
        if is_calling:
            loop.call_soon_threadsafe(reached.set)
            is_let_go.wait()

    async def asking(context: FetchContext) -> AsyncIterator[Page]:
        await context.run_blocking(call, subject="database")
        reached.set()
        await asyncio.Event().wait()
        yield page_of()

    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sample_of(Scripted(asking), SampleLimits(), name="c", http=HttpUnused()))
        await reached.wait()
        sampling.cancel()
    is_let_go.set()
    (thread,) = threads
    await asyncio.to_thread(thread.join)
    assert not thread.is_alive()


@pytest.mark.looptime
async def test_a_wait_that_the_source_asks_for_is_made_and_the_fetch_goes_on_after_the_last_page() -> None:
    """A sample of thousands meets rate limits."""
    asked = iter((RateLimited("429", wait_seconds=7.0),))

    async def limited(context: FetchContext) -> AsyncIterator[Page]:
        async for page in numbers_for_ever(context):
            yield page
            for error in asked:
                raise error

    taken = await sampled(limited, records_max=8)
    assert payloads(taken) == [b"%d" % number for number in range(8)]


async def test_a_cancelled_sample_lets_the_fetcher_clean_up() -> None:
    """Ctrl-C, or a client that has gone."""
    reached = asyncio.Event()

    async def silent(_: FetchContext) -> AsyncIterator[Page]:
        reached.set()
        await asyncio.Event().wait()
        yield page_of()

    connector = Scripted(silent)
    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sample_of(connector, SampleLimits(), name="c", http=HttpUnused()))
        await reached.wait()
        sampling.cancel()
    assert connector.has_cleaned_up


@pytest.mark.looptime
async def test_a_fetcher_that_swallows_its_cancellation_is_left_behind() -> None:
    """The sample ends all the same."""
    is_let_go = asyncio.Event()

    async def stubborn(context: FetchContext) -> AsyncIterator[Page]:
        yield page_of(b"1")
        context.finish_round()
        while not is_let_go.is_set():
            try:
                await is_let_go.wait()
            except asyncio.CancelledError:
                continue

    taken = await sample_of(Scripted(stubborn), SampleLimits(), name="c", http=HttpUnused())
    assert (payloads(taken), taken.end) == ([b"1"], SampleEnd.SOURCE)
    is_let_go.set()
    await asyncio.sleep(1)


async def test_lines_of_a_file_are_sampled_by_its_config_alone_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    """The whole way from a config to records, without Kafka, and with none of its offsets."""
    file = tmp_path / "lines.txt"
    file.write_bytes(b"one\ntwo\nthree\n")
    properties = {"name": "lines", "connector.class": "FileStreamSource", "file": str(file), "topic": "t"}
    definition = read_definition(properties, worker=with_defaults({})).definition
    assert definition is not None
    taken = await sample(definition, SampleLimits(records_max=2))
    assert payloads(taken) == [b"one", b"two"]
    assert (taken.left, taken.has_more) == (1, True)
    assert (await sample(definition, SampleLimits())).end is SampleEnd.SOURCE
    assert ([*tmp_path.iterdir()], file.read_bytes()) == ([file], b"one\ntwo\nthree\n")


@given(st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=6), st.data())
def test_the_first_records_of_a_page_keep_everything_that_belongs_to_them(
    values: list[bytes | None], data: st.DataObject
) -> None:
    """Keys, times, headers, positions, and the fetcher's own verdicts; the offset is that of the whole page."""
    rows = range(len(values))
    count = data.draw(st.integers(1, len(values)))
    whole = page_of(
        *values,
        topic="other",
        keys=[b"%d" % row for row in rows],
        timestamps_ms=list(rows),
        headers=[[("row", b"%d" % row)] for row in rows],
        positions=list(rows),
        rejections=tuple(Rejection(row, "too_large", "one") for row in rows),
    )
    cut = first_records(whole, count)
    assert list(cut.values()) == values[:count]
    for name in ("keys", "timestamps_ms", "positions"):
        assert getattr(cut, name).equals(getattr(whole, name)[:count])
    assert cut.headers == (whole.headers or [])[:count]
    assert [each.index for each in cut.rejections] == list(range(count))
    assert (cut.offset, cut.topic) == (whole.offset, "other")


async def test_a_listener_is_sampled_until_it_has_said_enough() -> None:
    """That it is connected is no end of it; that its source is away is told at once."""

    async def talk(inbox: Inbox) -> None:
        inbox.connected(is_resumed=True)
        for number in range(3):
            await asyncio.sleep(0)
            await inbox.put([b"%d" % number], offset={"position": number})
        raise Disconnected("it hung up")

    async def listening(context: FetchContext) -> AsyncIterator[Page]:
        async with aclosing(listen(context, talk)) as pages:
            async for page in pages:
                yield page

    taken = await sampled(listening, records_max=2)
    assert (payloads(taken), taken.end) == ([b"0", b"1"], SampleEnd.RECORDS)
    taken = await sampled(listening, records_max=9)
    assert (payloads(taken), taken.end) == ([b"0", b"1", b"2"], SampleEnd.ERROR)
    assert str(taken.error) == "it hung up"
