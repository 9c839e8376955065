"""One way through pages whose records may move over the page borders while they are read.

A record that is updated leaves its place in a list that is in the order of its updates, and all behind it move up: the
first of the next page becomes the last of the page that has just been read. So before the news of a page count, it is
proven that the page before still ends as it did, by asking for it once more *after* the page in hand. That proves it
for lists from which records only go, or into which they only come, at the places that were read; of one that goes and
one that comes in the time of two requests nothing can tell.

What has moved is read again: the page before; and where that has nothing in common with what it was, all pages from the
first one on. What a round hands over is known record by record while the task runs, up to ``HANDED_OVER_MAX``. Beyond
that, and after a restart, it is their order that tells which of them were handed over: in rising order all up to the
highest value, in falling order all down to the lowest. An order that does not last to the end of the round, or takes
more records for known than were handed over, proves nothing: then the pages are read once more without it, and records
come twice rather than not at all. Falling order is also given up where more records have the lowest value than can be
remembered: from there on the round has no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

from fetchers.http.answers import CutAnswer
from fetchers.http.bookmark import Bookmark
from fetchers.toolkit.marks import ORDERS, RecordOrder, TooManyAlikeError, check_kinds
from fetchers.toolkit.pagination import Place

RECENT_RECORDS_MAX = 20_000
"""Records of the pages read last that are known again one by one; at least those of one page."""

HANDED_OVER_MAX = 20_000
"""Records handed over by one round that are known one by one; of more, and after a restart, their order tells."""

_RISING = {RecordOrder.UP, RecordOrder.MIXED}
_FALLING = {RecordOrder.DOWN, RecordOrder.MIXED}


class BegunAgainError(Exception):
    """The pages have to be read from the first one on, with ``bookmark``."""

    def __init__(self, bookmark: Bookmark) -> None:
        super().__init__("records moved over page borders")
        self.bookmark = bookmark


class HandedOver:
    """The records that a round has handed over since it began, known one by one, whenever its pages begin again."""

    def __init__(self, bookmark: Bookmark) -> None:
        """``bookmark``: where the round begins, or goes on after a restart."""
        self.is_complete = bookmark.is_untouched
        """Whether all of them are known; False for good after a restart, or above ``HANDED_OVER_MAX`` of them."""
        self.identities: set[str] = set()

    def add(self, identities: Iterable[str]) -> None:
        """Know these as well."""
        if self.is_complete:
            self.identities.update(identities)
            if len(self.identities) > HANDED_OVER_MAX:
                self.is_complete = False
                self.identities.clear()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A page that was read, and another one follows."""

    place: Place
    answer: CutAnswer
    identities: Sequence[str]
    has_news: bool
    is_first: bool
    """Whether no page comes before it."""


@dataclass(frozen=True, slots=True)
class Way:
    """What a walk must know of the pagination."""

    can_slip: bool
    """Whether records can come again on the next page; only where a field tells old ones from new ones."""
    is_checked: bool
    """Whether borders are proven; else every record counts as standing still."""


