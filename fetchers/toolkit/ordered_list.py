"""Reads a list that its source sorts by a field, oldest first, and that can be asked for from a value on.

Most APIs can be read so: `?since=…&sort=updated&direction=asc`, `?updated_after=…`, `?min_id=…`. Each request asks from
the highest value read so far, and nothing counts pages. So a list that moves while it is read (a record that is changed
goes to its end, and all others move up) loses and repeats nothing, and a restart goes on where the last page ended.
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
from fetchers.sdk.http import Records, RequestOptions
from fetchers.sdk.page import Offset, Page
from fetchers.toolkit.fields import raw_field
from fetchers.toolkit.marks import Column, Mark, key_hash
from fetchers.toolkit.records import field_values
from fetchers.toolkit.watermark import instant_of

READ, KEYS = "read", "read.keys"
"""Fields of the source offset: the highest value, and by which keys the records with just that value are known."""
BODY_BYTES_ON_LOOP_MAX = 64 * 1024
"""A larger answer is gone through in a thread, so that nobody else on the event loop waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedList:
    """A list behind a URL, and how it is asked for its newer part.

    ::

        issues = OrderedList(url=…, sorted_by="updated_at", begin_at="since", page_records=100)
        async for page in issues.pages(context):
            yield page

    Records with one and the same value are told apart by ``key``: those that were handed over before are left out, and
    one that appears later with the same value still comes.
    """

    url: str
    sorted_by: str
    """Field of each record that the answer is sorted by, ascending (dots between names): numbers, ISO 8601 instants or
    other text."""
    begin_at: str
    """Field of the query that takes the value to begin at. Records with just this value must be in the answer."""
    page_records: int
    """How many records a full answer holds, as the source gives or is asked for (``query={"per_page": "100"}``)."""
    records: str = ""
    """Where the array of records is in the answer (dots between names); the answer itself is the array if empty."""
    key: str | None = None
    """Field that tells records with one value apart, such as ``id``; all bytes of the record if None."""
    begin: str | None = None
    """Value to begin at where nothing has been read yet; None: the parameter is left out then."""
    every_seconds: float = 60.0
    """From the start of one round to the start of the next."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Further fields of the query, such as the order and the size of pages."""
    options: RequestOptions = field(default_factory=RequestOptions)
    """What else goes with each request, such as ``auth`` and ``budget``."""

    async def pages(self, context: FetchContext) -> AsyncIterator[Page]:
        """Pages of new records, round after round, from ``context.offset`` on; for ``SourceConnector.fetch``.

        A round ends with an answer that brings nothing new. Raises ``Retriable`` and ``Fatal`` as the http client does,
        and ``Fatal`` where the list cannot be read so: it is not in ascending order, or a full answer brings nothing
        new.
        """
        mark = _mark(context.offset)
        while True:
            started, has_news = context.clock.monotonic(), False
            while (news := await self._news(context, mark)) is not None:
                records, mark = news
                has_news = True
                yield Page(records, _offset(mark))
            context.finish_round()
            newest = instant_of(cast("str | int | float | None", mark.value)) if has_news else context.clock.now()
            if newest is not None:
                context.report_lag(max(0.0, (context.clock.now() - newest).total_seconds()))
            await context.clock.sleep(max(0.0, started + self.every_seconds - context.clock.monotonic()))

    async def _news(self, context: FetchContext, mark: Mark) -> tuple[list[bytes], Mark] | None:
        """The new records of one answer, and the mark after them; None where there are none."""
        asked = self.begin if mark.value is None else str(mark.value)
        options = self.options.copy()
        options["query"] = {**self.query, **({} if asked is None else {self.begin_at: asked})}
        answer = await context.http.request("GET", self.url, **options)
        if answer.is_skipped:
            return None
        if len(answer.body) > BODY_BYTES_ON_LOOP_MAX:
            return await asyncio.to_thread(lambda: self._new_among(answer.records(self.records), mark))
        return self._new_among(answer.records(self.records), mark)

    def _new_among(self, records: Records, mark: Mark) -> tuple[list[bytes], Mark] | None:
        column = Column.of(field_values(records, self.sorted_by))
        if any(after < before for before, after in pairwise(column.orders)):
            message = f"the list is not in ascending order of {self.sorted_by!r}; ask the source for that order"
            raise Fatal(message)

        def key_of(position: int) -> str:
            record = records[position]
            return key_hash((raw_field(record, self.key) if self.key else None) or record)

        news = mark.new_among(column, key_of)
        if news:
            return [records[position] for position in news], mark.raised_by(column, news, key_of)
        if len(records) >= self.page_records:
            message = (
                f"a full answer of {len(records)} records brings nothing new from {self.sorted_by}={mark.value} on: "
                f"either more records have this value than one answer holds (ask for larger ones), "
                f"or the source does not know the parameter {self.begin_at!r}"
            )
            raise Fatal(message)
        return None


def _offset(mark: Mark) -> Offset:
    return {READ: cast("str | int | float", mark.value), KEYS: " ".join(sorted(mark.keys))}


def _mark(offset: Offset) -> Mark:
    """Raises Fatal for an offset that is none of these."""
    value, keys = offset.get(READ), offset.get(KEYS, "")
    if isinstance(value, bool) or not isinstance(keys, str):
        message = "the stored offset is none of an ordered list; was it written by another connector?"
        raise Fatal(message)
    return Mark(value, frozenset(keys.split()))
