"""Dates as `java.text.SimpleDateFormat` writes and reads them, in UTC and in English.

It is lenient: fields overflow into the next, what follows a date in a text is passed over, and days before 15 October
1582 are those of the Julian calendar. Letters of patterns:
https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/text/SimpleDateFormat.html.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import lru_cache

from spark_batch.literals.numbers import DIGITS_MAX

DAY_MS = 86_400_000
_CUTOVER = -141_427
"""15 October 1582 in days since 1970."""
_EPOCH_JULIAN_DAY = 2_440_588
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LETTERS = "yMLdHkKhmsSaEzZX"
_TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<field>([A-Za-z])\3*)|(?P<plain>[^A-Za-z'])", re.DOTALL)
_SURE = {
    "yyyy": r"(?:1[6-9]|[2-9][0-9])[0-9]{2}",
    "MM": r"(?:0[1-9]|1[0-2])",
    "dd": r"(?:0[1-9]|[12][0-9]|3[01])",
    "HH": r"(?:[01][0-9]|2[0-3])",
    "mm": r"[0-5][0-9]",
    "ss": r"[0-5][0-9]",
    "SSS": r"[0-9]{3}",
}
"""Fields that Spark reads and writes as Java does, and what surely is one."""
SURE_FROM_MS, SURE_BELOW_MS = -11_676_096_000_000, 253_402_300_800_000
"""1600 to 9999: there both calendars, and the width of years, agree."""
_OFFSET = re.compile(r"([+-])([0-9]{1,2}):?([0-9]{2})?")
_NUMBER = re.compile(r"-?[0-9]+")
_CENTURY_BEFORE_YEARS = 80
_NOON = 12


class JavaDateError(ValueError):
    """A pattern that cannot be carried out, or a text that does not begin as its pattern says."""


@dataclass(frozen=True)
class _Token:
    """A field of so many letters, or text that stands as it is."""

    field: str | None
    text: str

    @property
    def count(self) -> int:
        return len(self.text)

    @property
    def is_number(self) -> bool:
        is_short_month = self.field in {"M", "L"} and self.count <= 2  # noqa: PLR2004 - three letters are a name
        return self.field is not None and (self.field in "ydHkKhmsS" or is_short_month)


@dataclass(frozen=True)
class JavaDates:
    """One pattern."""

    pattern: str

    @property
    def tokens(self) -> tuple[_Token, ...]:
        """The pattern's parts; raises JavaDateError."""
        return _tokens(self.pattern)

    def written(self, millis: int) -> str:
        """The text of an instant."""
        days, rest = divmod(millis, DAY_MS)
        return "".join(token.text if token.field is None else _written(token, days, rest) for token in self.tokens)

    def read(self, text: str) -> int:
        """The instant that a text begins with, in milliseconds; raises JavaDateError."""
        reading, at = _Reading(text), 0
        for number, token in enumerate(self.tokens):
            if token.field is None:
                if not text.startswith(token.text, at):
                    raise JavaDateError("expected the text to be of the pattern")
                at += len(token.text)
                continue
            after = self.tokens[number + 1] if number + 1 < len(self.tokens) else None
            at = reading.field(token, at, is_width_kept=after is not None and after.field is not None)
        return reading.millis()

    @property
    def is_sure_in_spark(self) -> bool:
        """Whether Spark writes every instant of 1600 to 9999 as Java does."""
        return all(token.field is None or token.text in _SURE for token in self.tokens)

    @property
    def sure_texts(self) -> str | None:
        """What texts match that Spark, if it takes them at all, reads as Java does; None where none are sure."""
        fields = [token.text for token in self.tokens if token.field is not None]
        if not self.is_sure_in_spark or not {"yyyy", "MM", "dd"} <= set(fields) or len(set(fields)) < len(fields):
            return None
        parts = (_SURE[token.text] if token.field else re.escape(token.text) for token in self.tokens)
        return rf"\A{''.join(parts)}\z"

    @property
    def spark_pattern(self) -> str:
        """The pattern for Spark, with all that is no field in quotes."""
        quoted = (token.text if token.field else "'" + token.text.replace("'", "''") + "'" for token in self.tokens)
        return "".join(quoted)


def java_date_text(millis: int) -> str:
    """An instant as Connect's `Values.dateFormatFor` shows it: before 2 January 1970 as a time of day."""
    if millis < DAY_MS:
        return JavaDates("HH:mm:ss.SSS'Z'").written(millis)
    return JavaDates("yyyy-MM-dd" if millis % DAY_MS == 0 else "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").written(millis)


@lru_cache(maxsize=256)
def _tokens(pattern: str) -> tuple[_Token, ...]:
    found: list[_Token] = []
    at = 0
    while at < len(pattern):
        part = _TOKEN.match(pattern, at)
        if part is None:
            raise JavaDateError("a quote that is not closed")
        at = part.end()
        if part["field"]:
            if part["field"][0] not in _LETTERS:
                raise JavaDateError(f"letters of {' '.join(_LETTERS)}, not {part['field'][0]}")
            found.append(_Token(part["field"][0], part["field"]))
            continue
        text = part["plain"] or part["quoted"].replace("''", "'") or "'"
        if found and found[-1].field is None:
            text = found.pop().text + text
        found.append(_Token(None, text))
    return tuple(found)


