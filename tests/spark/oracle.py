"""The oracle: what the rules of a verdict say of one payload, in plain Python, sharing no code with the conversion.

A recursive-descent reader of RFC 8259 (the conversion's exact path uses Python's `json`), the contract read from the
schema document itself, Python's `decimal`, `datetime` and `fractions` for values, and fastavro to say what a value is
once it has been through Avro.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import math
import re
import sys
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import fastavro

DEPTH_MAX = 500
FLOAT_MAX = 3.4028234663852886e38
DEFAULT_CONTEXT_DIGITS = 1000
_SPACE = " \t\n\r"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class NotValid(Exception):
    """The payload must be rejected."""


@dataclass(frozen=True)
class Literal:
    """A number as written."""

    text: str


class _Reader:
    """One JSON value from text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def document(self) -> Any:
        value = self.value(0)
        self.space()
        if self.at != len(self.text):
            raise NotValid("text after the value")
        return value

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def expect(self, token: str) -> None:
        if not self.text.startswith(token, self.at):
            raise NotValid(f"expected {token}")
        self.at += len(token)

    def value(self, depth: int) -> Any:
        self.space()
        first = self.peek()
        if first in {"{", "["} and depth >= DEPTH_MAX:
            raise NotValid("too deep")
        if first == "{":
            return self.object(depth + 1)
        if first == "[":
            return self.array(depth + 1)
        if first == '"':
            return self.string()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if first == word[0]:
                self.expect(word)
                return value
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise NotValid("no value")
        self.at = match.end()
        return Literal(match.group())

    def object(self, depth: int) -> dict[str, Any]:
        self.expect("{")
        found: dict[str, Any] = {}
        self.space()
        if self.peek() == "}":
            self.at += 1
            return found
        while True:
            self.space()
            key = self.string()
            self.space()
            self.expect(":")
            if key in found:
                raise NotValid("key twice")
            found[key] = self.value(depth)
            self.space()
            if self.peek() != ",":
                self.expect("}")
                return found
            self.at += 1

    def array(self, depth: int) -> list[Any]:
        self.expect("[")
        found: list[Any] = []
        self.space()
        if self.peek() == "]":
            self.at += 1
            return found
        while True:
            found.append(self.value(depth))
            self.space()
            if self.peek() != ",":
                self.expect("]")
                return found
            self.at += 1

    def string(self) -> str:
        self.expect('"')
        units: list[str] = []
        while True:
            letter = self.peek()
            if not letter or ord(letter) < 0x20:
                raise NotValid("string not closed, or a control character in it")
            self.at += 1
            if letter == '"':
                break
            units.append(self.escape() if letter == "\\" else letter)
        try:
            return "".join(units).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise NotValid("lone surrogate") from error

    def escape(self) -> str:
        letter = self.peek()
        self.at += 1
        if letter in _ESCAPES and letter:
            return _ESCAPES[letter]
        match = _HEX.match(self.text, self.at)
        if letter != "u" or match is None:
            raise NotValid("bad escape")
        self.at = match.end()
        return chr(int(match.group(), 16))


