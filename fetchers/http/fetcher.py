"""``HttpSource``: asks an endpoint in rounds, and hands over what is new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar, TypeVarTuple

from yarl import URL

from fetchers.http import settings
from fetchers.http.answers import CutAnswer, RecordLayout, cut
from fetchers.http.bookmark import Bookmark, told
from fetchers.http.config import HttpSourceConfig
from fetchers.http.templates import RequestTemplate
from fetchers.http.walk import BegunAgainError, Walk, Way
from fetchers.sdk import (
    FetchContext,
    Finding,
    HttpResponse,
    Page,
    Partition,
    PayloadKind,
    RequestOptions,
    Retriable,
    SourceConnector,
)
from fetchers.sdk.ahead import Ahead
from fetchers.toolkit.marks import Mark
from fetchers.toolkit.pagination import PageAnswer, PageGuard, PageRequest, Pagination, Place
from fetchers.toolkit.rate_limits import shared_budget
from fetchers.toolkit.watermark import instant_of
from metrics.events import PagesMoved

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

BODY_BYTES_ON_LOOP_MAX = 64 * 1024
"""A larger answer is cut in a thread, so that nobody else on the event loop waits for it; some 6 µs a record."""

RECORDS_ON_LOOP_MAX = 5_000
"""In a page with more records, also what is new is found in a thread."""

BEGUN_AGAIN_MAX = 3
"""Times that one round begins again at once; then the worker waits before the next try."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """One answer, cut, and where the source says to go on."""

    place: Place
    answer: CutAnswer
    following: Place
    is_growing: bool = False
    """Whether there may be more at ``place`` by the time of a restart: it begins there again, then."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything that stays the same while a task runs."""

    template: RequestTemplate
    pagination: Pagination
    way: Way
    layout: RecordLayout
    options: RequestOptions


