"""Names of folders by time: the patterns of Joda that ``path.format`` takes, for numbers only.

https://www.joda.org/joda-time/apidocs/org/joda/time/format/DateTimeFormat.html: ``YYYY`` is the year of the era there,
as ``yyyy`` is the year; for all times of records both are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache

import numpy as np
import numpy.typing as npt

_PIECE = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<field>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<plain>[^A-Za-z']+)")
_FIELDS: dict[str, Callable[[datetime], int]] = {
    "Y": lambda at: at.year,
    "y": lambda at: at.year,
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "H": lambda at: at.hour,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "x": lambda at: at.isocalendar().year,
    "w": lambda at: at.isocalendar().week,
}
_MINUTE_MS = 60_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times of a zone are counted from it
_UNFIT = re.compile(r"(?:^|/)(?:\.{0,2})(?:/|$)|[\x00-\x1f\\]")


class PathFormatError(ValueError):
    """A pattern that makes no folders."""


@lru_cache(maxsize=64)
def compiled(pattern: str) -> Callable[[datetime], str]:
    """What makes the name of a folder of a local time. Raises PathFormatError."""
    if not pattern:
        raise PathFormatError("TimeBasedPartitioner needs path.format")
    pieces: list[Callable[[datetime], str]] = []
    end = 0
    for match in _PIECE.finditer(pattern):
        if match.start() != end:
            break
        end = match.end()
        pieces.append(_piece(match))
    if end != len(pattern):
        raise PathFormatError(f"'{pattern[end:]}' is no pattern")
    sample = "".join(piece(_EPOCH) for piece in pieces)
    if _UNFIT.search(sample):
        raise PathFormatError(f"'{sample}' is no folder below another")
    return lambda at: "".join(piece(at) for piece in pieces)


def _piece(match: re.Match[str]) -> Callable[[datetime], str]:
    if match["field"] is None:
        text = match["plain"] or match["quoted"].replace("''", "'") or "'"
        return lambda _at: text
    width, field = len(match["field"]), _FIELDS.get(match["letter"])
    is_text = (match["letter"] == "M" and width > 2) or (match["letter"] in "Yyx" and width == 2)  # noqa: PLR2004
    if field is None or is_text:
        raise PathFormatError(f"'{match['field']}' is not supported; of numbers there are {''.join(_FIELDS)}")
    return lambda at: f"{field(at):0{width}}"


def folders_of(
    times_ms: npt.NDArray[np.int64], pattern: str, duration_ms: int, zone: tzinfo
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """For each time the number of its folder, and the names of the folders.

    A folder begins where the local time is a multiple of the duration since 1970. An hour that comes twice, when
    clocks are set back, is one folder, since both have one name. Raises OverflowError for years that Python has not.
    """
    form = compiled(pattern)
    grain = _MINUTE_MS if duration_ms % _MINUTE_MS == 0 else 1
    distinct, codes = np.unique(times_ms // grain, return_inverse=True)
    names: dict[str, int] = {}
    numbers = np.empty(len(distinct), np.int64)
    for index, each in enumerate(distinct.tolist()):
        utc = _EPOCH + timedelta(milliseconds=each * grain)
        local = zone.fromutc(utc.replace(tzinfo=zone)).replace(tzinfo=None)
        local_ms = (local - _EPOCH) // timedelta(milliseconds=1)
        begin = _EPOCH + timedelta(milliseconds=local_ms // duration_ms * duration_ms)
        numbers[index] = names.setdefault(form(begin), len(names))
    return numbers[codes], list(names)
