"""Dates, times and instants: ISO 8601 text (the profile of RFC 3339) or a number in Avro's own unit.

Accepted text: `YYYY-MM-DD`; `hh:mm:ss[.f…]`; `YYYY-MM-DDThh:mm:ss[.f…]` with `Z` or `±hh:mm` for instants and without
zone for local ones. Years 0001 to 9999, no leap seconds, no digits finer than the unit unless they are zeros.
"""

from __future__ import annotations

import datetime as dt
import re

from spark_batch.avro_types import DAY_SECONDS, EPOCH, Temporal, unit_range
from spark_batch.outcome import Reason

_NUMBER_DIGITS_MAX = 20
_DATE = r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
_TIME = r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9])(?:\.(?P<fraction>[0-9]{1,18}))?"
_ZONE = r"(?P<zone>Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_FORMS = {
    Temporal.DATE: re.compile(_DATE),
    Temporal.TIME_MILLIS: re.compile(_TIME),
    Temporal.TIME_MICROS: re.compile(_TIME),
    Temporal.TIMESTAMP_MILLIS: re.compile(f"{_DATE}T{_TIME}{_ZONE}"),
    Temporal.TIMESTAMP_MICROS: re.compile(f"{_DATE}T{_TIME}{_ZONE}"),
    Temporal.LOCAL_TIMESTAMP_MILLIS: re.compile(f"{_DATE}T{_TIME}"),
    Temporal.LOCAL_TIMESTAMP_MICROS: re.compile(f"{_DATE}T{_TIME}"),
}
_INTEGER = re.compile(r"-?[0-9]+")


class InstantError(ValueError):
    """The value is no such date or time; `reason` classes it."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def parse_instant(kind: Temporal, text: str, *, is_number: bool) -> int:
    """The number Avro carries for this text or number literal; raises InstantError."""
    number = _from_literal(text) if is_number else _from_text(kind, text)
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


def _from_text(kind: Temporal, text: str) -> int:
    match = _FORMS[kind].fullmatch(text)
    if match is None:
        raise InstantError(Reason.WRONG_TYPE, f"expected a {kind.value} as number or ISO 8601 text")
    parts = match.groupdict()
    days = _days(parts["date"]) if "date" in parts else 0
    if kind is Temporal.DATE:
        return days
    seconds = int(parts["hour"]) * 3600 + int(parts["minute"]) * 60 + int(parts["second"]) - _offset(parts.get("zone"))
    digits = len(str(kind.units_per_second)) - 1
    fraction = (parts["fraction"] or "").ljust(digits, "0")
    if fraction[digits:].strip("0"):
        raise InstantError(Reason.OUT_OF_RANGE, f"expected no digits finer than {kind.value}")
    return (days * DAY_SECONDS + seconds) * kind.units_per_second + int(fraction[:digits])


def _days(text: str) -> int:
    try:
        return dt.date.fromisoformat(text).toordinal() - EPOCH
    except ValueError:
        raise InstantError(Reason.OUT_OF_RANGE, "expected a day of the calendar") from None


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return -seconds if zone[0] == "-" else seconds