class HttpSource(SourceConnector[HttpSourceConfig]):
    """Polls an endpoint: each round is one way through its pages, filtered by what was read before."""

    payload_kind = PayloadKind.JSON

    @property
    def is_typeless(self) -> bool:
        """So is CSV."""
        return self.config.http_format == "csv"

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        return tuple(settings.findings(self.config))

    def partition(self) -> Partition:
        """The endpoint, without its query: that may hold secrets."""
        url = URL(self.config.http_url)
        return {"url": str(url.with_user(None).with_query(None).with_fragment(None))}

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Pages of new records, round after round, until the task is cancelled.

        Raises ``Retriable`` and ``Fatal`` as the http client does, and ``Retriable`` where the list moves too fast.
        """
        plan = self._plan(context)
        names, initial = self.config.http_offset_field, settings.initial(self.config)
        bookmark = Bookmark.of_offset(context.offset, names, initial=initial)
        begun_again = 0
        while True:
            started = context.clock.monotonic()
            records = 0
            try:
                async with aclosing(self._round(context, plan, bookmark)) as pages:
                    async for page, reached in pages:
                        bookmark = reached  # where the next round goes on
                        records += len(page)
                        yield page
            except BegunAgainError as error:
                begun_again += 1
                if begun_again > BEGUN_AGAIN_MAX:
                    message = f"the list moved by whole pages while it was paged, {begun_again} times in one round"
                    raise Retriable(message) from error
                bookmark = error.bookmark
                context.emit(PagesMoved(context.connector, context.task, is_repeating=not bookmark.is_again))
                yield Page([], bookmark.offset(names))
                continue
            begun_again = 0
            context.finish_round()
            self._report_lag(context, bookmark, has_news=records > 0)
            rest = started + self._interval(has_news=records > 0) - context.clock.monotonic()
            await context.clock.sleep(max(0.0, rest))

    async def _round(
        self, context: FetchContext, plan: _Plan, bookmark: Bookmark
    ) -> AsyncGenerator[tuple[Page, Bookmark], None]:
        """One way through the pages; the next is fetched while the last waits to be taken.

        Raises ``BegunAgainError`` where the pages have moved so much that they must be read from the first one on.
        """
        guard = PageGuard(is_counted=plan.pagination.is_counted, pages_max=self.config.http_pagination_pages_max)
        base, names = bookmark.mark, self.config.http_offset_field
        first = plan.pagination.first()
        place = first if bookmark.place is None else bookmark.place
        walk = Walk(bookmark, plan.way, is_at_first_page=place == first)
        rest = (bookmark.place, bookmark.skip, bookmark.last)
        stored, is_first, is_last = bookmark, True, False
        async with Ahead[_Answered]() as ahead:
            ahead.start(self._ask(context, plan, place, base), name="next page")
            while not is_last:
                guard.pass_by(place)
                answered = await ahead.take()
                records = answered.answer.records
                skip = bookmark.skip if is_first else 0
                if not is_first and await _run_step(walk.must_look_back, answered.answer):
                    before = await self._ask(context, plan, walk.place_before, base)
                    if slipped := await _run_step(walk.slipped, before.answer):
                        await _run_step(walk.hand_over, before.answer, slipped)
                        stored = self._after(walk, before, rest, is_last=False)
                        yield _page(before.answer, slipped, stored, names), stored
                news = await _run_step(walk.begin if is_first else walk.go_on, answered.answer, place)
                if walk.has_moved:
                    context.emit(PagesMoved(context.connector, context.task, is_repeating=False))
                await _run_step(walk.hand_over, answered.answer, news)
                is_last = self._is_last(answered, has_news=bool(news) or skip > 0)
                if not is_last:
                    guard.go_on_from(place, records, has_moved=walk.has_moved)
                    ahead.start(self._ask(context, plan, answered.following, base), name="next page")
                if len(records) > skip:
                    rest = (answered.place, len(records), walk.last_identity())
                following = self._after(walk, answered, rest, is_last=is_last)
                # Without news only the end of the round is worth an offset, and only where it says something new: a
                # page more for every answer would make the source look busy for ever.
                if news or (is_last and following != stored):
                    stored = following
                    yield _page(answered.answer, news, following, names), following
                place, is_first = answered.following, False

    async def _ask(self, context: FetchContext, plan: _Plan, place: Place, mark: Mark) -> _Answered:
        """Fetch and cut the page at ``place``."""
        filled = plan.template.filled(plan.layout.fields, mark.value)
        asked = plan.pagination.request(place, PageRequest(filled.url, filled.query))
        options = plan.options.copy()
        options["query"], options["body"] = asked.query, filled.body
        response = await context.http.request(self.config.http_method, asked.url, **options)
        if len(response.body) > BODY_BYTES_ON_LOOP_MAX:
            return await asyncio.to_thread(_answered, plan, place, response)
        return _answered(plan, place, response)

    def _is_last(self, answered: _Answered, *, has_news: bool) -> bool:
        if answered.following is None or (self.config.http_pagination_stops_at_known and not has_news):
            return True
        # A source at its end may give the cursor it was asked with, and nothing else.
        return answered.following == answered.place and not answered.answer.records

    def _after(
        self, walk: Walk, answered: _Answered, rest: tuple[Place, int, str | None], *, is_last: bool
    ) -> Bookmark:
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

    def _report_lag(self, context: FetchContext, bookmark: Bookmark, *, has_news: bool) -> None:
        """Tell how old the newest record is, where its field (of several the first) is a time; 0 when none was new."""
        if not has_news:
            context.report_lag(0.0)
            return
        reached = bookmark.mark.value
        newest = instant_of(reached[0] if isinstance(reached, tuple) else reached)
        if newest is not None:
            context.report_lag(max(0.0, (context.clock.now() - newest).total_seconds()))

    def _plan(self, context: FetchContext) -> _Plan:
        config = self.config
        secrets = settings.secrets(config)
        auth = settings.auth(config, clock=context.clock)
        credential = "\n".join((str(URL(config.http_url).origin()), config.http_auth_user or "", *secrets))
        options: RequestOptions = {
            "headers": {name: value.get_secret_value() for name, value in config.http_header.items()},
            "auth": auth,
            "limits": settings.limits(config),
            "statuses": settings.statuses(config),
            "tls": settings.tls(config),
            "secrets": secrets,
            "is_page_refused": config.http_format != "json",  # JSON proves by itself that it is no page
            "budget": shared_budget(
                credential,
                settings.rate_windows(config),
                clock=context.clock,
                headers=settings.limit_headers(config),
            ),
        }
        layout = RecordLayout(
            format=config.http_format,
            path=config.http_records_path,
            is_path_optional=config.http_records_missing == "empty",
            fields=config.http_offset_field,
            key=config.http_offset_key,
            has_identities=settings.can_slip(config),
        )
        pagination = settings.pagination(config, secret_texts=secrets)
        way = Way(settings.can_slip(config), settings.is_checked(config))
        return _Plan(settings.template(config), pagination, way, layout, options)


def _answered(plan: _Plan, place: Place, response: HttpResponse) -> _Answered:
    answer = cut(response, plan.layout)
    if response.is_skipped:
        return _Answered(place, answer, None)
    is_growing = plan.way.is_checked or plan.pagination.is_page_growing
    told = PageAnswer(response.url, response.body, response.links, len(answer.records))
    return _Answered(place, answer, plan.pagination.following(place, told), is_growing)


async def _run_step(
    step: Callable[[CutAnswer, *Arguments], Result], answer: CutAnswer, *arguments: *Arguments
) -> Result:
    """Run a method of the walk, which nobody else uses meanwhile; for a large page in a thread."""
    if len(answer.records) > RECORDS_ON_LOOP_MAX:
        return await asyncio.to_thread(lambda: step(answer, *arguments))
    return step(answer, *arguments)


def _page(answer: CutAnswer, news: Sequence[int], bookmark: Bookmark, names: Sequence[str]) -> Page:
    is_whole = len(news) == len(answer.records)
    payloads = list(answer.records) if is_whole else [answer.records[position] for position in news]
    offset = bookmark.offset(names)
    return Page(payloads, offset, told_offset=told(offset), rejections=answer.rejections_among(news))