def _written(token: _Token, days: int, rest: int) -> str:
    """A field's text; `rest` is milliseconds of the day."""
    year, month, day = _date_of(days)
    letter, count = str(token.field), token.count
    hour, minute, second, milli = rest // 3_600_000, rest // 60_000 % 60, rest // 1000 % 60, rest % 1000
    if letter == "y":
        of_era = year if year > 0 else 1 - year
        return f"{of_era % 100:02d}" if count == 2 else f"{of_era:0{count}d}"  # noqa: PLR2004 - two letters
    if letter in "ML" and count > 2:  # noqa: PLR2004 - three letters are a name
        return _MONTHS[month - 1] if count > 3 else _MONTHS[month - 1][:3]  # noqa: PLR2004 - and four all of it
    if letter == "E":
        return _DAYS[(days + 3) % 7] if count > 3 else _DAYS[(days + 3) % 7][:3]  # noqa: PLR2004 - as above
    if letter == "a":
        return "AM" if hour < _NOON else "PM"
    if letter in "zZX":
        return {"z": "UTC" if count < 4 else "Coordinated Universal Time", "Z": "+0000", "X": "Z"}[letter]  # noqa: PLR2004
    numbers = {"M": month, "L": month, "d": day, "H": hour, "k": hour or 24, "K": hour % _NOON, "m": minute}
    numbers |= {"h": hour % _NOON or _NOON, "s": second, "S": milli}
    return f"{numbers[letter]:0{count}d}"


class _Reading:
    """The fields of one text, so far."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = {"y": 1970, "M": 1, "d": 1, "H": 0, "m": 0, "s": 0, "S": 0}
        self._offset_ms = 0
        self._half: int | None = None
        self._is_half_day = False

    def field(self, token: _Token, at: int, *, is_width_kept: bool) -> int:
        """Read one field; gives where the next begins. Raises JavaDateError."""
        while self._text[at : at + 1] in {" ", "\t"}:
            at += 1
        if not token.is_number:
            return self._named(token, at)
        text = self._text[: at + token.count] if is_width_kept else self._text
        found = _NUMBER.match(text, at)
        is_short = is_width_kept and len(text) < at + token.count
        if found is None or is_short or len(found[0]) > DIGITS_MAX:
            raise JavaDateError("expected the text to be of the pattern")
        number, letter = int(found[0]), str(token.field)
        if letter == "y" and token.count <= 2 and len(found[0]) == 2 and found[0].isdecimal():  # noqa: PLR2004
            number = _near_year(number)
        self._is_half_day = letter in "hK" or (self._is_half_day and letter not in "Hk")
        if (letter, number) in {("k", 24), ("h", 12)}:
            number = 0
        self._found[{"L": "M", "k": "H", "h": "H", "K": "H"}.get(letter, letter)] = number
        return found.end()

    def _named(self, token: _Token, at: int) -> int:
        rest, letter = self._text[at:], str(token.field)
        if letter in "ML":
            number, end = _named(rest, _MONTHS)
            self._found["M"] = number + 1
            return at + end
        if letter == "E":
            return at + _named(rest, _DAYS)[1]
        if letter == "a":
            self._half, end = _named(rest, ("AM", "PM"))
            return at + end
        if letter == "X" and rest.startswith("Z"):
            return at + 1
        if letter != "X" and rest[:3].upper() in {"UTC", "GMT"}:
            at, rest = at + 3, rest[3:]
            if rest[:1] not in {"+", "-"}:
                return at
        found = _OFFSET.match(rest)
        if found is None:
            raise JavaDateError("expected a zone as +0100, or UTC")
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        self._offset_ms = minutes * 60_000 * (1 if found[1] == "+" else -1)
        return at + found.end()

    def millis(self) -> int:
        """The instant; fields that are too large flow over into the next."""
        found = self._found
        hour = found["H"]
        if self._is_half_day:
            hour += _NOON * (self._half or 0)
        days = _days_of(found["y"], found["M"], found["d"])
        of_day = ((hour * 60 + found["m"]) * 60 + found["s"]) * 1000 + found["S"]
        return days * DAY_MS + of_day - self._offset_ms


def _named(text: str, names: tuple[str, ...]) -> tuple[int, int]:
    """Which name a text begins with, in full or by three letters, and how long it is; raises JavaDateError."""
    lower = text.lower()
    for number, name in enumerate(names):
        for shown in (name.lower(), name[:3].lower()):
            if lower.startswith(shown):
                return number, len(shown)
    raise JavaDateError("expected the text to be of the pattern")


def _near_year(number: int) -> int:
    """The year of two digits that lies in the 100 years from 80 years ago on."""
    first = time.gmtime().tm_year - _CENTURY_BEFORE_YEARS
    return first + (number - first) % 100


def _date_of(days: int) -> tuple[int, int, int]:
    """Year (0 is 1 before Christ), month and day (E. G. Richards, in the Explanatory Supplement, 2013, chapter 15)."""
    julian = days + _EPOCH_JULIAN_DAY
    shifted = julian + 1401
    if days >= _CUTOVER:
        shifted += (4 * julian + 274_277) // 146_097 * 3 // 4 - 38
    quarter = 4 * shifted + 3
    of_year = 5 * (quarter % 1461 // 4) + 2
    month = (of_year // 153 + 2) % 12 + 1
    return quarter // 1461 - 4716 + (14 - month) // 12, month, of_year % 153 // 5 + 1


def _days_of(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date whose month and day may be beyond their ends."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    shift = (14 - month) // 12
    years, months = year + 4800 - shift, month + 12 * shift - 3
    julian = day + (153 * months + 2) // 5 + 365 * years + years // 4 - 32_083
    gregorian = julian - years // 100 + years // 400 + 38
    days = gregorian - _EPOCH_JULIAN_DAY
    return days if days >= _CUTOVER else julian - _EPOCH_JULIAN_DAY
