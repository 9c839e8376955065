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
from decimal import Decimal
from fractions import Fraction
from typing import Any

import fastavro

from tests.spark.oracle_json import Literal, NotValid, read_json
from tests.spark.oracle_taking import Taking, demand, taken

__all__ = ["Literal", "NotValid", "Taking", "judged", "kept", "read_avro", "read_json", "through_avro"]

FLOAT_MAX = 3.4028234663852886e38
DEFAULT_CONTEXT_DIGITS = 1000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


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
    demand(not found.keys() & {field["name"] for field in schema["fields"]})
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
        demand(isinstance(value, list))
        return [_typed(schema["items"], item, is_unknown_refused=is_unknown_refused) for item in value]
    if kind == "map":
        demand(isinstance(value, dict))
        return {
            key: _typed(schema["values"], item, is_unknown_refused=is_unknown_refused) for key, item in value.items()
        }
    return _plain(schema, kind, value)


def _record(schema: dict[str, Any], value: Any, *, is_unknown_refused: bool) -> dict[str, Any]:
    demand(isinstance(value, dict))
    found = {}
    for field in schema["fields"]:
        key = field.get("json.name", field["name"])
        if key in value:
            found[field["name"]] = _typed(field["type"], value[key], is_unknown_refused=is_unknown_refused)
        elif "default" in field:
            found[field["name"]] = _default(field["type"], field["default"])
        else:
            demand(field["type"] == "null" or (isinstance(field["type"], list) and "null" in field["type"]))
            found[field["name"]] = None
    known = {field.get("json.name", field["name"]) for field in schema["fields"]}
    demand(not is_unknown_refused or value.keys() <= known)
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
        demand(isinstance(value, Literal) and re.fullmatch(r"-?[0-9]+", value.text) is not None)
        number = Fraction(value.text)
        half = 2 ** (31 if kind == "int" else 63)
        demand(-half <= number < half)
        return int(number)
    if kind in {"float", "double"}:
        demand(isinstance(value, Literal))
        # An integer has no negative zero, so -0 is 0.0; -0.0 keeps its sign.
        real = 0.0 if value.text == "-0" else float(value.text)
        demand(math.isfinite(real))
        if kind == "float":
            # Exact at the bound; far from it the double tells, and a fraction of 1e-99999999999999999999 never ends.
            demand(abs(real) < FLOAT_MAX or (abs(real) < 2 * FLOAT_MAX and abs(Fraction(value.text)) < 2**128 - 2**103))
            return max(-FLOAT_MAX, min(FLOAT_MAX, real))
        return real
    return _text_like(schema, kind, value)


def _text_like(schema: dict[str, Any], kind: str, value: Any) -> Any:
    if kind == "boolean":
        demand(isinstance(value, bool))
        return value
    if kind == "null":
        demand(value is None)
        return value
    demand(isinstance(value, str))
    if kind == "enum":
        demand(value in schema["symbols"])
    if schema.get("logicalType") == "uuid":
        demand(re.fullmatch(r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", value) is not None)
    if kind not in {"bytes", "fixed"}:
        return value
    demand(value.isascii())
    try:
        raw = base64.b64decode(value, validate=True)
    except ValueError as error:
        raise NotValid("base64") from error
    demand(base64.b64encode(raw).decode() == value and len(raw) == schema.get("size", len(raw)))
    return raw


def _decimal(schema: dict[str, Any], value: Any) -> Decimal:
    demand(isinstance(value, Literal) and len(value.text) < DEFAULT_CONTEXT_DIGITS)
    exponent = re.search(r"[eE]([+-]?[0-9]+)$", value.text)
    mantissa_is_zero = not re.sub(r"[eE].*", "", value.text).strip("-0.")
    if mantissa_is_zero:
        return Decimal(0)
    demand(exponent is None or abs(int(exponent.group(1))) < DEFAULT_CONTEXT_DIGITS)
    scaled = Fraction(value.text) * 10 ** schema.get("scale", 0)
    demand(scaled.denominator == 1 and abs(scaled) < 10 ** schema["precision"])
    digits = tuple(map(int, str(abs(int(scaled)))))
    # Put together: Python's arithmetic would round to 28 digits.
    return Decimal((int(scaled < 0), digits, -schema.get("scale", 0)))


_DAY = r"(\d{4})-(\d\d)-(\d\d)"
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,18}))?"


def _instant(logical: str, value: Any) -> Any:
    per_second = 1_000 if logical.endswith("millis") else 1_000_000
    if isinstance(value, Literal):
        demand(re.fullmatch(r"-?[0-9]+", value.text) is not None and len(value.text) < 30)
        return _in_range(logical, int(value.text), per_second)
    demand(isinstance(value, str) and value.isascii())
    pattern = {"date": _DAY, "time": _CLOCK}.get(logical.partition("-")[0], f"{_DAY}T{_CLOCK}")
    if logical.startswith("timestamp"):
        pattern += r"(Z|[+-]\d\d:\d\d)"
    match = re.fullmatch(pattern, value)
    demand(match is not None)
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
    demand(hour < 24 and minute < 60 and second < 60)
    units = Fraction(f"0.{groups[3] or '0'}") * per_second
    demand(units.denominator == 1)
    offset = 0
    if logical.startswith("timestamp") and groups[4] != "Z":
        sign, hours, minutes = groups[4][0], int(groups[4][1:3]), int(groups[4][4:6])
        demand(hours < 24 and minutes < 60)
        offset = (hours * 60 + minutes) * 60 * (-1 if sign == "-" else 1)
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset
    return _in_range(logical, seconds * per_second + int(units), per_second)


def _in_range(logical: str, number: int, per_second: int) -> int:
    first = (dt.date(1, 1, 1) - dt.date(1970, 1, 1)).days
    last = (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
    if logical == "date":
        demand(first <= number <= last)
    elif logical.startswith("time-"):
        demand(0 <= number < 86_400 * per_second)
    else:
        demand(first * 86_400 * per_second <= number < (last + 1) * 86_400 * per_second)
    return number
