"""How far a source has been read, told by the values of a field: which of two values is the later one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias, cast

from fetchers.sdk.errors import Fatal

Watermark: TypeAlias = "str | int | float | None"
"""The value of an offset field as it is stored. None: nothing has been read yet."""
Reached: TypeAlias = "Watermark | tuple[str | int | float, ...]"
"""The same where records are ordered by several fields: a value of each, the first one counts most."""
Order: TypeAlias = "tuple[str, Decimal | int | float | str | tuple[Any, ...]]"
"""A kind, and within the kind something that Python can compare."""

_NUMBER = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?\Z")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,](\d+))?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z", re.ASCII)
_FRACTION = re.compile(r"[.,]\d+")


def order_of(value: str | float | tuple[str | float, ...]) -> Order:
    """What a value is compared by: numbers (also written as text), instants in ISO 8601, other text.

    Text alone would put ``9`` after ``10`` and ``…00Z`` after ``…00.5Z``. An instant without zone is taken as UTC.
    Several values are compared one after the other, each by its kind.
    """
    if isinstance(value, tuple):
        orders = [order_of(one) for one in value]
        return (", ".join(kind for kind, _order in orders), tuple(order for _kind, order in orders))
    if not isinstance(value, str):
        return ("number", value)
    if _NUMBER.match(value):
        return ("number", Decimal(value))
    instant = _INSTANT.match(value)
    if instant:
        try:
            whole = datetime.fromisoformat(_FRACTION.sub("", value, count=1))
        except ValueError:
            return ("text", value)  # such as month 13
        aware = whole if whole.tzinfo else whole.replace(tzinfo=UTC)
        # The fraction as text without end zeros sorts like the number, with digits beyond microseconds kept.
        return ("time", (_in_utc(aware), (instant.group(1) or "").rstrip("0")))
    return ("text", value)


def instant_of(value: Watermark) -> datetime | None:
    """The instant that a value names, to the second; None where it is no ISO 8601 text."""
    order = order_of(value) if isinstance(value, str) else None
    if order is None or not isinstance(order[1], tuple):
        return None
    return cast("datetime", order[1][0])


def is_after(value: str | float, mark: Watermark) -> bool:
    """Whether ``value`` is later than ``mark``. Raises Fatal where the two cannot be compared."""
    return mark is None or compare(value, mark) > 0


def compare(first: str | float, second: str | float) -> int:
    """-1, 0 or 1. Raises Fatal where one is a number or an instant and the other is not."""
    one, other = order_of(first), order_of(second)
    if one[0] != other[0]:
        message = f"an offset field holds values that cannot be compared: {one[0]} and {other[0]}"
        raise Fatal(message)
    return (one[1] > other[1]) - (one[1] < other[1])  # type: ignore[operator]  # same kind, same type


def _in_utc(instant: datetime) -> datetime:
    """The same instant; as it is where UTC has no year for it (year 1 with a zone east of it): it still compares."""
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        return instant
