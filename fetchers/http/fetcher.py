"""``HttpSource``: asks an endpoint in rounds, and hands over what is new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar, TypeVarTuple

from yarl import URL

from fetchers.http import asking, findings, settings
from fetchers.http.anew import Anew
from fetchers.http.answers import CutAnswer
from fetchers.http.asking import Answered, Endpoint
from fetchers.http.bookmark import Bookmark, told
from fetchers.http.config import HttpSourceConfig
from fetchers.http.parents import parents
from fetchers.http.walk import BegunAgainError, HandedOver, Walk
from fetchers.sdk import (
    FetchContext,
    FetchError,
    Finding,
    Page,
    Partition,
    PayloadKind,
    Rejection,
    Retriable,
    Severity,
    SourceConnector,
)
from fetchers.sdk.ahead import Ahead
from fetchers.toolkit.pagination import CursorOfRecord, PageGuard, Place
from fetchers.toolkit.watermark import instant_of
from metrics.events import PagesMoved

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

RECORDS_ON_LOOP_MAX = 5_000
"""In a page with more records, also what is new is found in a thread."""

BEGUN_AGAIN_MAX = 3
"""Times that one round begins again at once; then the worker waits before the next try."""


@dataclass(frozen=True, slots=True)
class _List:
    """A list of records, and the source partition that it is."""

    endpoint: Endpoint
    names: Sequence[str]
    """The offset fields."""
    partition: Partition

    def page(self, answer: CutAnswer, news: Sequence[int], bookmark: Bookmark) -> Page:
        """These records of an answer."""
        is_whole = len(news) == len(answer.records)
        payloads = list(answer.records) if is_whole else [answer.records[position] for position in news]
        return self._page(payloads, bookmark, answer.rejections_among(news))

    def empty_page(self, bookmark: Bookmark) -> Page:
        """A page that only says where to go on."""
        return self._page([], bookmark, ())

    def _page(self, payloads: list[bytes], bookmark: Bookmark, rejections: tuple[Rejection, ...]) -> Page:
        offset = bookmark.offset(self.names)
        return Page(payloads, offset, self.partition, told_offset=told(offset), rejections=rejections)


class HttpSource(SourceConnector[HttpSourceConfig]):
    """Polls an endpoint: each round is one way through its pages, filtered by what was read before."""

    payload_kind = PayloadKind.JSON

    def __init__(self, config: HttpSourceConfig) -> None:
        super().__init__(config)
        self._names = config.http_offset_field
        self._read: set[str] = set()
        """Parents whose lists this round has read to the end, in the life of ``_read_by``."""
        self._read_by: FetchContext | None = None

    @property
    def is_typeless(self) -> bool:
        """So is CSV."""
        return self.config.http_format == "csv"

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        return tuple(findings.findings(self.config))

    def partition(self) -> Partition:
        """The endpoint, without its query: that may hold secrets."""
        url = URL(self.config.http_url)
        return {"url": str(url.with_user(None).with_query(None).with_fragment(None))}

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Ask for the first page, as a first round does; of two levels that of the parents."""
        key, url = "http.url", self.config.http_url
        asked = asking.endpoint(self.config, clock=context.clock)
        of_parents = asking.parents_endpoint(self.config, clock=context.clock)
        if of_parents is not None:
            key, url, asked = "http.parent.url", self.config.http_parent_url or "", of_parents
        shown = str(URL(url).with_user(None).with_query(None).with_fragment(None))
        place = None if self.config.http_pagination_type == "mark" else asked.pagination.first()
        try:
            first = await asked.ask(context, place, self._stored(context, {}).mark.value)
        except FetchError as error:
            return (Finding(key, shown, f"{error}; Expected a first page of records"),)
        if first.answer.records:
            return ()
        text = "the first page holds no records; Expected some, where the source has any: look at http.records.path"
        return (Finding(key, shown, text, Severity.WARNING),)

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Pages of new records, round after round, until the task is cancelled.

        Raises ``Retriable`` and ``Fatal`` as the http client does, and ``Retriable`` where the list moves too fast.
        """
        endpoint = asking.endpoint(self.config, clock=context.clock)
        of_parents = asking.parents_endpoint(self.config, clock=context.clock)
        bookmarks: dict[str | None, Bookmark] = {}
        """Where to go on, by parent; that of None where there are none."""
        while True:
            started = context.clock.monotonic()
            records = 0
            if of_parents is None:
                pages = self._one_list(context, _List(endpoint, self._names, self.partition()), bookmarks, None)
            else:
                pages = self._lists(context, endpoint, of_parents, bookmarks)
            async with aclosing(pages):
                async for page in pages:
                    records += len(page)
                    yield page
            context.finish_round()
            self._report_lag(context, bookmarks.values(), has_news=records > 0)
            rest = started + self._interval(has_news=records > 0) - context.clock.monotonic()
            await context.clock.sleep(max(0.0, rest))

    async def _lists(
        self, context: FetchContext, endpoint: Endpoint, of_parents: Endpoint, bookmarks: dict[str | None, Bookmark]
    ) -> AsyncGenerator[Page, None]:
        """One round through the list of every parent.

        A retry goes on behind those whose lists it has read to the end: else a source that ever refuses in the middle
        of its parents would never be asked for the last of them.
        """
        if self._read_by is not context:
            self._read_by, self._read = context, set()
        found = await parents(context, of_parents, self.config)
        for gone in bookmarks.keys() - {parent.id for parent in found}:
            del bookmarks[gone]
        for parent in found:
            if parent.id in self._read:
                continue
            one = _List(endpoint.under(parent.id), self._names, {**self.partition(), "parent": parent.id})
            before = bookmarks.setdefault(parent.id, self._stored(context, one.partition))
            if not parent.is_read(before):
                async with aclosing(self._one_list(context, one, bookmarks, parent.id)) as pages:
                    async for page in pages:
                        yield page
                after = parent.read_to(bookmarks[parent.id], before)
                if after != bookmarks[parent.id]:
                    bookmarks[parent.id] = after
                    yield one.empty_page(after)
            self._read.add(parent.id)
        self._read.clear()

    async def _one_list(
        self, context: FetchContext, one: _List, bookmarks: dict[str | None, Bookmark], parent: str | None
    ) -> AsyncGenerator[Page, None]:
        """One round through a list, to its end; ``bookmarks[parent]`` is where it goes on.

        Raises ``Retriable`` where it moves too fast.
        """
        bookmark = bookmarks.get(parent) or self._stored(context, one.partition)
        bookmarks[parent] = bookmark
        is_anew = self.config.http_pagination_type == "mark"
        begun_again, handed_over = 0, HandedOver(bookmark)
        while True:
            try:
                if is_anew:
                    walked = self._anew(context, one, bookmark)
                else:
                    walked = self._round(context, one, bookmark, handed_over)
                async with aclosing(walked) as pages:
                    async for page, reached in pages:
                        bookmarks[parent] = reached  # where the next round goes on
                        yield page
            except BegunAgainError as error:
                begun_again += 1
                if begun_again > BEGUN_AGAIN_MAX:
                    message = f"the list moved by whole pages while it was paged, {begun_again} times in one round"
                    raise Retriable(message) from error
                bookmarks[parent] = bookmark = error.bookmark
                context.emit(PagesMoved(context.connector, context.task, is_repeating=not bookmark.is_again))
                yield one.empty_page(bookmark)
            else:
                return

    def _stored(self, context: FetchContext, partition: Partition) -> Bookmark:
        offset = context.offset_of(partition)
        return Bookmark.of_offset(offset, self._names, initial=settings.initial(self.config))

    async def _anew(
        self, context: FetchContext, one: _List, bookmark: Bookmark
    ) -> AsyncGenerator[tuple[Page, Bookmark], None]:
        """One way through a list by requests that each begin at the mark.

        It ends after ``http.pagination.pages.max`` pages too: the next one goes on there.
        """
        anew = Anew(bookmark, fields=tuple(self._names), limit=self.config.http_pagination_limit)
        async with Ahead[Answered]() as ahead:
            ahead.start(one.endpoint.ask(context, None, bookmark.mark.value), name="next page")
            for _ in range(self.config.http_pagination_pages_max):
                answered = await ahead.take()
                if await _run_step(anew.must_ask_before, answered.answer):
                    answered = await one.endpoint.ask(context, None, anew.bookmark.before)
                news = await _run_step(anew.take, answered.answer)
                if not news:
                    return
                if anew.must_ask_again(answered.answer):
                    again = await one.endpoint.ask(context, None, anew.asked_before)
                    await _run_step(anew.check_limit, again.answer, answered.answer)
                bookmark = await _run_step(anew.hand_over, answered.answer, news)
                ahead.start(one.endpoint.ask(context, None, bookmark.mark.value), name="next page")
                yield one.page(answered.answer, news, bookmark), bookmark

    async def _round(
        self, context: FetchContext, one: _List, bookmark: Bookmark, handed_over: HandedOver
    ) -> AsyncGenerator[tuple[Page, Bookmark], None]:
        """One way through the pages of a list; the next is fetched while the last waits to be taken.

        Raises ``BegunAgainError`` where the pages have moved so much that they must be read from the first one on.
        """
        plan = one.endpoint
        guard = PageGuard(
            is_counted=plan.pagination.is_counted,
            pages_max=self.config.http_pagination_pages_max,
            is_moving=isinstance(plan.pagination, CursorOfRecord),
        )
        base = bookmark.mark.value
        first = plan.pagination.first()
        place = first if bookmark.place is None else bookmark.place
        walk = Walk(bookmark, plan.way, handed_over, is_at_first_page=place == first)
        rest = (bookmark.place, bookmark.skip, bookmark.last)
        stored, is_first, is_last = bookmark, True, False
        async with Ahead[Answered]() as ahead:
            ahead.start(plan.ask(context, place, base), name="next page")
            while not is_last:
                guard.pass_by(place)
                answered = await ahead.take()
                records = answered.answer.records
                skip = bookmark.skip if is_first else 0
                if not is_first and await _run_step(walk.must_look_back, answered.answer):
                    before = await plan.ask(context, walk.place_before, base)
                    if slipped := await _run_step(walk.slipped, before.answer):
                        await _run_step(walk.hand_over, before.answer, slipped)
                        stored = self._after(walk, before, rest, is_last=False)
                        yield one.page(before.answer, slipped, stored), stored
                news = await _run_step(walk.begin if is_first else walk.go_on, answered.answer, place)
                if walk.has_moved:
                    context.emit(PagesMoved(context.connector, context.task, is_repeating=False))
                await _run_step(walk.hand_over, answered.answer, news)
                is_last = self._is_last(walk, answered, has_news=bool(news) or skip > 0)
                if not is_last:
                    guard.go_on_from(place, records, has_moved=walk.has_moved)
                    ahead.start(plan.ask(context, answered.following, base), name="next page")
                rest = _rest(plan, answered, rest, skip=skip, last=walk.last_identity())
                following = self._after(walk, answered, rest, is_last=is_last)
                # Without news only the end of the round is worth an offset, and only where it says something new: a
                # page more for every answer would make the source look busy for ever.
                if news or (is_last and following != stored):
                    stored = following
                    yield one.page(answered.answer, news, following), following
                place, is_first = answered.following, False

    def _is_last(self, walk: Walk, answered: Answered, *, has_news: bool) -> bool:
        if answered.is_end or answered.following is None:
            return True
        if self.config.http_pagination_stops_at_known and not has_news and walk.is_past_news(answered.answer):
            return True
        # A source at its end may give the cursor it was asked with, and nothing else.
        return answered.following == answered.place and not answered.answer.records

    def _after(self, walk: Walk, answered: Answered, rest: tuple[Place, int, str | None], *, is_last: bool) -> Bookmark:
        """The bookmark after a page."""
        bookmark = walk.bookmark
        if not is_last:
            if answered.is_growing:
                count = len(answered.answer.records)
                return bookmark.advanced(bookmark.highest, answered.place, skip=count, last=walk.last_identity())
            return bookmark.advanced(bookmark.highest, answered.following)
        if self.config.http_pagination_continues:
            return bookmark.paused(*rest)
        return bookmark.closed()

    def _interval(self, *, has_news: bool) -> float:
        """Seconds from the start of a round to the start of the next."""
        catchup = self.config.http_catchup_interval_ms
        return catchup / 1000 if has_news and catchup is not None else self.config.poll_interval

    def _report_lag(self, context: FetchContext, bookmarks: Iterable[Bookmark], *, has_news: bool) -> None:
        """Tell how old the newest record is, where its field (of several the first) is a time; 0 when none was new."""
        if not has_news:
            context.report_lag(0.0)
            return
        reached = [bookmark.mark.value for bookmark in bookmarks]
        instants = [instant_of(value[0] if isinstance(value, tuple) else value) for value in reached]
        newest = max(filter(None, instants), default=None)
        if newest is not None:
            context.report_lag(max(0.0, (context.clock.now() - newest).total_seconds()))


def _rest(
    plan: Endpoint, answered: Answered, rest: tuple[Place, int, str | None], *, skip: int, last: str | None
) -> tuple[Place, int, str | None]:
    """Where a round goes on that begins where this one ends: page, records of it that are known, the last of them.

    A cursor of the source's own goes on behind all that it stands for. Everything else is a count of records, or may
    be, and the page that was read last may have more by then.
    """
    is_cursor = not plan.pagination.is_counted and not plan.way.can_slip
    if is_cursor and answered.following is not None:
        return (answered.following, 0, None)
    if is_cursor and not answered.answer.records and answered.place is not None:
        return (answered.place, 0, None)
    if len(answered.answer.records) > skip:
        return (answered.place, len(answered.answer.records), last)
    return rest


async def _run_step(
    step: Callable[[CutAnswer, *Arguments], Result], answer: CutAnswer, *arguments: *Arguments
) -> Result:
    """Run a method of the walk, which nobody else uses meanwhile; for a large page in a thread."""
    if len(answer.records) > RECORDS_ON_LOOP_MAX:
        return await asyncio.to_thread(lambda: step(answer, *arguments))
    return step(answer, *arguments)
