"""What a sample has at each place of its records: the facts from which `inference` chooses a type.

Pure. No value is kept but texts of which there are few.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial

from spark_batch.avro_types import UUID, JsonValue, Temporal
from spark_batch.coercion import InstantPattern, instant_pattern
from spark_batch.exact.instants import InstantError, parse_instant
from spark_batch.literals.numbers import exact_number
from spark_batch.literals.reading import Number

LEVELS_MAX = 32
"""Levels of arrays and objects in which types are looked for."""
KEYS_MAX = 1_000
"""Different keys of the objects at one place that are told apart; what has more is no record."""
SYMBOLS_MAX = 12
"""Different texts at one place that are remembered; what has more is no enum."""
DIGITS_MAX = 38
"""Of the widest decimal."""
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LONG = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Form:
    """A form that texts may have: `logical` is Avro's name of a logical type, or `number` or `boolean`."""

    logical: str
    pattern: InstantPattern | None = None


@dataclass(slots=True)
class Numbers:
    """What all numbers at a place have in common, as they are written."""

    count: int = 0
    is_long: bool = True
    """Whether each is a whole number of 64 bits."""
    is_finite: bool = True
    is_exact_double: bool = True
    """Whether a double holds each of them, digit by digit."""
    is_decimal: bool = True
    whole_digits: int = 0
    scales: set[int] = field(default_factory=set)
    """Digits after the point, as written."""
    is_padded: bool = False
    """Whether a fraction ends with a zero, as amounts of money do."""
    low: int = 2**63
    high: int = -(2**63)

    def add(self, literal: str) -> None:
        """Take note of a JSON number."""
        if _INTEGER.fullmatch(literal):
            number = int(literal)
            self.low, self.high = min(self.low, number), max(self.high, number)
            self.whole_digits = max(self.whole_digits, len(literal.lstrip("-")))
            self.is_exact_double = self.is_exact_double and int(float(number)) == number
            self.scales.add(0)
        else:
            self._add_long_or_fraction(literal)
        self.count += 1

    def _add_long_or_fraction(self, literal: str) -> None:
        exact = exact_number(literal)
        nearest = float(literal)
        self.is_long = self.is_long and literal.lstrip("-").isdigit() and exact is not None and int(exact) in _LONG
        self.is_finite = self.is_finite and math.isfinite(nearest)
        if exact is None:
            self.is_decimal = self.is_exact_double = False
            return
        self.is_exact_double = self.is_exact_double and math.isfinite(nearest) and Decimal(repr(nearest)) == exact
        exponent = exact.as_tuple().exponent
        scale = max(0, -exponent) if isinstance(exponent, int) else DIGITS_MAX + 1
        self.whole_digits = max(self.whole_digits, exact.adjusted() + 1 if exact else 1)
        self.scales.add(scale)
        self.is_padded = self.is_padded or ("e" not in literal.lower() and "." in literal and literal.endswith("0"))

    def merge(self, other: Numbers) -> None:
        """Take note of all that the other has."""
        self.count += other.count
        for name in ("is_long", "is_finite", "is_exact_double", "is_decimal"):
            setattr(self, name, getattr(self, name) and getattr(other, name))
        self.whole_digits = max(self.whole_digits, other.whole_digits)
        self.scales |= other.scales
        self.is_padded = self.is_padded or other.is_padded
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


@dataclass(slots=True)
class Texts:
    """What all texts at a place have in common; an empty one has no form."""

    count: int = 0
    empty: int = 0
    forms: tuple[Form, ...] = ()
    """Forms that all of them have, but the empty ones."""
    numbers: Numbers = field(default_factory=Numbers)
    """Of the texts, as long as all of them are numbers."""
    symbols: dict[str, int] | None = field(default_factory=dict)
    """How often each stands there; None where there are too many different ones."""

    def add(self, text: str) -> None:
        """Take note of a text."""
        if not text:
            self.empty += 1
        else:
            possible = _FORMS if self.count == self.empty else tuple((form, _IS[form]) for form in self.forms)
            self.forms = tuple(form for form, has in possible if has(text))
            if NUMBER in self.forms:
                self.numbers.add(text)
        self.count += 1
        if self.symbols is not None:
            self.symbols[text] = self.symbols.get(text, 0) + 1
            if len(self.symbols) > SYMBOLS_MAX:
                self.symbols = None

    def merge(self, other: Texts) -> None:
        """Take note of all that the other has."""
        if self.count == self.empty:
            self.forms = other.forms
        elif other.count > other.empty:
            self.forms = tuple(form for form in self.forms if form in other.forms)
        self.count, self.empty = self.count + other.count, self.empty + other.empty
        self.numbers.merge(other.numbers)
        if self.symbols is not None and other.symbols is not None:
            for text, count in other.symbols.items():
                self.symbols[text] = self.symbols.get(text, 0) + count
        if self.symbols is None or other.symbols is None or len(self.symbols) > SYMBOLS_MAX:
            self.symbols = None


