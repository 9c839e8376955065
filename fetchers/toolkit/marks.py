"""How far a source has been read, exactly: a value, and which records with just that value have been handed over.

A time stamp alone either loses the record that appears later with the same stamp, or repeats the one that was there.
Values are numbers (seconds and milliseconds since 1970 among them), instants in ISO 8601, or other text. A source
offset holds a mark as two fields, the value and the hashes of its records: ``offset_of(mark)``, ``mark_of(offset)``.
The hashes of up to ``KEYS_MAX`` (10,000) records are held, 17 bytes each.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, cast

from fetchers.sdk.errors import Fatal
from fetchers.sdk.page import Offset
from fetchers.toolkit.watermark import Reached, order_of

KEYS_MAX = 10_000
"""Records with one and the same value, or without any, that can be told apart; 17 bytes each in the stored offset."""
READ, KEYS = "read", "read.keys"
"""Fields of the source offset: the highest value, and by which keys the records with just that value are known."""
_DIGEST_BYTES = 8


def key_hash(identity: bytes) -> str:
    """What a record is remembered by: 64 bits of a hash of its key, or of all its bytes."""
    return hashlib.blake2b(identity, digest_size=_DIGEST_BYTES).hexdigest()


class TooManyAlikeError(Fatal):
    """More than ``KEYS_MAX`` records have the value at which a mark would stand."""


@dataclass(frozen=True, slots=True)
class Column:
    """The offset field, or several of them, of some records, ready to be compared."""

    values: Sequence[str | float | tuple[str | float, ...]]
    orders: Sequence[Any]
    """What each value is compared by; all of one kind."""
    kind: str

    @classmethod
    def of(cls, values: Sequence[str | float | tuple[str | float, ...]]) -> Column:
        """Bring values into order. Raises Fatal where they are of several kinds, such as numbers and words."""
        if {type(value) for value in values} <= {int, float}:
            return cls(values, values, "number")
        pairs = [order_of(value) for value in values]
        for kind, _order in pairs:
            check_kinds(kind, pairs[0][0])
        return cls(values, [order for _kind, order in pairs], pairs[0][0])


class RecordOrder(StrEnum):
    """In what order of the offset field records have come so far."""

    UNKNOWN = ""
    """Not told by what came: nothing, one record, or equal values only."""
    UP = "up"
    DOWN = "down"
    MIXED = "mixed"


ORDERS = {
    (False, False): RecordOrder.UNKNOWN,
    (True, False): RecordOrder.UP,
    (False, True): RecordOrder.DOWN,
    (True, True): RecordOrder.MIXED,
}
"""The order of records, by whether a later one was higher and whether a later one was lower."""

_IS_BEYOND = {RecordOrder.UP: operator.gt, RecordOrder.DOWN: operator.lt}


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything below ``value`` has been read, and of what is equal to it the records of ``keys``."""

    value: Reached = None
    keys: frozenset[str] = frozenset()
    unreadable: tuple[str, ...] = ()
    """Keys of records without a value, such as those that cannot be read, oldest first. They neither move the mark nor
    are moved by it: that they have been handed over is all that is known of them."""
    order: RecordOrder = RecordOrder.UP
    """``DOWN``, for lists with the newest record first: everything *above* ``value`` has been read. In other orders
    only the records of ``keys`` have."""

    def new_among(self, column: Column, key_of: Callable[[int], str]) -> list[int]:
        """Positions of the values that this mark has not seen. Raises Fatal where they cannot be compared.

        ``key_of(position)`` is asked only for values equal to the mark's.
        """
        if self.value is None or not column.values:
            return list(range(len(column.values)))
        kind, mark = order_of(self.value)
        check_kinds(column.kind, kind)
        is_beyond = _IS_BEYOND.get(self.order, operator.ne)
        return [
            position
            for position, order in enumerate(column.orders)
            if is_beyond(order, mark) or (order == mark and key_of(position) not in self.keys)
        ]

    def raised_by(self, column: Column, positions: Sequence[int], key_of: Callable[[int], str]) -> Mark:
        """The mark after the records at ``positions`` have been handed over as well.

        Raises ``TooManyAlikeError`` where more records share its value than can be told apart.
        """
        if not positions:
            return self
        orders = column.orders
        top = (min if self.order is RecordOrder.DOWN else max)(orders[position] for position in positions)
        at_top = [position for position in positions if orders[position] == top]
        keys = frozenset(map(key_of, at_top))
        if self.value is not None:
            kind, mine = order_of(self.value)
            check_kinds(column.kind, kind)
            if top != mine and (top > mine) == (self.order is RecordOrder.DOWN):
                return self
            if top == mine:
                keys |= self.keys
        if len(keys) > KEYS_MAX:
            message = f"more than {KEYS_MAX} records have the same value in the offset field; choose a finer field"
            raise TooManyAlikeError(message)
        return replace(self, value=column.values[at_top[0]], keys=keys)

    def seeing(self, unreadable: Sequence[str]) -> Mark:
        """The mark of a round that has seen the records with these keys as well.

        Raises Fatal where they are more than can be remembered: each round would hand them over again.
        """
        seen = tuple(dict.fromkeys((*self.unreadable, *unreadable)))
        if len(seen) > KEYS_MAX:
            message = (
                f"more than {KEYS_MAX} records of one round cannot be read, or lack the offset field; are they right?"
            )
            raise Fatal(message)
        return self if len(seen) == len(self.unreadable) else replace(self, unreadable=seen)

    def remembering(self, seen: Sequence[str]) -> Mark:
        """The mark after a round that has seen the records with these keys.

        Of more than ``KEYS_MAX`` the oldest that this round has not seen are forgotten.
        """
        present = frozenset(seen)
        known = list(dict.fromkeys((*self.unreadable, *seen)))
        if len(known) == len(self.unreadable):
            return self
        beyond = max(0, len(known) - KEYS_MAX)
        gone = frozenset([key for key in known if key not in present][:beyond])
        return replace(self, unreadable=tuple(key for key in known if key not in gone))


def offset_of(mark: Mark) -> Offset:
    """A mark as a page's offset: ``{"read": 7, "read.keys": "0f3c… 9a1b…"}``; add fields of your own beside it.

    Of records without a value, and of an order other than ``UP``, it says nothing.
    """
    return {READ: cast("str | int | float | None", mark.value), KEYS: " ".join(sorted(mark.keys))}


def mark_of(offset: Offset) -> Mark:
    """The mark that ``offset_of`` stored; nothing read where the offset is empty. Raises Fatal where it holds none."""
    value, keys = offset.get(READ), offset.get(KEYS, "")
    if isinstance(value, bool) or not isinstance(keys, str):
        message = "the stored offset is none of an ordered list; was it written by another connector?"
        raise Fatal(message)
    return Mark(value, frozenset(keys.split()))


def check_kinds(one: str, other: str) -> None:
    """Raise Fatal where values of these two kinds would have to be compared."""
    if one != other:
        message = f"an offset field holds values that cannot be compared: {one} and {other}"
        raise Fatal(message)
