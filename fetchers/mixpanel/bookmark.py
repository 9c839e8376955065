"""The source offset: which days are read, which are still open for late events, and where in a day we are.

``{"position": "2016-03-22"}`` is the form of the 2016 connector: every day before has been read in full. headrace adds
``open``, the first day that is still read again for late events, while a day is read ``day`` and ``line``, and for
windows of several days their width. A day before ``open`` is never asked for again, because what is known of its
records for de-duplication has been dropped.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Self

from fetchers.mixpanel.windows import ONE_DAY, Window, grid_day
from fetchers.sdk import DedupeScope, Fatal, Offset, Scalar


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far the source has been read."""

    position: date
    """First day that has not been read in full after it ended."""
    open: date
    """First day that may be asked for again; never after ``position``."""
    width_days: int = 1
    """Days of a window, fixed when the source is read for the first time: another width means other labels."""
    day: date | None = None
    """First day of the window being read in a round; None between rounds."""
    line: int | None = None
    """Last line handed over of that window."""

    @classmethod
    def first(cls, from_date: date, *, width_days: int) -> Self:
        """Nothing has been read yet."""
        return cls(from_date, from_date, width_days)

    @classmethod
    def of(cls, offset: Offset, *, width_days: int) -> Self:
        """Read a stored offset. Raises Fatal where it is none of ours, nor the 2016 connector's."""
        position = _day(offset, "position")
        if position is None:
            raise Fatal(_unreadable("position", offset.get("position")))
        first_open = _day(offset, "open")
        line = offset.get("line")
        return cls(
            position=position,
            open=position if first_open is None else min(first_open, position),
            width_days=width_days if first_open is None else _width(offset),
            day=_day(offset, "day"),
            line=line if isinstance(line, int) else None,
        )

    def offset(self) -> Offset:
        """The source offset to store."""
        offset: dict[str, Scalar] = {"position": self.position.isoformat(), "open": self.open.isoformat()}
        if self.width_days != 1:
            offset["days"] = self.width_days
        if self.day is not None:
            offset["day"] = self.day.isoformat()
            offset["line"] = self.line or 0
        return offset

    def inside(self, window: Window, *, line: int) -> Bookmark:
        """In the middle of a window."""
        return replace(self, day=window.first, line=line)

    def after(self, window: Window, *, finished: date, look_back_days: int, is_round_over: bool) -> Bookmark:
        """A window has been read to a clean end. Days after ``finished`` are not over, and have to be read again."""
        position = max(self.position, min(window.last, finished) + ONE_DAY)
        look_back = grid_day(position - timedelta(days=look_back_days), self.width_days)
        return replace(
            self,
            position=position,
            open=max(self.open, min(look_back, position)),
            day=None if is_round_over else window.last + ONE_DAY,
            line=None,
        )

    def scope(self, window: Window) -> DedupeScope:
        """What the worker must remember while this window is read: every window that may be read again."""
        oldest = grid_day(self.open, self.width_days).isoformat()
        return DedupeScope(window.label, min(window.label, oldest))


def _day(offset: Offset, name: str) -> date | None:
    value = offset.get(name)
    if value is None:
        return None
    if isinstance(value, str) and len(value) == len("2016-03-22"):
        with suppress(ValueError):
            return date.fromisoformat(value)
    raise Fatal(_unreadable(name, value))


def _width(offset: Offset) -> int:
    value = offset.get("days", 1)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Fatal(_unreadable("days", value))
    return value


def _unreadable(name: str, value: object) -> str:
    return (
        f"The stored source offset has {name}={value!r}, which is not understood; "
        "set it to a day as yyyy-mm-dd, or delete the connector's offsets"
    )
