"""Ways through an answer of many pages. Each is a value: where it starts, what it asks for, where it goes on.

A *place* is what tells one page from another, one text or number; it is stored in the source offset, so that a
restart goes on in the middle. None means: there is no further page.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import msgspec

from fetchers.sdk.errors import Fatal, Retriable
from fetchers.toolkit.fields import raw_field, text_at

Place: TypeAlias = "str | int | None"

PAGES_MAX = 100_000
_NUMBER = re.compile(rb"-?[0-9]+((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\Z")
_INTEGERS = range(-(2**63), 2**63)
_DIGITS_MAX = len(str(-(2**63)))
_NO_PAGE = frozenset({b"null", b"false", b'""', b"[]", b"{}"})
"""How sources say that there is no further page."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """URL and query of the request for one page; the query is not encoded yet."""

    url: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What a way must know of an answer."""

    url: str
    body: bytes
    links: Sequence[str]
    records: int
    """Count of records in the answer, old ones included."""
    last_record: bytes | None = None


class Pagination(Protocol):
    """A way through the pages."""

    is_page_growing: ClassVar[bool]
    """Whether a page can hold more when it is asked for again, and its following place takes no note of that."""
    is_counted: ClassVar[bool]
    """Whether places are counted here and not named by the source, which may take no note of them at all."""

    def first(self) -> Place:
        """Where it starts; None where nothing has to be said for the first page."""

    def request(self, place: Place, base: PageRequest) -> PageRequest:
        """What to ask for the page at ``place``."""

    def following(self, place: Place, answer: PageAnswer) -> Place:
        """The place after this answer; None when it was the last. Raises Fatal where it must not be followed."""


@dataclass(frozen=True, slots=True)
class SinglePage:
    """No pagination: the one answer holds everything."""

    is_page_growing: ClassVar[bool] = False
    is_counted: ClassVar[bool] = False

    def first(self) -> Place:
        """None: the first and only page needs no place."""
        return None

    def request(self, place: Place, base: PageRequest) -> PageRequest:
        """The request as it is configured."""
        del place
        return base

    def following(self, place: Place, answer: PageAnswer) -> Place:
        """None, since no page follows the only one."""
        del place, answer
        return None


@dataclass(frozen=True, slots=True)
class PageNumber:
    """``?page=1``, ``?page=2`` … until a page is empty.

    A page shorter than the one before is no end: servers may give less than was asked for.
    """

    parameter: str = "page"
    start: int = 1

    is_page_growing: ClassVar[bool] = True
    """The last page is filled up before there is a next one."""
    is_counted: ClassVar[bool] = True

    def first(self) -> Place:
        """The number of the first page."""
        return self.start

    def request(self, place: Place, base: PageRequest) -> PageRequest:
        """The number in the query."""
        return PageRequest(base.url, {**base.query, self.parameter: str(self.start if place is None else place)})

    def following(self, place: Place, answer: PageAnswer) -> Place:
        """The next number; None after an empty page."""
        return _number(place, self.start) + 1 if answer.records else None


@dataclass(frozen=True, slots=True)
class OffsetLimit:
    """``?offset=0&limit=100``, then on by as many records as came, until none come."""

    limit: int = 100
    offset_parameter: str = "offset"
    limit_parameter: str = "limit"

    is_page_growing: ClassVar[bool] = False
    """The following place counts what was there."""
    is_counted: ClassVar[bool] = True

    def first(self) -> Place:
        """Zero, the offset of the first record."""
        return 0

    def request(self, place: Place, base: PageRequest) -> PageRequest:
        """Both numbers in the query."""
        numbers = {self.offset_parameter: str(_number(place, 0)), self.limit_parameter: str(self.limit)}
        return PageRequest(base.url, {**base.query, **numbers})

    def following(self, place: Place, answer: PageAnswer) -> Place:
        """The offset behind the records that came; None after an empty page."""
        return _number(place, 0) + answer.records if answer.records else None


@dataclass(frozen=True, slots=True)
class CursorInBody:
    """The answer names the next page by a cursor at ``path``; null, "", false or none at all is the end.

    Text, or a number: whole ones as numbers, what has a fraction or more than 64 bits digit by digit as text.
    """

    path: str
    parameter: str = "cursor"

    is_page_growing: ClassVar[bool] = False
    """The source gives a cursor that leaves nothing out."""
    is_counted: ClassVar[bool] = False

    def first(self) -> Place:
        """The first page has no cursor."""
        return None

    def request(self, place: Place, base: PageRequest) -> PageRequest:
        """The cursor in the query."""
        return base if place is None else PageRequest(base.url, {**base.query, self.parameter: str(place)})

    def following(self, place: Place, answer: PageAnswer) -> Place:
        """The cursor of the answer."""
        del place
        return in_body(answer.body, self.path)


