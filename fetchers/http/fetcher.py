"""``HttpSource``: asks an endpoint in rounds, and hands over what is new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from yarl import URL

from fetchers.http import settings
from fetchers.http.answers import CutAnswer, RecordLayout, cut
from fetchers.http.bookmark import Bookmark, told
from fetchers.http.config import HttpSourceConfig
from fetchers.http.templates import RequestTemplate
from fetchers.sdk import (
    FetchContext,
    Finding,
    HttpResponse,
    Page,
    Partition,
    PayloadKind,
    RequestOptions,
    SourceConnector,
)
from fetchers.toolkit.ahead import Ahead
from fetchers.toolkit.marks import Mark
from fetchers.toolkit.pagination import PageAnswer, PageGuard, PageRequest, Pagination, Place
from fetchers.toolkit.rate_limits import shared_budget
from fetchers.toolkit.watermark import instant_of

BODY_BYTES_ON_LOOP_MAX = 512 * 1024
"""A larger answer is cut in a thread, so that nobody else on the event loop waits for it."""


@dataclass(frozen=True, slots=True)
class _Turn:
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
    layout: RecordLayout
    options: RequestOptions


class HttpSource(SourceConnector[HttpSourceConfig]):
    """Polls an endpoint: each round is one way through its pages, filtered by what was read before."""

    payload_kind = PayloadKind.JSON

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        return tuple(settings.findings(self.config))

    def partition(self) -> Partition:
        """The endpoint, without its query: that may hold secrets."""
        url = URL(self.config.http_url)
        return {"url": str(url.with_user(None).with_query(None).with_fragment(None))}

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Rounds for ever."""
        plan = self._plan(context)
        names, initial = self.config.http_offset_field, settings.initial(self.config)
        bookmark = Bookmark.of_offset(context.offset, names, initial=initial)
        while True:
            started = context.clock.monotonic()
            records = 0
            async with aclosing(self._round(context, plan, bookmark)) as turns:
                async for page, reached in turns:
                    bookmark = reached  # where the next round goes on
                    records += len(page)
                    yield page
            context.finish_round()
            self._report_lag(context, bookmark, has_news=records > 0)
            rest = started + self._interval(has_news=records > 0) - context.clock.monotonic()
            await context.clock.sleep(max(0.0, rest))

    async def _round(
        self, context: FetchContext, plan: _Plan, bookmark: Bookmark
    ) -> AsyncGenerator[tuple[Page, Bookmark], None]:
        """One way through the pages; the next is fetched while the last waits to be taken."""
        guard = PageGuard(is_counted=plan.pagination.is_counted, pages_max=self.config.http_pagination_pages_max)
        base = bookmark.mark
        before: frozenset[str] = frozenset()
        rest: tuple[Place, int] = (bookmark.place, bookmark.skip)
        is_first = True
        stored = bookmark
        async with Ahead[_Turn]() as ahead:
            place = plan.pagination.first() if bookmark.place is None else bookmark.place
            ahead.start(self._ask(context, plan, place, base), name="next page")
            is_last = False
            while not is_last:
                guard.pass_by(place)
                turn = await ahead.take()
                count = len(turn.answer.records)
                news = turn.answer.news(base, skip=bookmark.skip if is_first else 0, known=before)
                is_reread = is_first and bookmark.skip > 0
                is_last = self._is_last(turn, has_news=bool(news) or is_reread)
                if not is_last:
                    guard.go_on_from(place, turn.answer.records)
                    ahead.start(self._ask(context, plan, turn.following, base), name="next page")
                if count > (bookmark.skip if is_first else 0):
                    rest = (turn.place, count)
                before = _remembered(plan, turn.answer)
                highest = turn.answer.raise_mark(bookmark.highest, news)
                following = self._after(bookmark, highest, turn, rest, is_last=is_last)
                # Without news only the end of the round is worth an offset, and only where it says something new: a
                # page more for every answer would make the source look busy for ever.
                if news or (is_last and following != stored):
                    stored = following
                    yield _page(turn.answer, news, following, self.config.http_offset_field), following
                bookmark, place, is_first = following, turn.following, False

    async def _ask(self, context: FetchContext, plan: _Plan, place: Place, mark: Mark) -> _Turn:
        """Fetch and cut the page at ``place``."""
        filled = plan.template.filled(plan.layout.fields, mark.value)
        asked = plan.pagination.request(place, PageRequest(filled.url, filled.query))
        options = plan.options.copy()
        options["query"], options["body"] = asked.query, filled.body
        response = await context.http.request(self.config.http_method, asked.url, **options)
        if len(response.body) > BODY_BYTES_ON_LOOP_MAX:
            return await asyncio.to_thread(_turn, plan, place, response)
        return _turn(plan, place, response)

    def _is_last(self, turn: _Turn, *, has_news: bool) -> bool:
        if turn.following is None or (self.config.http_pagination_stops_at_known and not has_news):
            return True
        # A source at its end may give the cursor it was asked with, and nothing else.
        return turn.following == turn.place and not turn.answer.records

    def _after(
        self, bookmark: Bookmark, highest: Mark, turn: _Turn, rest: tuple[Place, int], *, is_last: bool
    ) -> Bookmark:
        if not is_last:
            if turn.is_growing:
                return bookmark.advanced(highest, turn.place, skip=len(turn.answer.records))
            return bookmark.advanced(highest, turn.following)
        advanced = bookmark.advanced(highest, None)
        if self.config.http_pagination_continues:
            return advanced.paused(*rest)
        return advanced.closed()

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
            "budget": shared_budget(credential, settings.rate_windows(config), clock=context.clock),
        }
        layout = RecordLayout(
            format=config.http_format,
            path=config.http_records_path,
            is_path_optional=config.http_records_missing == "empty",
            fields=config.http_offset_field,
            key=config.http_offset_key,
        )
        pagination = settings.pagination(config, secret_texts=secrets)
        return _Plan(settings.template(config), pagination, layout, options)


def _remembered(plan: _Plan, answer: CutAnswer) -> frozenset[str]:
    """Records of this page, which may come again on the next one when the source grows at its front meanwhile."""
    return answer.remembered() if plan.pagination.is_counted and plan.layout.fields else frozenset()


def _turn(plan: _Plan, place: Place, response: HttpResponse) -> _Turn:
    answer = cut(response, plan.layout)
    if response.is_skipped:
        return _Turn(place, answer, None)
    told = PageAnswer(response.url, response.body, response.links, len(answer.records))
    return _Turn(place, answer, plan.pagination.following(place, told), plan.pagination.is_page_growing)


def _page(answer: CutAnswer, news: Sequence[int], bookmark: Bookmark, names: Sequence[str]) -> Page:
    is_whole = len(news) == len(answer.records)
    payloads = list(answer.records) if is_whole else [answer.records[position] for position in news]
    offset = bookmark.offset(names)
    return Page(payloads, offset, told_offset=told(offset), rejections=answer.rejections_among(news))
