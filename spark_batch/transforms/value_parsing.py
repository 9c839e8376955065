"""Texts read as Connect's `Values.parseString` reads them: `7` is an int8, `2024-02-29` a date, `[1, 2]` a list.

What looks like nothing is a text. Whoever writes headers by hand meets its oddities: `1,2` is the number 1, nothing is
said of the items of a list with a text and a number, and blanks alone between quotes are lost. They are carried out as
they are in Kafka 4.1: https://kafka.apache.org/41/javadoc/org/apache/kafka/connect/data/Values.html.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal as ExactNumber
from decimal import InvalidOperation
from functools import lru_cache
from typing import Any

from spark_batch.avro_types import FLOAT_MAX, Primitive
from spark_batch.literals.floating import floating
from spark_batch.literals.reading import Number
from spark_batch.transforms.connect_schema import DECIMAL, TIMESTAMP, Document
from spark_batch.transforms.connect_values import DATE, TIME, ConnectValue, Moment
from spark_batch.transforms.java_dates import DAY_MS, JavaDateError, JavaDates

_BLANKS = "".join(map(chr, range(0x21)))
"""What Java's `trim` takes away."""
_TOKEN = re.compile(r'(?:[^\\:,{}\[\]"]|\\.|\\\Z)+|[:,{}\[\]"]', re.DOTALL)
"""A delimiter, or all up to the next one that has no backslash before it."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SCALE_BITS = 31
_DIGITS_MAX = 20
"""As many as 64 bits can have."""
_NUMBER_LETTERS_MAX = 10_000
_BITS = (8, 16, 32, 64)
_WIDENING = ("int8", "int16", "int32", "int64", "float", "double")
_TEMPORALS: Mapping[int, tuple[str, str, JavaDates]] = {
    10: (DATE, "int32", JavaDates("yyyy-MM-dd")),
    13: (TIME, "int32", JavaDates("HH:mm:ss.SSS'Z'")),
    24: (TIMESTAMP, "int64", JavaDates("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")),
}
"""By the length of their texts."""
_DEPTH_MAX = 250
_CACHED = 4096


class NotFollowedError(ValueError):
    """Lists in lists, or a number of digits, beyond what is followed.

    Java's stack overflows a few thousand lists further; the time that digits take grows with their square.
    """


@lru_cache(maxsize=_CACHED)
def parsed_value(text: str) -> ConnectValue:
    """What a text is read as. Raises NotFollowedError."""
    return ConnectValue(_of_type("string"), text) if not text else _Parser(text).value(0)


def _of_type(kind: str, **more: Any) -> Document:
    return {"type": kind, "optional": False, **more}


class _DataError(Exception):
    """It is no list and no map; outside of one, the text is a text."""


class _Parser:
    """One text, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def value(self, depth: int) -> ConnectValue:
        """The next value, inside of a list or map where `depth` is above 0; raises _DataError only there."""
        if depth > _DEPTH_MAX:
            raise NotFollowedError(f"nested more than {_DEPTH_MAX} levels deep")
        if self.at >= len(self.text):
            return _NOTHING
        if depth and self._takes('"'):
            return self._quoted()
        return self._literal(is_inside=depth > 0) or self._structured(depth) or self._word(is_inside=depth > 0)

    def _literal(self, *, is_inside: bool) -> ConnectValue | None:
        begin = self.at
        for literal, known in _LITERALS.items():
            if self._takes(literal) and (is_inside or self.at >= len(self.text)):
                return known
            self.at = begin
        return None

    def _structured(self, depth: int) -> ConnectValue | None:
        begin = self.at
        try:
            if self._takes("["):
                return self._list(depth + 1)
            if self._takes("{"):
                return self._map(depth + 1)
        except _DataError:
            self.at = begin
        return None

    def _word(self, *, is_inside: bool) -> ConnectValue:
        token = self._next()
        word = token.strip(_BLANKS)
        if not word:
            return ConnectValue(_of_type("string"), token)
        found = self._temporal(word) if word[0].isdecimal() else None
        if found is None and (word[0].isdecimal() or word[0] in "+-"):
            found = _number(word)
        if found is not None:
            return found
        if is_inside:
            raise _DataError
        return ConnectValue(_of_type("string"), self.text)

    def _token(self) -> str:
        found = _TOKEN.match(self.text, self.at)
        return "" if found is None else found[0]

    def _next(self) -> str:
        token = self._token()
        self.at += len(token)
        return token

    def _takes(self, expected: str) -> bool:
        """Whether this comes next, passing over blank tokens, which stay passed over; if so, it is passed as well."""
        token = self._token()
        while not token.strip(_BLANKS) and self.at + len(token) < len(self.text):
            self.at += len(token)
            token = self._token()
        if token.strip(_BLANKS) != expected:
            return False
        self.at += len(token)
        return True

    def _quoted(self) -> ConnectValue:
        content = ""
        while self.at < len(self.text) and not self._takes('"'):
            content += self._next()
        return _temporal(content) or ConnectValue(_of_type("string"), content)

    def _list(self, depth: int) -> ConnectValue:
        items: list[ConnectValue] = []
        while self.at < len(self.text):
            if self._takes("]"):
                common = _common([item.schema for item in items])
                if common is not None:
                    items = [_converted(common, item) for item in items]
                return ConnectValue({"type": "array", "items": common, "optional": False}, tuple(items))
            if self._takes(","):
                raise _DataError
            items.append(self.value(depth))
            begin = self.at
            if self._takes("]"):
                self.at = begin
            elif not self._takes(","):
                raise _DataError
        raise _DataError

    def _map(self, depth: int) -> ConnectValue:
        entries: dict[tuple[str, str], tuple[ConnectValue, ConnectValue]] = {}
        schemas: tuple[list[Document | None], list[Document | None]] = ([], [])
        while self.at < len(self.text):
            if self._takes("}"):
                return _as_map(list(entries.values()), _common(schemas[0]), _common(schemas[1]))
            if self._takes(","):
                raise _DataError
            key = self.value(depth)
            if key.value is None or not self._takes(":"):
                raise _DataError
            value = self.value(depth)
            # The later value of a key takes the place of the first.
            same = type(key.value).__name__, repr(key.value)
            entries[same] = entries.get(same, (key,))[0], value
            schemas[0].append(key.schema)
            schemas[1].append(value.schema)
            self._takes(",")
        raise _DataError

    def _temporal(self, word: str) -> ConnectValue | None:
        """A date, or a time, which its colons have cut into five tokens."""
        begin = self.at
        rest = [self._next() for _ in range(4)]
        found = _temporal(word + "".join(rest)) if rest[-1] else None
        if found is None:
            self.at = begin
            found = _temporal(word)
        return found


