"""One round of pages that each begin at the mark: nothing is counted, so nothing is lost where records move.

Each request asks for the records from a value on, in its order, and the highest value of a page is where the next one
begins. It brings the records with that value once more, if the source includes it; they are known by their keys. Where
none with that value comes, the source may leave it out, or the records may have been updated since: then the page is
asked for from the value below, so that other records with the same value are not passed over.

The end is a page on which nothing is new. On a full one that would be wrong, since there may be more behind it.
"""

from __future__ import annotations

from dataclasses import replace

from fetchers.http.answers import CutAnswer
from fetchers.http.bookmark import Bookmark
from fetchers.sdk import Fatal, Retriable
from fetchers.toolkit.marks import RecordOrder

CAPPED_PAGES = 3
"""Pages on end with the same number of records, fewer than were asked for, after which the source is taken not to give
more at once. Then a page is full with fewer than ``http.pagination.limit``, and nobody could tell."""
CAPPED_RECORDS_MIN = 5
"""Fewer are equal by chance where records come in while a list is read."""


class Anew:
    """What is known of a round; ``bookmark`` is where its next page begins."""

    def __init__(self, bookmark: Bookmark, *, fields: tuple[str, ...], limit: int) -> None:
        """``fields``: the offset fields; ``limit``: records of a full page."""
        self.bookmark = bookmark
        self._name = ", ".join(fields)
        self._is_keyset = len(fields) > 1
        self._limit = limit
        self._counts: list[int] = []
        """Records of each page with news."""

    def must_ask_before(self, answer: CutAnswer) -> bool:
        """Whether records with the mark's own value may be missing here: ask from ``bookmark.before``, then.

        Several fields name one record, and no other has the same values.
        """
        mark, before = self.bookmark.mark, self.bookmark.before
        return not self._is_keyset and before is not None and bool(mark.keys) and not answer.reaches(mark)

    def take(self, answer: CutAnswer) -> list[int]:
        """Positions of the new records of the next page; none at the end of the list.

        Raises Fatal where it cannot be told whether there are more, and Retriable where they are in no order.
        """
        self._check_order(answer)
        news = answer.news(self.bookmark.mark)
        count = len(answer.records)
        if not news and count >= self._limit:
            raise Fatal(self._full_words(answer))
        if news:
            self._counts.append(count)
            self._check_count()
        return news

    def hand_over(self, answer: CutAnswer, news: list[int]) -> Bookmark:
        """Move the mark behind these records, and give the bookmark after them."""
        known = self.bookmark
        moved = replace(known, highest=answer.raise_mark(known.highest, news)).closed()
        before = known.before
        if not self._is_keyset:
            below = answer.before(moved.mark)
            if below is None and moved.mark.value != known.mark.value:
                below = known.mark.value
            before = before if below is None or isinstance(below, tuple) else below
        self.bookmark = replace(moved, before=before)
        return self.bookmark

    def _check_order(self, answer: CutAnswer) -> None:
        order = answer.order()
        wanted = f"http.pagination.type=mark needs them in order of {self._name}, lowest first: let the source sort so"
        if order is RecordOrder.DOWN:
            message = f"the source gives the newest records first; {wanted}, or use a cursor"
            raise Fatal(message)
        if order is RecordOrder.MIXED:
            message = f"the source gives the records in no order; {wanted}"
            raise Retriable(message)

    def _check_count(self) -> None:
        last = self._counts[-CAPPED_PAGES:]
        if len(last) == CAPPED_PAGES and len(set(last)) == 1 and CAPPED_RECORDS_MIN <= last[0] < self._limit:
            message = (
                f"the source gives no more than {last[0]} records at once, and {self._limit} are asked for: "
                f"set http.pagination.limit={last[0]}, or a full page cannot be told from the last one"
            )
            raise Fatal(message)

    def _full_words(self, answer: CutAnswer) -> str:
        count, value = len(answer.records), self.bookmark.mark.value
        ways = (
            "raise http.pagination.limit if the source allows it, or go on after a value that no two records share, "
            "such as http.offset.field=updated,id with {offset.updated} and {offset.id}, or by a cursor or page number"
        )
        if answer.column is not None and answer.reaches(self.bookmark.mark) and answer.order() is RecordOrder.UNKNOWN:
            return f"{count} records have the value {value} in {self._name}, which is more than a page holds: {ways}"
        return (
            f"a full page of {count} records brought nothing new after {value} in {self._name}: "
            f"does the source go by {{offset}} where the request says it? Else {ways}"
        )