class Walk:
    """What is known of the pages since the walk began, and which of their records are new."""

    def __init__(self, bookmark: Bookmark, way: Way, handed_over: HandedOver, *, is_at_first_page: bool) -> None:
        """``bookmark``: where the walk begins, ``is_at_first_page``: whether no page comes before that.

        ``handed_over`` is of the round, which may be walked through more than once.
        """
        self.bookmark = bookmark
        self.has_moved = False
        """Whether records had crossed the border before the page in hand."""
        self._way = way
        self._is_at_first_page = is_at_first_page
        self._handed_over = handed_over
        self._recent: dict[str, None] = {}
        self._began_inside = bookmark.skip > 0
        self._has_deferred = False
        """Whether records were left to the next round because the newest come first."""
        self._is_deferring = False
        """Whether some of the page looked at last were; a border beside them is proven as one beside news."""
        self._passed_over = 0
        """Records that only their place in the order says to have been handed over."""
        self._seen: _Seen | None = None
        self._top: Any = None
        """Order of the first value that was read; None where there was none yet."""
        self._last_order: tuple[str, Any] | None = None
        """Kind and order of the last value of the page before; None where there is none to be compared with."""

    @property
    def place_before(self) -> Place:
        """The page to ask for once more when a border has to be proven."""
        return self._seen.place if self._seen else None

    def begin(self, answer: CutAnswer, place: Place) -> list[int]:
        """News of the first page. Raises ``BegunAgainError`` where the walk cannot begin there."""
        bookmark = self.bookmark
        skip = bookmark.skip
        if self._way.is_checked and skip and bookmark.last is not None:
            skip = self._skip(answer, bookmark.last)
        self._learn_order(answer)
        news = self._news(answer, skip=skip)
        self._count_passed_over(answer)
        self._pass(place, answer, has_news=bool(news) or self._is_deferring or skip > 0)
        return news

    def _skip(self, answer: CutAnswer, last: str) -> int:
        """Records of the page in hand that were handed over before, known by the last of them."""
        bookmark, identities = self.bookmark, answer.identities()
        if identities[bookmark.skip - 1 : bookmark.skip] == [last]:
            return bookmark.skip
        self.has_moved = True
        if last in identities:
            return identities.index(last) + 1
        raise BegunAgainError(bookmark.begun_again())

    def must_look_back(self, answer: CutAnswer) -> bool:
        """Whether the page before must be asked for once more to prove that no record went by between the two.

        Between two pages without news stands nothing new, if the records are in order.
        """
        seen = self._seen
        self.has_moved = False
        if not self._way.is_checked or seen is None or not seen.identities:
            return False
        if self.bookmark.order is RecordOrder.MIXED or seen.has_news or self._news(answer) or self._is_deferring:
            return True
        # Out of order: it may have moved, or be in no order. The very page before: all moved on by a page, or the
        # source does not read the place.
        return self._is_out_of_order(answer) or answer.records == seen.answer.records

    def _is_out_of_order(self, answer: CutAnswer) -> bool:
        """Whether the page does not go on as its order says."""
        if self._last_order is None or answer.column is None or not answer.column.orders:
            return False
        kind, last = self._last_order
        check_kinds(kind, answer.column.kind)
        first, order = answer.column.orders[0], self.bookmark.order
        return bool((order is RecordOrder.UP and first < last) or (order is RecordOrder.DOWN and first > last))

    def slipped(self, again: CutAnswer) -> list[int]:
        """New records of the page before, read again after the page in hand: those that crossed the border.

        Raises ``BegunAgainError`` where it has nothing in common with what was read.
        """
        seen, identities = self._seen, again.identities()
        self.has_moved = seen is not None and not self._stands_still(seen, again, identities)
        if seen is None or not self.has_moved:
            return []
        if not seen.is_first and not any(identity in self._recent for identity in identities):
            raise BegunAgainError(self.bookmark.begun_again())
        if self.bookmark.order is RecordOrder.DOWN and self._began_inside:
            # What was pushed on to these pages was handed over before the restart, if its order says so.
            self.bookmark = replace(self.bookmark, is_again=True)
        self._last_order = None
        self._learn_order(again)
        news = self._news(again)
        self._pass(seen.place, again, has_news=bool(news) or self._is_deferring or seen.has_news)
        self._last_order = None
        return news

    def _stands_still(self, seen: _Seen, again: CutAnswer, identities: Sequence[str]) -> bool:
        if identities[-1:] == seen.identities[-1:] and all(identity in self._recent for identity in identities):
            return True
        if again.column is None or seen.answer.column is None:
            return False
        # Where values alone tell the records apart, other bytes are no other record (a counter of views, say).
        orders = again.column.orders
        is_strict = all(a < b for a, b in pairwise(orders)) or all(a > b for a, b in pairwise(orders))
        return is_strict and len(orders) == len(identities) and list(orders) == list(seen.answer.column.orders)

    def go_on(self, answer: CutAnswer, place: Place) -> list[int]:
        """News of the next page, whose border is proven. Raises ``BegunAgainError`` where the order does not last."""
        self._learn_order(answer)
        news = self._news(answer)
        self._count_passed_over(answer)
        self._pass(place, answer, has_news=bool(news) or self._is_deferring)
        return news

    def _count_passed_over(self, answer: CutAnswer) -> None:
        """See that no more records are taken for those of this round than it has handed over.

        Raises ``BegunAgainError`` where there are: then the order by which they were known is another one.
        """
        bookmark = self.bookmark
        if self._beyond is None:
            return
        passed = {*answer.news(bookmark.mark)}.difference(answer.news(bookmark.mark, beyond=self._beyond))
        if bookmark.order is RecordOrder.DOWN:
            passed.difference_update(answer.news(bookmark.highest))  # came in since; the next round has them
        identities = answer.identities()
        self._passed_over += sum(identities[position] not in self._recent for position in passed)
        if self._passed_over > bookmark.records:
            raise BegunAgainError(replace(bookmark, order=RecordOrder.MIXED).begun_again())

    def hand_over(self, answer: CutAnswer, news: Sequence[int]) -> None:
        """Note that these records were handed over.

        Raises Fatal where more of them have the highest value than can be remembered, and ``BegunAgainError`` where
        that many have the lowest, and the order counted on is told by it; also where that order takes one of these
        for handed over, as it would after a restart.
        """
        bookmark = self.bookmark
        if bookmark.is_again and not {*news}.issubset(answer.news(bookmark.mark, beyond=bookmark.frontier)):
            self._go_by(RecordOrder.MIXED)
        if self._way.is_checked and self.bookmark.order in {RecordOrder.UNKNOWN, RecordOrder.DOWN}:
            self._lower(answer, news)
        highest = answer.raise_mark(self.bookmark.highest, news)
        self.bookmark = replace(self.bookmark, highest=highest, records=self.bookmark.records + len(news))
        if self._way.is_checked:
            identities = answer.identities()
            self._handed_over.add(identities[position] for position in news)

    def _lower(self, answer: CutAnswer, news: Sequence[int]) -> None:
        try:
            lowest = answer.raise_mark(self.bookmark.lowest, news)
        except TooManyAlikeError:
            # The lowest value only saves repeating records after a move: without it there is no order to go by.
            self._go_by(RecordOrder.MIXED)
        else:
            self.bookmark = replace(self.bookmark, lowest=replace(lowest, unreadable=()))

    def is_past_news(self, answer: CutAnswer) -> bool:
        """Whether all on the page in hand was known before the round, and what follows it is older."""
        return not answer.news(self.bookmark.mark) and self._is_falling(answer)

    def _is_falling(self, answer: CutAnswer) -> bool:
        order = answer.order()
        if answer.column is None or order is not RecordOrder.UNKNOWN:
            return order is RecordOrder.DOWN
        orders = answer.column.orders
        return bool(orders) and self._top is not None and self._top > orders[-1]

    def last_identity(self) -> str | None:
        """What the last record of the page in hand is known again by."""
        return self._seen.identities[-1] if self._way.is_checked and self._seen and self._seen.identities else None

    def _news(self, answer: CutAnswer, *, skip: int = 0) -> list[int]:
        self._is_deferring = False
        news = answer.news(self.bookmark.mark, skip=skip, beyond=self._beyond)
        recent, handed_over = self._recent, self._handed_over.identities
        if not news or not (recent or handed_over):
            return news
        identities = answer.identities()
        news = [at for at in news if identities[at] not in recent and identities[at] not in handed_over]
        if self.bookmark.order is not RecordOrder.DOWN or not (self.has_moved or self.bookmark.is_again):
            return news
        # What came in at the front since the round began is of the next one, which finds all of it.
        # What has no value is of this one: the next knows all that it has seen.
        newer = frozenset(answer.news(self.bookmark.highest)).difference(answer.rejections)
        self._is_deferring = not newer.isdisjoint(news)
        self._has_deferred |= self._is_deferring
        return [position for position in news if position not in newer]

    @property
    def _beyond(self) -> Any:
        """What the order takes for handed over; None where it is not asked."""
        return self.bookmark.frontier if self.bookmark.is_again and not self._handed_over.is_complete else None

    def _pass(self, place: Place, answer: CutAnswer, *, has_news: bool) -> None:
        """Remember a page."""
        if self._top is None and answer.column is not None and answer.column.orders:
            self._top = answer.column.orders[0]
        if not self._way.can_slip:
            return
        identities = answer.identities()
        for identity in identities:
            self._recent.pop(identity, None)
        self._recent |= dict.fromkeys(identities)
        excess = len(self._recent) - max(RECENT_RECORDS_MAX, len(identities))
        for identity in list(islice(self._recent, max(0, excess))):
            del self._recent[identity]
        is_first = self._is_at_first_page if self._seen is None else self._seen.is_first and self._seen.place == place
        self._seen = _Seen(place, answer, identities, has_news, is_first)

    def _learn_order(self, answer: CutAnswer) -> None:
        """See in what order the records come. Raises ``BegunAgainError`` where another one was counted on."""
        column = answer.column
        if not self._way.is_checked or column is None or not column.orders:
            return
        orders = column.orders
        if self._last_order is not None:
            check_kinds(self._last_order[0], column.kind)
            orders = [self._last_order[1], *orders]
        self._last_order = (column.kind, column.orders[-1])
        order = self.bookmark.order
        is_rising = order in _RISING or any(a < b for a, b in pairwise(orders))
        is_falling = order in _FALLING or any(a > b for a, b in pairwise(orders))
        self._go_by(ORDERS[is_rising, is_falling])

    def _go_by(self, order: RecordOrder) -> None:
        self.bookmark = replace(self.bookmark, order=order)
        if order is RecordOrder.MIXED and (self.bookmark.is_again or self._has_deferred):
            raise BegunAgainError(self.bookmark.begun_again())