_NOTHING = ConnectValue(None, None)
_LITERALS = {
    "null": _NOTHING,
    "true": ConnectValue(_of_type("boolean"), value=True),
    "false": ConnectValue(_of_type("boolean"), value=False),
}


def _temporal(word: str) -> ConnectValue | None:
    word = word.replace("\\:", ":")
    name, carrier, dates = _TEMPORALS.get(len(word.encode("utf-16-le")) // 2, ("", "", None))
    if dates is None:
        return None
    try:
        return ConnectValue(_of_type(carrier, name=name, version=1), Moment(dates.read(word)))
    except JavaDateError:
        return None


def _number(word: str) -> ConnectValue | None:
    """The smallest type that a number fits; a Decimal where it is beyond a double; None for what is no number.

    Raises NotFollowedError.
    """
    if not _NUMBER.fullmatch(word):
        return None
    if len(word) > _NUMBER_LETTERS_MAX:
        raise NotFollowedError(f"a number of more than {_NUMBER_LETTERS_MAX} letters")
    try:
        exact = ExactNumber(word)
    except InvalidOperation:
        return None  # its exponent is beyond Java's as well
    scale = -int(exact.as_tuple().exponent)
    if scale.bit_length() > _SCALE_BITS:
        return None
    if not exact or (0 <= exact.adjusted() < _DIGITS_MAX and exact == exact.to_integral_value()):
        for bits in _BITS:
            if -(1 << (bits - 1)) <= exact < 1 << (bits - 1):
                return ConnectValue(_of_type(f"int{bits}"), int(exact))
    for kind, name in ((Primitive.FLOAT, "float"), (Primitive.DOUBLE, "double")):
        # Of a whole number of too many digits Java makes no number of floating point.
        if scale and _is_within(kind, exact):
            return ConnectValue(_of_type(name), floating(kind, Number(exact)))
    return ConnectValue(_of_type("bytes", name=DECIMAL, version=1, parameters={"scale": str(scale)}), exact)


def _is_within(kind: Primitive, exact: ExactNumber) -> bool:
    """Whether the nearest number of the kind is finite."""
    number = float(exact)
    # Half a step beyond the largest single it becomes infinite.
    return abs(number) < FLOAT_MAX * (1 + 2**-25) if kind is Primitive.FLOAT else abs(number) != float("inf")


def _common(schemas: list[Document | None]) -> Document | None:
    """The schema of all items, which are converted to it; None where there is none."""
    known = [schema for schema in schemas if schema is not None]
    common = known[0] if known else None
    for schema in known[1:]:
        if common is None or common["type"] == schema["type"]:
            common = None if common is None else schema
        elif common["type"] in _WIDENING and schema["type"] in _WIDENING:
            common = max(common, schema, key=lambda each: _WIDENING.index(each["type"]))
        else:
            common = None
    return common


def _converted(schema: Document, item: ConnectValue) -> ConnectValue:
    """An item of a list or map whose items have one schema. Raises _DataError."""
    value = item.value
    if value is None:
        raise _DataError
    name, kind = schema.get("name"), schema["type"]
    if name in {DATE, TIME, TIMESTAMP}:
        if isinstance(value, int):
            if name == TIME and not 0 <= value <= DAY_MS:
                raise _DataError
            value = Moment(value * DAY_MS if name == DATE else value)
    elif kind in _WIDENING and isinstance(value, Moment):
        raise _DataError
    elif kind in {"float", "double"}:
        value = floating(Primitive.FLOAT if kind == "float" else Primitive.DOUBLE, Number(ExactNumber(value)))
    return ConnectValue(schema, value)


def _as_map(
    entries: list[tuple[ConnectValue, ConnectValue]], keys: Document | None, values: Document | None
) -> ConnectValue:
    if keys is None:
        values = None
    else:
        entries = [(_converted(keys, key), value) for key, value in entries]
    if values is not None:
        entries = [(key, _converted(values, value)) for key, value in entries]
    return ConnectValue({"type": "map", "keys": keys, "values": values, "optional": False}, tuple(entries))
