"""``Retry-After``: how long a source asks to be left alone (RFC 9110 §10.2.3)."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

WAIT_SECONDS_MAX = 24 * 3600.0
"""More than a day is taken for a mistake of the source, and cut to a day."""


def retry_after_seconds(value: str | None, *, now: datetime) -> float | None:
    """Seconds to wait from ``now`` (aware); None when the header is absent or unreadable.

    Both forms are read: seconds (some sources send a fraction) and an HTTP date; a date in the past is 0.
    """
    if value is None or not value.strip():
        return None
    seconds = _number(value)
    if seconds is None:
        seconds = _until(value, now)
    return None if seconds is None else min(max(seconds, 0.0), WAIT_SECONDS_MAX)


def _number(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _until(value: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - now).total_seconds()
