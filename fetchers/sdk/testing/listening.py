"""The contract suite of listeners: that of every fetcher, and what only a source that talks by itself brings about."""

# ruff: noqa: S101 - this is test code that ships: assert is how it speaks

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar, cast

from fetchers.sdk.inbox import InboxLimits
from fetchers.sdk.page import Page
from fetchers.sdk.testing.case import ListenerCase, TalkingSource
from fetchers.sdk.testing.collect import SECONDS_MAX, running
from fetchers.sdk.testing.context import FakeContext
from fetchers.sdk.testing.contract import QUIET_SECONDS, Bench, FetcherContract, assert_stops_after
from metrics.events import InboxWaitBegan, SourceGap


class ListenerContract(FetcherContract):
    """Tests of one listener; ``case`` is a ``ListenerCase``."""

    case: ClassVar[ListenerCase]

    async def test_resumes_from_any_committed_offset(self, tmp_path: Path) -> None:
        """Without gap or repeat; where the source cannot be resumed, the gap is told before anything new comes."""
        if self.case.is_resumable:
            await super().test_resumes_from_any_committed_offset(tmp_path)
            return
        async with self._open(tmp_path) as bench:
            first = bench.context()
            whole = await bench.collect(first)
            assert not _gaps(first), "the first connection of all has missed nothing"
            again = bench.context(after=whole)
            async with running(bench.connector(), again) as stream:
                await anext(stream)
                assert [gap.reason for gap in _gaps(again)] == ["restarted"]
                assert _gaps(again)[0].seconds is not None

    async def test_goes_on_after_its_connection_is_cut(self, tmp_path: Path) -> None:
        """It connects again: nothing is lost or repeated, or else the gap is told."""
        async with self._open(tmp_path) as bench:
            source, context = _talking(bench), bench.context()
            pages: list[Page] = []
            async with running(bench.connector(), context) as stream, asyncio.timeout(SECONDS_MAX):
                while _records(pages) < len(source.expected):
                    pages.append(await anext(stream))
                await source.cut()
                await source.add()
                while not self._has_recovered(pages, context, source):
                    pages.append(await anext(stream))
            if self.case.is_resumable:
                assert not _gaps(context)
                self._assert_resumed(pages, [], source.expected)
            else:
                assert [gap.reason for gap in _gaps(context)] == ["disconnected"]

    async def test_stops_while_it_waits_to_connect_again(self, tmp_path: Path) -> None:
        """Cancelled while backing off, it ends at once and leaves no task behind."""
        async with self._open(tmp_path) as bench:
            await _talking(bench).be_away()
            context = bench.context()
            context.clock.is_automatic = False
            work = _take_all(bench, context)
            await assert_stops_after(_until_patient(context), work)

    async def test_stops_while_its_inbox_is_full(self, tmp_path: Path) -> None:
        """Cancelled while nobody takes its pages, it ends at once and leaves no task behind."""
        async with self._open(tmp_path) as bench:
            await _talking(bench).add_flood()
            context = bench.context()
            await assert_stops_after(_until_full(context), _take_one(bench, context))

    async def test_a_slow_pipeline_makes_memory_no_larger(self, tmp_path: Path) -> None:
        """While nobody takes its pages it holds what the inbox may hold, and the source has to wait."""
        async with self._open(tmp_path) as bench:
            source, context = _talking(bench), bench.context()
            await source.add_flood()
            async with running(bench.connector(), context) as stream:
                await anext(stream)
                async with asyncio.timeout(SECONDS_MAX):
                    await _until_full(context)
                await asyncio.sleep(QUIET_SECONDS)
                (inbox,) = context.inboxes
                limits = InboxLimits()
                assert inbox.records <= limits.records_max
                assert inbox.bytes <= limits.bytes_max
                given = source.records_given
                assert given is None or given <= self.case.records_ahead_max

    def _has_recovered(self, pages: list[Page], context: FakeContext, source: TalkingSource) -> bool:
        return _records(pages) >= len(source.expected) if self.case.is_resumable else bool(_gaps(context))


def _talking(bench: Bench) -> TalkingSource:
    return cast("TalkingSource", bench.source)


def _gaps(context: FakeContext) -> list[SourceGap]:
    return [event for event in context.events if isinstance(event, SourceGap)]


def _records(pages: list[Page]) -> int:
    return sum(map(len, pages))


async def _take_all(bench: Bench, context: FakeContext) -> None:
    async with running(bench.connector(), context, seconds_max=SECONDS_MAX) as stream:
        async for _page in stream:
            pass


async def _take_one(bench: Bench, context: FakeContext) -> None:
    async with running(bench.connector(), context) as stream:
        await anext(stream)
        await asyncio.Event().wait()


async def _until_patient(context: FakeContext) -> None:
    """Until it waits to connect again, and not for no time at all."""
    while not context.clock.sleepers:
        await context.clock.wait_for_sleeper()


async def _until_full(context: FakeContext) -> None:
    while not any(isinstance(event, InboxWaitBegan) for event in context.events):
        await asyncio.sleep(0)