@dataclass(slots=True)
class Seen:
    """Everything that stands at one place, in all records."""

    nulls: int = 0
    booleans: int = 0
    numbers: Numbers = field(default_factory=Numbers)
    texts: Texts = field(default_factory=Texts)
    arrays: int = 0
    objects: int = 0
    deep: int = 0
    """Arrays and objects that nest too deep to be looked into."""
    items: Seen | None = None
    fields: dict[str, Seen] = field(default_factory=dict)
    has_more_keys: bool = False

    @property
    def values(self) -> int:
        """How many values are there that are not null."""
        return self.booleans + self.numbers.count + self.texts.count + self.arrays + self.objects + self.deep

    def add(self, value: JsonValue, level: int = 0) -> None:
        """Take note of a value as `literals.reading.parse` gives it."""
        if value is None:
            self.nulls += 1
        elif isinstance(value, Number):
            self.numbers.add(value)
        elif isinstance(value, str):
            self.texts.add(value)
        elif isinstance(value, bool):
            self.booleans += 1
        elif level >= LEVELS_MAX:
            self.deep += 1
        elif isinstance(value, list):
            self._add_array(value, level + 1)
        else:
            self._add_object(value, level + 1)

    def _add_array(self, items: list[JsonValue], level: int) -> None:
        self.arrays += 1
        self.items = self.items or Seen()
        for item in items:
            self.items.add(item, level)

    def _add_object(self, values: dict[str, JsonValue], level: int) -> None:
        self.objects += 1
        for name, value in values.items():
            self._at(name).add(value, level)

    def _at(self, name: str) -> Seen:
        """Of keys beyond the limit one is as good as another."""
        found = self.fields.get(name)
        if found is not None:
            return found
        if len(self.fields) >= KEYS_MAX:
            self.has_more_keys = True
            return next(iter(self.fields.values()))
        return self.fields.setdefault(name, Seen())

    def merge(self, other: Seen) -> None:
        """Take note of all that the other has."""
        self.nulls, self.booleans = self.nulls + other.nulls, self.booleans + other.booleans
        self.numbers.merge(other.numbers)
        self.texts.merge(other.texts)
        self.arrays, self.objects = self.arrays + other.arrays, self.objects + other.objects
        self.deep += other.deep
        if other.items is not None:
            self.items = self.items or Seen()
            self.items.merge(other.items)
        for name, seen in other.fields.items():
            self._at(name).merge(seen)
        self.has_more_keys = self.has_more_keys or other.has_more_keys


def _is_instant(text: str, *, kind: Temporal, pattern: InstantPattern | None = None) -> bool:
    try:
        parse_instant(kind, text, is_number=False, pattern=pattern)
    except InstantError:
        return False
    return True


def _matches(text: str, *, form: re.Pattern[str]) -> bool:
    return form.fullmatch(text) is not None


def _patterned(kind: Temporal, *patterns: str) -> list[tuple[Form, Callable[[str], bool]]]:
    found = [instant_pattern(pattern, kind.value) for pattern in patterns]
    return [(Form(kind.value, each), partial(_is_instant, kind=kind, pattern=each)) for each in found]


NUMBER, BOOLEAN = Form("number"), Form("boolean")
_FORMS: tuple[tuple[Form, Callable[[str], bool]], ...] = (
    (Form("uuid"), partial(_matches, form=re.compile(UUID))),
    *((Form(kind.value), partial(_is_instant, kind=kind)) for kind in Temporal),
    *_patterned(Temporal.LOCAL_TIMESTAMP_MICROS, "yyyy-MM-dd HH:mm:ss.SSSSSS"),
    *_patterned(Temporal.LOCAL_TIMESTAMP_MILLIS, "yyyy-MM-dd HH:mm:ss.SSS", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH:mm"),
    *_patterned(Temporal.LOCAL_TIMESTAMP_MILLIS, "d.M.yyyy H:mm:ss", "d.M.yyyy H:mm"),
    *_patterned(Temporal.LOCAL_TIMESTAMP_MILLIS, "d/M/yyyy H:mm:ss", "d/M/yyyy H:mm"),
    *_patterned(Temporal.LOCAL_TIMESTAMP_MILLIS, "M/d/yyyy H:mm:ss", "M/d/yyyy H:mm"),
    *_patterned(Temporal.DATE, "d.M.yyyy", "d/M/yyyy", "M/d/yyyy", "yyyy/M/d"),
    (NUMBER, partial(_matches, form=_NUMBER)),
    (BOOLEAN, partial(_matches, form=re.compile("true|false", re.IGNORECASE | re.ASCII))),
)
"""The first that all texts of a place have is the one to take, unless others of its kind hold as well."""
_IS = dict(_FORMS)