def read_json(payload: bytes) -> Any:
    """The payload's value; raises NotValid."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotValid("not UTF-8") from error
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(usual + 3 * DEPTH_MAX)
    try:
        return _Reader(text).document()
    finally:
        sys.setrecursionlimit(usual)


@dataclass(frozen=True)
class Taking:
    """Which texts a field takes for its value, and the fields (dotted Avro names) in which that was done."""

    words: frozenset[str] = frozenset()
    default: frozenset[str] = frozenset()
    field: str = ""
    path: str = ""
    """The field, and what stands around a value inside of it."""
    pattern: str | None = None
    zone: str | None = None
    done: set[str] = dataclass_field(default_factory=set)

    def of(self, field: dict[str, Any]) -> Taking:
        """For a field of a record at this place."""
        words = field.get("json.coerce", self.default)
        chosen = frozenset(_WORDS if words is True else () if words is False else words)
        name = f"{self.path}.{field['name']}".lstrip(".")
        return replace(
            self, words=chosen, field=name, path=name, pattern=field.get("json.pattern"), zone=field.get("json.zone")
        )


_WORDS = ("numbers", "instants", "booleans", "enums", "empty")


def judged(
    schema: dict[str, Any], payload: bytes, *, is_unknown_refused: bool = False, taking: Taking | None = None
) -> Any:
    """The record as it must be read back from Avro; raises NotValid where it must be rejected."""
    value = taken(schema, read_json(payload), taking or Taking())
    return through_avro(schema, _typed(schema, value, is_unknown_refused=is_unknown_refused))


def kept(schema: dict[str, Any], payload: bytes, taking: Taking | None = None) -> Any:
    """The JSON that is to go out where unknown fields are kept, as `read_json` reads it; raises NotValid."""
    judged(schema, payload, taking=taking)
    return _kept(schema, taken(schema, read_json(payload), taking or Taking()))


def taken(schema: Any, value: Any, taking: Taking) -> Any:
    """The payload with values in place of the texts that are taken for them; all else as it is."""
    is_nullable = isinstance(schema, list) or schema == "null"
    if isinstance(schema, list):
        schema = next(branch for branch in schema if branch != "null")
    if isinstance(schema, str):
        schema = {"type": schema}
    kind = schema["type"]
    if kind == "record" and isinstance(value, dict):
        fields = {field.get("json.name", field["name"]): field for field in schema["fields"]}
        return {
            key: taken(fields[key]["type"], item, taking.of(fields[key])) if key in fields else item
            for key, item in value.items()
        }
    if kind == "array" and isinstance(value, list):
        return [taken(schema["items"], item, replace(taking, path=f"{taking.path}[]")) for item in value]
    if kind == "map" and isinstance(value, dict):
        inside = replace(taking, path=f"{taking.path}{{}}")
        return {key: taken(schema["values"], item, inside) for key, item in value.items()}
    if not isinstance(value, str) or kind in {"record", "array", "map"}:
        return value
    found = _taken(schema, value, taking, is_nullable=is_nullable)
    if found is not value:
        taking.done.add(taking.field)
    return found


def _taken(  # noqa: PLR0911 - one line a type
    schema: dict[str, Any], text: str, taking: Taking, *, is_nullable: bool
) -> Any:
    kind, logical = schema["type"], schema.get("logicalType")
    is_plain = logical is None
    if not text and is_nullable and "empty" in taking.words:
        return text if kind == "null" or (is_plain and kind in {"string", "bytes"}) else None
    if logical not in {None, "decimal", "uuid"}:
        if taking.pattern is not None:
            return Literal(str(_by_pattern(logical, text, taking)))
        is_whole = re.fullmatch("-?(0|[1-9][0-9]*)", text) is not None
        return Literal(text) if "instants" in taking.words and is_whole else text
    if logical == "decimal" or kind in {"int", "long", "float", "double"}:
        is_number = _NUMBER.fullmatch(text) is not None
        return Literal(text) if "numbers" in taking.words and is_number else text
    if kind == "boolean" and "booleans" in taking.words and text.isascii():
        return {"TRUE": True, "FALSE": False}.get(text.upper(), text)
    if kind == "enum" and "enums" in taking.words and text not in schema["symbols"] and text.isascii():
        meant = [symbol for symbol in schema["symbols"] if symbol.upper() == text.upper()]
        return meant[0] if len(meant) == 1 else text
    return text


_STRPTIME = {"y": "%Y", "M": "%m", "d": "%d", "H": "%H", "m": "%M", "s": "%S", "X": "%z"}


def _by_pattern(logical: str, text: str, taking: Taking) -> int:
    """Python's `strptime`, which is lenient, and what it found written by the pattern again."""
    assert taking.pattern is not None
    tokens = re.findall(r"y+|M+|d+|H+|m+|s+|S+|X+|'[^']*'|.", taking.pattern.replace("u", "y"))
    _demand(text.isascii())
    fraction = next((len(token) for token in tokens if token[0] == "S"), 0)
    form = "".join(
        "%f" if token[0] == "S" else _STRPTIME.get(token[0], token.strip("'").replace("%", "%%")) for token in tokens
    )
    try:
        found = dt.datetime.strptime(text, form)  # noqa: DTZ007 - the zone is asked below
    except ValueError as error:
        raise NotValid("pattern") from error
    _demand(any(_written_by(tokens, found, text, is_padded=padded) for padded in _PADDINGS))
    zone = dt.UTC if taking.zone in {None, "Z"} else dt.datetime.strptime(str(taking.zone), "%z").tzinfo
    if found.tzinfo is None:
        found = found.replace(tzinfo=zone)
    if logical.startswith("time-"):
        found = found.replace(year=1970, month=1, day=1)
    per_second = 1_000 if logical.endswith("millis") else 1_000_000
    micros = (found - _EPOCH) // dt.timedelta(microseconds=1)
    if logical == "date":
        return micros // 86_400_000_000
    _demand(fraction <= 6 and micros * per_second % 1_000_000 == 0)
    return micros * per_second // 1_000_000


_PADDINGS = [(month, day, hour) for month in (True, False) for day in (True, False) for hour in (True, False)]


