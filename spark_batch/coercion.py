"""Coercion: texts that are taken for the value of another type, where a contract declares it.

Sources without types (CSV, forms) send `"21"` for 21. What is taken for what is narrow, so that nothing is guessed: a
text that is a JSON number (RFC 8259, section 6) is judged as that number, `true` and `false` in any case are booleans,
a symbol in another case is that symbol, an empty text is null, a date stands as its pattern says. All else is rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

ASCII_UPPER, ASCII_LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
COUNTED_FIELDS_MAX = 62
"""Fields that are counted each by itself; those beyond are counted together. (Bits of a signed 64-bit number.)"""
OTHER_FIELDS = "(other)"
"""Where the fields beyond are counted."""

PATTERN_LETTERS_MAX = 100
"""Of a date's pattern."""


class Coerce(StrEnum):
    """What may be coerced, by the words of `contract.coerce`."""

    NUMBERS = "numbers"
    """A JSON number as text, for numbers and decimals."""
    INSTANTS = "instants"
    """A JSON integer as text, for dates and times in the type's unit."""
    BOOLEANS = "booleans"
    """`true` and `false` as text, in any case of ASCII letters."""
    ENUMS = "enums"
    """A symbol in another case of ASCII letters, where only one symbol is meant."""
    EMPTY = "empty"
    """An empty text for null, where null is allowed and an empty text is no value of the type."""


TYPELESS = (Coerce.NUMBERS, Coerce.INSTANTS, Coerce.BOOLEANS, Coerce.EMPTY)
"""What is coerced of sources whose fields are all texts, unless they say otherwise."""


class PatternError(ValueError):
    """The pattern cannot be used; the message says what was expected."""


@dataclass(frozen=True)
class InstantPattern:
    """How dates or times stand in a text; `expression` has a named group for each part, and no anchors.

    Read alike by Python's `re` and by RE2. `zone` is the offset of texts that name none.
    """

    pattern: str
    expression: str
    zone: str | None = None


@dataclass(frozen=True)
class Coercion:
    """What a place takes besides the values of its type; `bit` is where its field is counted."""

    bit: int
    is_taken: bool
    """Whether texts are taken by the rules of the place's type (numbers, instants, booleans, enums)."""
    is_empty_null: bool
    pattern: InstantPattern | None = None

    @property
    def mask(self) -> int:
        """The bit as a number."""
        return 1 << self.bit


def counted_fields(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the bits, in their order, for these fields."""
    if len(fields) <= COUNTED_FIELDS_MAX:
        return fields
    return (*fields[:COUNTED_FIELDS_MAX], OTHER_FIELDS)


def folded(symbol: str) -> str:
    """The text with ASCII letters in lower case; no other letter has a case here."""
    return symbol.translate(_FOLD)


def folded_symbols(symbols: tuple[str, ...]) -> dict[str, str]:
    """The symbol that each folded text means; texts that would mean several are left out."""
    texts = [folded(symbol) for symbol in symbols]
    return {text: symbol for text, symbol in zip(texts, symbols, strict=True) if texts.count(text) == 1}


def instant_pattern(pattern: str, logical_type: str, zone: str | None = None) -> InstantPattern:
    """Read a pattern for a logical type (Avro's name); raises PatternError.

    The letters are those of Java's DateTimeFormatter that mean the same everywhere: `yyyy` (or `uuuu`), `MM`, `M`,
    `dd`, `d`, `HH`, `H`, `mm`, `ss`, `S` to `SSSSSSSSS`, `XXX` (`Z`, `+01:00`) and `XX` (`Z`, `+0100`); text in single
    quotes, and signs that are no letters, stand for themselves.
    """
    if len(pattern) > PATTERN_LETTERS_MAX:
        message = f"at most {PATTERN_LETTERS_MAX} letters"
        raise PatternError(message)
    parts: list[str] = []
    groups: list[str] = []
    for match in _TOKEN.finditer(pattern):
        letters, quoted, sign = match.group("letters", "quoted", "sign")
        if letters is None:
            parts.append(re.escape(quoted.replace("''", "'") or "'" if quoted is not None else sign))
            continue
        group, expression = _part(letters)
        if group in groups:
            message = f"each part once, and found {letters} again"
            raise PatternError(message)
        if letters in _OPEN and _DIGIT_OR_LETTER.match(pattern, match.end()):
            message = f"a sign after {letters}, whose digits may be one or two"
            raise PatternError(message)
        groups.append(group)
        parts.append(f"(?P<{group}>{expression})")
    if sum(len(match.group()) for match in _TOKEN.finditer(pattern)) != len(pattern):
        message = "letters, text in single quotes and signs other than [ ] { } #"
        raise PatternError(message)
    _demand_parts(set(groups), logical_type, zone)
    return InstantPattern(pattern, "".join(parts), zone)


def _part(letters: str) -> tuple[str, str]:
    if letters in _PARTS:
        return _PARTS[letters]
    if set(letters) == {"S"} and len(letters) <= _FRACTION_DIGITS_MAX:
        return "fraction", f"[0-9]{{{len(letters)}}}"
    message = f"only {', '.join(_PARTS)} and S to SSSSSSSSS, and found {letters}"
    raise PatternError(message)


def _demand_parts(groups: set[str], logical_type: str, zone: str | None) -> None:
    is_zoned = logical_type.startswith("timestamp")
    needed = set() if logical_type.startswith("time-") else {"year", "month", "day"}
    needed |= set() if logical_type == "date" else {"hour", "minute"}
    needed |= {"zone"} if is_zoned and zone is None else set()
    allowed = needed | (set() if logical_type == "date" else {"second", "fraction"})
    if groups != groups & allowed or not needed <= groups or ("fraction" in groups and "second" not in groups):
        parts = ", ".join(part for part in _ORDER if part in needed)
        message = f"a pattern for {logical_type} with {parts}"
        if is_zoned and zone is None:
            message += " (or the attribute json.zone)"
        raise PatternError(message)
    if zone is not None and not (is_zoned and re.fullmatch(_ZONE, zone)):
        message = "json.zone for a timestamp only, as Z or an offset such as +01:00"
        raise PatternError(message)


_FOLD = str.maketrans(ASCII_UPPER, ASCII_LOWER)
_FRACTION_DIGITS_MAX = 9
_ORDER = ("year", "month", "day", "hour", "minute", "zone")
_TWO = {"MM": "0[1-9]|1[0-2]", "dd": "0[1-9]|[12][0-9]|3[01]", "HH": "[01][0-9]|2[0-3]", "mm": "[0-5][0-9]"}
_ZONE = "Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]"
_PARTS = {
    "yyyy": ("year", "[0-9]{4}"),
    "uuuu": ("year", "[0-9]{4}"),
    "MM": ("month", _TWO["MM"]),
    "M": ("month", "0?[1-9]|1[0-2]"),
    "dd": ("day", _TWO["dd"]),
    "d": ("day", "0?[1-9]|[12][0-9]|3[01]"),
    "HH": ("hour", _TWO["HH"]),
    "H": ("hour", "[01]?[0-9]|2[0-3]"),
    "mm": ("minute", _TWO["mm"]),
    "ss": ("second", _TWO["mm"]),
    "XXX": ("zone", _ZONE),
    "XX": ("zone", "Z|[+-](?:[01][0-9]|2[0-3])[0-5][0-9]"),
}
_OPEN = {"M", "d", "H"}
_DIGIT_OR_LETTER = re.compile(r"\w|'\d")
_TOKEN = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<sign>[^A-Za-z'\[\]{}#])")
