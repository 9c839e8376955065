"""Which days are due: pure arithmetic of days, zones and windows.

A *day* is one of the project's time zone. A *window* is what one request asks for: one day, or several in a row cut on
a fixed grid, so that a day that is read again always falls into the window it was in before. The window's label is the
grid's day, whatever part of the window is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """Days that one request asks for, both ends included."""

    first: date
    last: date
    label: str
    """First day of the whole window, of which ``first`` to ``last`` may be a part."""


def end_of(day: date, zone: tzinfo) -> datetime:
    """The instant (UTC) when a day is over for good.

    Where clocks are put back over midnight a day ends twice; the later end counts.
    """
    midnight = datetime.combine(day + ONE_DAY, time(), zone)
    return max(midnight.replace(fold=fold).astimezone(UTC) for fold in (0, 1))


def last_finished(now: datetime, zone: tzinfo) -> date:
    """The newest day that is over at ``now`` (aware)."""
    day = now.astimezone(zone).date() - ONE_DAY
    while end_of(day, zone) > now:
        day -= ONE_DAY
    return day


def grid_day(day: date, width_days: int) -> date:
    """First day of the window that a day belongs to; the grid is anchored in the calendar, not in a config."""
    return date.fromordinal(day.toordinal() - day.toordinal() % width_days)


def windows_between(first: date, last: date, width_days: int) -> Iterator[Window]:
    """Windows that cover ``first`` to ``last`` (included) without gap or overlap; none when ``last`` is earlier."""
    begin = first
    while begin <= last:
        grid = grid_day(begin, width_days)
        end = min(grid + timedelta(days=width_days - 1), last)
        yield Window(begin, end, grid.isoformat())
        begin = end + ONE_DAY