def _written_by(tokens: list[str], found: dt.datetime, text: str, *, is_padded: tuple[bool, bool, bool]) -> bool:
    padded = dict(zip("MdH", is_padded, strict=True))
    parts = {"y": found.year, "M": found.month, "d": found.day, "H": found.hour, "m": found.minute, "s": found.second}
    written = ""
    for token in tokens:
        letter = token[0]
        if letter == "S":
            written += f"{found.microsecond:06}"[: len(token)]
        elif letter == "X":
            offset = found.strftime("%z")
            written += "Z" if text.endswith("Z") else f"{offset[:3]}:{offset[3:]}" if len(token) == 3 else offset
        elif letter in parts:
            width = len(token) if len(token) > 1 else 2 if padded[letter] else 1
            written += f"{parts[letter]:0{width}}"
        else:
            written += token.strip("'")
    return written == text


def _kept(schema: Any, value: Any) -> Any:
    if isinstance(schema, list):
        schema = next(branch for branch in schema if branch != "null")
    if value is None or isinstance(schema, str):
        return value
    if schema["type"] == "record":
        return _kept_record(schema, value)
    if schema["type"] == "array":
        return [_kept(schema["items"], item) for item in value]
    if schema["type"] == "map":
        return {key: _kept(schema["values"], item) for key, item in value.items()}
    logical = schema.get("logicalType")
    return value if logical in {None, "decimal", "uuid"} else Literal(str(_instant(logical, value)))


def _kept_record(schema: dict[str, Any], value: Any) -> dict[str, Any]:
    payload_names = {field.get("json.name", field["name"]): field for field in schema["fields"]}
    found = {name: item for name, item in value.items() if name not in payload_names}
    # What is unknown must not be taken for a field of the contract.
    _demand(not found.keys() & {field["name"] for field in schema["fields"]})
    for name, field in payload_names.items():
        if name in value:
            found[field["name"]] = _kept(field["type"], value[name])
        elif field.get("default") is not None:
            found[field["name"]] = _written(_default(field["type"], field["default"]))
    return found


def _written(default: Any) -> Any:
    if isinstance(default, bytes):
        return base64.b64encode(default).decode()
    return Literal(repr(default)) if type(default) in {int, float} else default


def through_avro(schema: dict[str, Any], value: Any) -> Any:
    """A value written and read by fastavro."""
    parsed = fastavro.parse_schema(schema)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, value)
    stream.seek(0)
    return fastavro.schemaless_reader(stream, parsed, None)


def read_avro(schema: Any, body: bytes) -> Any:
    """A value read by fastavro; raises where bytes are left."""
    stream = io.BytesIO(body)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert stream.read() == b""
    return value


def _typed(schema: Any, value: Any, *, is_unknown_refused: bool) -> Any:
    if isinstance(schema, list):
        if value is None:
            if "null" in schema:
                return None
            raise NotValid("null")
        schema = next(branch for branch in schema if branch != "null")
    if isinstance(schema, str):
        schema = {"type": schema}
    kind = schema["type"]
    if value is None and kind != "null":
        raise NotValid("null")
    if kind == "record":
        return _record(schema, value, is_unknown_refused=is_unknown_refused)
    if kind == "array":
        _demand(isinstance(value, list))
        return [_typed(schema["items"], item, is_unknown_refused=is_unknown_refused) for item in value]
    if kind == "map":
        _demand(isinstance(value, dict))
        return {
            key: _typed(schema["values"], item, is_unknown_refused=is_unknown_refused) for key, item in value.items()
        }
    return _plain(schema, kind, value)


def _record(schema: dict[str, Any], value: Any, *, is_unknown_refused: bool) -> dict[str, Any]:
    _demand(isinstance(value, dict))
    found = {}
    for field in schema["fields"]:
        key = field.get("json.name", field["name"])
        if key in value:
            found[field["name"]] = _typed(field["type"], value[key], is_unknown_refused=is_unknown_refused)
        elif "default" in field:
            found[field["name"]] = _default(field["type"], field["default"])
        else:
            _demand(field["type"] == "null" or (isinstance(field["type"], list) and "null" in field["type"]))
            found[field["name"]] = None
    known = {field.get("json.name", field["name"]) for field in schema["fields"]}
    _demand(not is_unknown_refused or value.keys() <= known)
    return found


def _default(schema: Any, default: Any) -> Any:
    """Avro's JSON form of defaults: only bytes and fixed differ from Python's values."""
    branch = schema[0] if isinstance(schema, list) else schema
    kind = branch["type"] if isinstance(branch, dict) else branch
    logical = branch.get("logicalType") if isinstance(branch, dict) else None
    if kind in {"bytes", "fixed"} and logical is None:
        return default.encode("latin-1")
    return default


def _plain(schema: dict[str, Any], kind: str, value: Any) -> Any:
    logical = schema.get("logicalType")
    if logical == "decimal":
        return _decimal(schema, value)
    if logical is not None and logical != "uuid":
        return _instant(logical, value)
    if kind in {"int", "long"}:
        _demand(isinstance(value, Literal) and re.fullmatch(r"-?[0-9]+", value.text) is not None)
        number = Fraction(value.text)
        half = 2 ** (31 if kind == "int" else 63)
        _demand(-half <= number < half)
        return int(number)
    if kind in {"float", "double"}:
        _demand(isinstance(value, Literal))
        # An integer has no negative zero, so -0 is 0.0; -0.0 keeps its sign.
        real = 0.0 if value.text == "-0" else float(value.text)
        _demand(math.isfinite(real))
        if kind == "float":
            # Exact at the bound; far from it the double tells, and a fraction of 1e-99999999999999999999 never ends.
            _demand(
                abs(real) < FLOAT_MAX or (abs(real) < 2 * FLOAT_MAX and abs(Fraction(value.text)) < 2**128 - 2**103)
            )
            return max(-FLOAT_MAX, min(FLOAT_MAX, real))
        return real
    return _text_like(schema, kind, value)


def _text_like(schema: dict[str, Any], kind: str, value: Any) -> Any:
    if kind == "boolean":
        _demand(isinstance(value, bool))
        return value
    if kind == "null":
        _demand(value is None)
        return value
    _demand(isinstance(value, str))
    if kind == "enum":
        _demand(value in schema["symbols"])
    if schema.get("logicalType") == "uuid":
        _demand(re.fullmatch(r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", value) is not None)
    if kind not in {"bytes", "fixed"}:
        return value
    _demand(value.isascii())
    try:
        raw = base64.b64decode(value, validate=True)
    except ValueError as error:
        raise NotValid("base64") from error
    _demand(base64.b64encode(raw).decode() == value and len(raw) == schema.get("size", len(raw)))
    return raw


def _decimal(schema: dict[str, Any], value: Any) -> Decimal:
    _demand(isinstance(value, Literal) and len(value.text) < DEFAULT_CONTEXT_DIGITS)
    exponent = re.search(r"[eE]([+-]?[0-9]+)$", value.text)
    mantissa_is_zero = not re.sub(r"[eE].*", "", value.text).strip("-0.")
    if mantissa_is_zero:
        return Decimal(0)
    _demand(exponent is None or abs(int(exponent.group(1))) < DEFAULT_CONTEXT_DIGITS)
    scaled = Fraction(value.text) * 10 ** schema.get("scale", 0)
    _demand(scaled.denominator == 1 and abs(scaled) < 10 ** schema["precision"])
    return Decimal(int(scaled)).scaleb(-schema.get("scale", 0))


_DAY = r"(\d{4})-(\d\d)-(\d\d)"
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,18}))?"


def _instant(logical: str, value: Any) -> Any:
    per_second = 1_000 if logical.endswith("millis") else 1_000_000
    if isinstance(value, Literal):
        _demand(re.fullmatch(r"-?[0-9]+", value.text) is not None and len(value.text) < 30)
        return _in_range(logical, int(value.text), per_second)
    _demand(isinstance(value, str) and value.isascii())
    pattern = {"date": _DAY, "time": _CLOCK}.get(logical.partition("-")[0], f"{_DAY}T{_CLOCK}")
    if logical.startswith("timestamp"):
        pattern += r"(Z|[+-]\d\d:\d\d)"
    match = re.fullmatch(pattern, value)
    _demand(match is not None)
    assert match is not None
    groups = list(match.groups())
    days = 0
    if not logical.startswith("time-"):
        try:
            day = dt.datetime(int(groups[0]), int(groups[1]), int(groups[2]), tzinfo=dt.UTC)
        except ValueError as error:
            raise NotValid("no day") from error
        days, groups = (day - _EPOCH).days, groups[3:]
    if logical == "date":
        return days
    hour, minute, second = map(int, groups[:3])
    _demand(hour < 24 and minute < 60 and second < 60)
    units = Fraction(f"0.{groups[3] or '0'}") * per_second
    _demand(units.denominator == 1)
    offset = 0
    if logical.startswith("timestamp") and groups[4] != "Z":
        sign, hours, minutes = groups[4][0], int(groups[4][1:3]), int(groups[4][4:6])
        _demand(hours < 24 and minutes < 60)
        offset = (hours * 60 + minutes) * 60 * (-1 if sign == "-" else 1)
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset
    return _in_range(logical, seconds * per_second + int(units), per_second)


def _in_range(logical: str, number: int, per_second: int) -> int:
    first = (dt.date(1, 1, 1) - dt.date(1970, 1, 1)).days
    last = (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
    if logical == "date":
        _demand(first <= number <= last)
    elif logical.startswith("time-"):
        _demand(0 <= number < 86_400 * per_second)
    else:
        _demand(first * 86_400 * per_second <= number < (last + 1) * 86_400 * per_second)
    return number


def _demand(is_met: bool) -> None:  # noqa: FBT001 - reads as the sentence it is
    if not is_met:
        raise NotValid
