"""How far a source has been read, exactly: a value, and which records with just that value have been handed over.

A time stamp alone either loses the record that appears later with the same stamp, or repeats the one that was there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fetchers.sdk.errors import Fatal
from fetchers.toolkit.watermark import Order, Watermark, order_of

KEYS_MAX = 10_000
"""Records with one and the same value that can be told apart; 17 bytes each in the stored offset."""
_DIGEST_BYTES = 8


def key_hash(identity: bytes) -> str:
    """What a record is remembered by: 64 bits of a hash of its key, or of all its bytes."""
    return hashlib.blake2b(identity, digest_size=_DIGEST_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything below ``value`` has been read, and of what is equal to it the records of ``keys``."""

    value: Watermark = None
    keys: frozenset[str] = frozenset()

    def new_among(self, values: Sequence[str | float], key_of: Callable[[int], str]) -> list[int]:
        """Positions of the values that this mark has not seen. Raises Fatal where they cannot be compared.

        ``key_of(position)`` is asked only for values equal to the mark's.
        """
        if self.value is None:
            return list(range(len(values)))
        mark = order_of(self.value)
        found = []
        for position, value in enumerate(values):
            if value == self.value:
                if key_of(position) not in self.keys:
                    found.append(position)
                continue
            order = order_of(value)
            _check_kinds(order, mark)
            if order > mark or (order == mark and key_of(position) not in self.keys):
                found.append(position)
        return found

    def raised_by(self, values: Sequence[str | float], positions: Sequence[int], key_of: Callable[[int], str]) -> Mark:
        """The mark after the records at ``positions`` have been handed over as well."""
        if not positions:
            return self
        orders = {position: order_of(values[position]) for position in positions}
        top = max(positions, key=lambda position: _within(orders[position], orders[positions[0]]))
        keys = frozenset(key_of(position) for position in positions if orders[position] == orders[top])
        if self.value is not None:
            mine = order_of(self.value)
            _check_kinds(orders[top], mine)
            if orders[top] < mine:
                return self
            if orders[top] == mine:
                keys |= self.keys
        if len(keys) > KEYS_MAX:
            message = f"more than {KEYS_MAX} records have the same value in the offset field; choose a finer field"
            raise Fatal(message)
        return Mark(values[top], keys)


def _within(order: Order, example: Order) -> Order:
    _check_kinds(order, example)
    return order


def _check_kinds(one: Order, other: Order) -> None:
    if one[0] != other[0]:
        message = f"an offset field holds values that cannot be compared: {one[0]} and {other[0]}"
        raise Fatal(message)
