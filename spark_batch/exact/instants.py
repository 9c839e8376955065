"""Dates, times and instants: ISO 8601 text (the profile of RFC 3339) or a number in Avro's own unit.

Accepted text: `YYYY-MM-DD`; `hh:mm:ss[.f…]`; `YYYY-MM-DDThh:mm:ss[.f…]` with `Z` or `±hh:mm` for instants and without
zone for local ones. Years 0001 to 9999, no leap seconds, no digits finer than the unit unless they are zeros.
Where the contract names a pattern, the text stands as that says instead.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

from spark_batch.avro_types import DAY_SECONDS, EPOCH, Temporal, unit_range
from spark_batch.outcome import Reason

if TYPE_CHECKING:
    from spark_batch.coercion import InstantPattern

_NUMBER_DIGITS_MAX = 20
_DATE = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_TIME = r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9])(?:\.(?P<fraction>[0-9]{1,18}))?"
_ZONE = r"(?P<zone>Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
ISO_FORMS = {
    Temporal.DATE: _DATE,
    Temporal.TIME_MILLIS: _TIME,
    Temporal.TIME_MICROS: _TIME,
    Temporal.TIMESTAMP_MILLIS: f"{_DATE}T{_TIME}{_ZONE}",
    Temporal.TIMESTAMP_MICROS: f"{_DATE}T{_TIME}{_ZONE}",
    Temporal.LOCAL_TIMESTAMP_MILLIS: f"{_DATE}T{_TIME}",
    Temporal.LOCAL_TIMESTAMP_MICROS: f"{_DATE}T{_TIME}",
}
"""Regular expressions of the accepted texts, a named group for each part; for Python's `re` and for RE2."""
_INTEGER = re.compile(r"-?[0-9]+")


class InstantError(ValueError):
    """The value is no such date or time; `reason` classes it."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def parse_instant(kind: Temporal, text: str, *, is_number: bool, pattern: InstantPattern | None = None) -> int:
    """The number Avro carries for this number literal, or text by ISO 8601 or the pattern; raises InstantError."""
    number = _from_literal(text) if is_number else _from_text(kind, text, pattern)
    low, high = unit_range(kind)
    if not low <= number <= high:
        raise InstantError(Reason.OUT_OF_RANGE, f"expected a {kind.value} from year 0001 to 9999")
    return number


def _from_literal(literal: str) -> int:
    if not _INTEGER.fullmatch(literal):
        raise InstantError(Reason.WRONG_TYPE, "expected an integer or ISO 8601 text")
    if len(literal) > _NUMBER_DIGITS_MAX:
        raise InstantError(Reason.OUT_OF_RANGE, "expected an integer of 64 bits")
    return int(literal)


def _from_text(kind: Temporal, text: str, pattern: InstantPattern | None) -> int:
    match = re.fullmatch(ISO_FORMS[kind] if pattern is None else pattern.expression, text)
    if match is None:
        form = "as number or ISO 8601 text" if pattern is None else f"as text by the pattern {pattern.pattern}"
        raise InstantError(Reason.WRONG_TYPE, f"expected a {kind.value} {form}")
    parts = match.groupdict(default="")
    days = _days(parts["year"], parts["month"], parts["day"]) if "year" in parts else 0
    if kind is Temporal.DATE:
        return days
    clock = int(parts["hour"]) * 3600 + int(parts["minute"]) * 60 + int(parts.get("second", "0"))
    seconds = clock - _offset(parts.get("zone", None if pattern is None else pattern.zone))
    digits = len(str(kind.units_per_second)) - 1
    fraction = parts.get("fraction", "").ljust(digits, "0")
    if fraction[digits:].strip("0"):
        raise InstantError(Reason.OUT_OF_RANGE, f"expected no digits finer than {kind.value}")
    return (days * DAY_SECONDS + seconds) * kind.units_per_second + int(fraction[:digits])


def _days(year: str, month: str, day: str) -> int:
    try:
        return dt.date(int(year), int(month), int(day)).toordinal() - EPOCH
    except ValueError:
        raise InstantError(Reason.OUT_OF_RANGE, "expected a day of the calendar") from None


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds
