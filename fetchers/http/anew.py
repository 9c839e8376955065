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
from fetchers.toolkit.watermark import Reached


class Anew:
    """What is known of a round; ``bookmark`` is where its next page begins."""

    def __init__(self, bookmark: Bookmark, *, fields: tuple[str, ...], limit: int) -> None:
        """``fields``: the offset fields; ``limit``: records of a full page."""
        self.bookmark = bookmark
        self._name = ", ".join(fields)
        self._is_keyset = len(fields) > 1
        self._limit = limit
        self._last: tuple[Reached, int] | None = None
        """What the page before was asked for from, and how many records it had."""

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
        return news

    def must_ask_again(self, answer: CutAnswer) -> bool:
        """Whether the page before must be asked for once more: it was short like this one, and yet more followed.

        Either records came in meanwhile, or the source gives no more than that at once.
        """
        return self._last is not None and self._last[1] == len(answer.records) < self._limit

    @property
    def asked_before(self) -> Reached:
        """What the page before was asked for from."""
        return None if self._last is None else self._last[0]

    def check_limit(self, again: CutAnswer, answer: CutAnswer) -> None:
        """Raise Fatal where the page before, asked for ``again``, ends before the records of this one, and is short.

        Then a page is full with fewer records than were asked for, and nobody could tell.
        """
        if again.column is None or answer.column is None or not again.column.orders or not answer.column.orders:
            return
        count = len(again.records)
        if count < self._limit and max(again.column.orders) < max(answer.column.orders):
            message = (
                f"the source gives no more than {count} records at once, and {self._limit} are asked for: "
                f"set http.pagination.limit={count}, or a full page cannot be told from the last one"
            )
            raise Fatal(message)

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
        self._last = (known.mark.value, len(answer.records))
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
