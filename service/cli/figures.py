"""Figures as people read them, the same in the live line, the summary and the commands that ask a worker."""

from __future__ import annotations

import time

STATE_STYLES = {"RUNNING": "green", "FAILED": "bold red", "PAUSED": "yellow", "STOPPED": "yellow"}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_WHOLE = 10
"""From here on digits after the point say nothing."""


def count(records: int) -> str:
    """A number of records, with separators."""
    return f"{records:,}"


def rate(per_second: float) -> str:
    """Records per second; a tenth counts below ten."""
    return f"{per_second:,.0f}" if per_second >= _WHOLE or not per_second else f"{per_second:.1f}"


def duration(seconds: float) -> str:
    """In the largest unit of which there is more than one; below a minute in seconds."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= _WHOLE or not seconds else f"{seconds:.1f} s"


def lag(seconds: float | None, records: int | None) -> str:
    """How far a source is behind in time, or a sink in records; a dash where nobody has told."""
    if seconds is not None:
        return duration(seconds)
    return "-" if records is None else f"{records:,} records"


def ago(at_seconds: float | None, *, now_seconds: float | None = None) -> str:
    """How long ago an instant was, in seconds since the epoch; a dash for none."""
    if at_seconds is None:
        return "-"
    now = time.time() if now_seconds is None else now_seconds
    return f"{duration(max(0.0, now - at_seconds))} ago"
