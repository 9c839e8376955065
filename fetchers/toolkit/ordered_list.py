"""Reads a list that its source sorts by a field, oldest first, and that can be asked for from a value on.

Most APIs can be read so: `?since=…&sort=updated&direction=asc`, `?updated_after=…`, `?min_id=…`. Each request asks from
the highest value read so far, and nothing counts pages. So a list that moves while it is read (a record that is changed
goes to its end, and all others move up) loses and repeats nothing, and a restart goes on where the last page ended.
Where the source names a next page, that is followed through records that all have one value, and no further.
Whoever only knows such a list by page numbers reads it with ``toolkit.pagination``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

from fetchers.sdk.context import FetchContext
from fetchers.sdk.errors import Fatal
from fetchers.sdk.http import HttpResponse, RequestOptions
from fetchers.sdk.page import Page
from fetchers.toolkit.fields import raw_field
from fetchers.toolkit.marks import Column, Mark, key_hash, mark_of, offset_of
from fetchers.toolkit.pagination import PageAnswer, PageGuard, PageRequest, Pagination, Place
from fetchers.toolkit.records import field_values
from fetchers.toolkit.watermark import instant_of, order_of

BODY_BYTES_ON_LOOP_MAX = 64 * 1024
"""A larger answer is gone through in a thread, so that nobody else on the event loop waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedList:
    """A list behind a URL, and how it is asked for its newer part.

    ::

        issues = OrderedList(url=…, sorted_by="updated_at", begin_at="since", page_records=100)
        async for page in issues.pages(context):
            yield page

    Records with one and the same value (*ties*) are told apart by all their bytes, or by ``key``: those that were
    handed over before are left out, and one that appears later with the same value still comes. What is kept of them is
    in the offset of each page (``toolkit.marks``).
    """

    url: str
    sorted_by: str
    """Field of each record that the answer is sorted by, ascending (dots between names): numbers, such as seconds since
    1970, ISO 8601 instants or other text."""
    begin_at: str
    """Field of the query that takes the value to begin at, as it stands in the records. Records with just this value
    must be in the answer."""
    page_records: int | None = None
    """How many records a full answer holds, as the source gives or is asked for (``query={"per_page": "100"}``): so a
    full one that brings nothing new is noticed. Needed unless there are ``next_pages``."""
    next_pages: Pagination | None = None
    """How an answer names its next page, such as ``CursorInBody("next")`` or ``LinkHeader()``; it is followed where all
    records of a page have the value that was asked for, so that there may be more ties than an answer holds. Ways that
    count are refused: a record that leaves the ties would move another past them."""
    records: str = ""
    """Where the array of records is in the answer (dots between names); the answer itself is the array if empty."""
    key: str | None = None
    """Field that tells records with one value apart, such as ``id``; all bytes of the record if None. With a field, a
    record that is changed twice without another value, such as within one second, comes only as it was first read:
    give one only where other bytes do not mean another record (a counter of views in each answer)."""
    begin: str | None = None
    """Value to begin at where nothing has been read yet; None: the parameter is left out then."""
    every_seconds: float = 60.0
    """From the start of one round to the start of the next."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Further fields of the query, such as the order and the size of pages."""
    options: RequestOptions = field(default_factory=RequestOptions)
    """What else goes with each request, such as ``auth`` and ``budget``."""

    def __post_init__(self) -> None:
        """Raises ValueError where a full answer could not be told from the last, or next pages are counted."""
        if self.next_pages is None and self.page_records is None:
            message = "page_records says how many records a full answer holds; or give next_pages"
            raise ValueError(message)
        if self.next_pages is not None and self.next_pages.is_counted:
            message = f"{type(self.next_pages).__name__} counts, and records move: begin anew at the mark, without it"
            raise ValueError(message)

    async def pages(self, context: FetchContext) -> AsyncIterator[Page]:
        """Pages of new records, round after round, from ``context.offset`` on; for ``SourceConnector.fetch``.

        A round ends with an answer that brings nothing new. Raises ``Retriable`` and ``Fatal`` as the http client does,
        and ``Fatal`` where the list cannot be read so: it is not in ascending order, or a full answer brings nothing
        new.
        """
        mark = mark_of(context.offset)
        while True:
            started, has_news = context.clock.monotonic(), False
            place, guard = self._first, PageGuard(is_counted=False)
            while (found := await self._found(context, mark, place)).leads_on:
                if found.news:
                    has_news = True
                    yield Page(found.news, offset_of(found.mark))
                if found.mark.value != mark.value or found.following is None:
                    place, guard = self._first, PageGuard(is_counted=False)
                else:
                    place = found.following
                    guard.pass_by(place)
                mark = found.mark
            context.finish_round()
            newest = instant_of(cast("str | int | float | None", mark.value)) if has_news else context.clock.now()
            if newest is not None:
                context.report_lag(max(0.0, (context.clock.now() - newest).total_seconds()))
            await context.clock.sleep(max(0.0, started + self.every_seconds - context.clock.monotonic()))

    @property
    def _first(self) -> Place:
        return None if self.next_pages is None else self.next_pages.first()

    async def _found(self, context: FetchContext, mark: Mark, place: Place) -> _Found:
        """What one answer, from the mark on, brings; ``place``: which page of it."""
        asked = self.begin if mark.value is None else str(mark.value)
        request = PageRequest(self.url, {**self.query, **({} if asked is None else {self.begin_at: asked})})
        if self.next_pages is not None:
            request = self.next_pages.request(place, request)
        options = self.options.copy()
        options["query"] = request.query
        answer = await context.http.request("GET", request.url, **options)
        if answer.is_skipped:
            return _Found([], mark)
        if len(answer.body) > BODY_BYTES_ON_LOOP_MAX:
            return await asyncio.to_thread(self._found_in, answer, mark, place)
        return self._found_in(answer, mark, place)

    def _found_in(self, answer: HttpResponse, mark: Mark, place: Place) -> _Found:
        records = answer.records(self.records)
        column = Column.of(field_values(records, self.sorted_by))
        if any(after < before for before, after in pairwise(column.orders)):
            message = f"the list is not in ascending order of {self.sorted_by!r}; ask the source for that order"
            raise Fatal(message)

        def key_of(position: int) -> str:
            record = records[position]
            return key_hash((raw_field(record, self.key) if self.key else None) or record)

        following = None
        if self.next_pages is not None:
            last = records[-1] if len(records) else None
            of_answer = PageAnswer(answer.url, answer.body, answer.links, len(records), last)
            following = self.next_pages.following(place, of_answer)
        news = mark.new_among(column, key_of)
        if not news:
            self._check_that_it_goes_on(column, mark, following)
        return _Found([records[at] for at in news], mark.raised_by(column, news, key_of), following)

    def _check_that_it_goes_on(self, column: Column, mark: Mark, following: Place) -> None:
        """Raises Fatal where an answer without news is not the end of the list, and nothing leads on."""
        count, asked = len(column.values), f"from {self.sorted_by}={mark.value} on"
        if following is not None:
            if mark.value is not None and column.orders and column.orders[-1] < order_of(mark.value)[1]:
                message = (
                    f"an answer asked for {asked} ends before that value: the source does not know the parameter "
                    f"{self.begin_at!r}, or only goes by a coarser value"
                )
                raise Fatal(message)
        elif self.page_records is not None and count >= self.page_records:
            message = (
                f"a full answer of {count} records brings nothing new {asked}: "
                f"either more records have this value than one answer holds (ask for larger ones, or give next_pages), "
                f"or the source does not know the parameter {self.begin_at!r}"
            )
            raise Fatal(message)


@dataclass(frozen=True, slots=True)
class _Found:
    """What one answer brings."""

    news: list[bytes]
    mark: Mark
    """With the news."""
    following: Place = None
    """The next page, where the source names one."""

    @property
    def leads_on(self) -> bool:
        """Whether there may be more behind it: the round ends with an answer that brings nothing new."""
        return bool(self.news) or self.following is not None