@dataclass(frozen=True, slots=True)
class CursorOfRecord:
    """The next page is asked for by a field of the last record of this one (Stripe's ``starting_after``).

    The page after the last is empty. A record that is updated may take the cursor with it to another place.
    """

    path: str = "id"
    parameter: str = "starting_after"

    is_page_growing: ClassVar[bool] = False
    """The next page begins after the last record that was read, wherever that stands now."""
    is_counted: ClassVar[bool] = False

    def first(self) -> Place:
        """The first page has no cursor."""
        return None

    def request(self, place: Place, base: PageRequest) -> PageRequest:
        """The last record's field in the query."""
        return base if place is None else PageRequest(base.url, {**base.query, self.parameter: str(place)})

    def following(self, place: Place, answer: PageAnswer) -> Place:
        """The field of the last record; None after an empty page. Raises Fatal where the record has no such field."""
        del place
        if answer.last_record is None:
            return None
        found = in_body(answer.last_record, self.path)
        if found is None:
            message = f"the last record of a page has no text or number in {self.path!r}, by which to ask for the next"
            raise Fatal(message)
        return found


@dataclass(frozen=True, slots=True)
class FromMark:
    """Each page is a request of its own, which begins at what was read last; the source must sort by it."""

    limit: int = 100
    limit_parameter: str = "limit"

    is_page_growing: ClassVar[bool] = False
    is_counted: ClassVar[bool] = False

    def first(self) -> Place:
        """None: the stored offset is the place."""
        return None

    def request(self, place: Place, base: PageRequest) -> PageRequest:
        """The limit in the query."""
        del place
        return PageRequest(base.url, {**base.query, self.limit_parameter: str(self.limit)})

    def following(self, place: Place, answer: PageAnswer) -> Place:
        """None: the mark after this page tells where the next begins."""
        del place, answer
        return None


@dataclass(frozen=True, slots=True)
class EndSign:
    """A field of the answer that says whether it is the last: ``has_more``, ``end_of_stream``."""

    path: str
    is_last_if: str
    """What stands there on the last page: ``true`` or ``false``."""

    def says_last(self, body: bytes) -> bool:
        """Whether this is the last page. Raises Fatal where there is neither true nor false."""
        found = text_at(body, self.path)
        if found not in {"true", "false"}:
            message = f"the answer does not say by true or false at {self.path!r} whether it is the last page"
            raise Fatal(message)
        return found == self.is_last_if


class PageGuard:
    """Watches one round: every place once, not more than so many, and no counted place that leads nowhere."""

    def __init__(self, *, is_counted: bool, pages_max: int = PAGES_MAX, is_moving: bool = False) -> None:
        """``is_counted``: of the round's pagination; ``is_moving``: whether places are records, which may move."""
        self._circle = Retriable if is_moving else Fatal
        self.pages_max = pages_max
        self._is_counted = is_counted
        self._seen: set[bytes] = set()
        self._last: Sequence[bytes] = ()

    def pass_by(self, place: Place) -> None:
        """Count the page at ``place``. Raises Fatal for one that was passed before, and over ``pages_max``.

        For one that was passed before it is Retriable where places move.
        """
        mark = hashlib.blake2b(repr(place).encode(), digest_size=8).digest()
        if mark in self._seen:
            message = f"the pages go in a circle: after {len(self._seen)} pages the source names one of them again"
            raise self._circle(message)
        if len(self._seen) >= self.pages_max:
            message = f"one round has more than {self.pages_max} pages"
            raise Fatal(message)
        self._seen.add(mark)

    def go_on_from(self, place: Place, records: Sequence[bytes], *, has_moved: bool = False) -> None:
        """Look at the page at ``place``, which another one follows; ``has_moved``: the list, since the page before.

        Raises Fatal where it is the page before once more: so answers a source that does not read the count, and it
        would give its first page for every place there is.
        """
        if self._is_counted and records and records == self._last and not has_moved:
            message = (
                f"the pages do not go on: at {place} came the very records of the page before; "
                "does the source know the field that counts the pages?"
            )
            raise Fatal(message)
        self._last = records


def in_body(body: bytes, path: str) -> str | int | None:
    """The text or number that names the next page; None for null, "", false, and where there is nothing."""
    raw = raw_field(body, path)
    if raw is None or raw.translate(None, b" \t\r\n") in _NO_PAGE:
        return None
    number = _NUMBER.match(raw)
    if number:
        return _exact(raw.decode(), is_whole=not number[1])
    try:
        return msgspec.json.decode(raw, type=str) or None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"the source names a next page at {path!r} by something that is neither text nor number"
        raise Fatal(message) from error


def _exact(text: str, *, is_whole: bool) -> str | int:
    """A number digit by digit: as text where a number in the stored offset could be another one."""
    if is_whole and len(text) <= _DIGITS_MAX:
        value = int(text)
        if value in _INTEGERS and str(value) == text:
            return value
    return text


def _number(place: Place, default: int) -> int:
    """A place that was stored. Raises Fatal where somebody has stored something else."""
    try:
        return default if place is None else int(place)
    except ValueError as error:
        message = "the stored offset holds no page number; was the pagination changed?"
        raise Fatal(message) from error
