"""The tables of types in ``docs/guides``: from a database's own text to a record's form and value.

A form is Connect's or Debezium's schema name, else a type. A value is what is written: days, milliseconds or
microseconds, bytes; only decimals are decimals. None in place of both: the row is rejected. ``from_avro`` and
``from_json`` read the same out of records.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

import numpy as np

Told = tuple[str, Any] | None
Oracle = Callable[[str], Told]
DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE, TIME, TIMESTAMP = (f"org.apache.kafka.connect.data.{name}" for name in ("Date", "Time", "Timestamp"))
DATA, TIMES = "io.debezium.data", "io.debezium.time"
VARIABLE, POINT = f"{DATA}.VariableScaleDecimal", f"{DATA}.geometry.Point"
MICROS_OF_A_DAY = 86_400_000_000
_MANY_DIGITS = Context(prec=100)
YEAR_MAX = 294_247
"""Later times have more microseconds than a long holds."""


def moment(text: str, unit: str) -> int | None:
    """Since 1970 in the Gregorian calendar, UTC; None for what is none, such as ``infinity`` and the zero day."""
    found = re.fullmatch(r"(\d{4,})-(\d\d)-(\d\d)(?: (\d\d:\d\d:\d\d(?:\.\d+)?))?(?:\+00)?( BC)?", text)
    if found is None or "00" in found.group(2, 3) or int(found[1]) >= YEAR_MAX:
        return None
    year, clock = int(found[1]), found[4] or "00:00:00"
    number = 1 - year if found[5] else year
    days = int(np.datetime64(f"{number:05d}-{found[2]}-{found[3]}", "D").astype(int))
    whole = days * MICROS_OF_A_DAY + clock_micros(clock)
    return whole // {"D": MICROS_OF_A_DAY, "ms": 1000, "us": 1}[unit]


def clock_micros(text: str) -> int:
    """Of ``23:59:59.999``, or ``-838:59:59``."""
    sign, hours, minutes, seconds = _parts(r"(-?)(\d+):(\d\d):(\d\d(?:\.\d+)?)", text)
    whole = (int(hours) * 60 + int(minutes)) * 60_000_000 + int(Decimal(seconds) * 1_000_000)
    return -whole if sign else whole


def _parts(pattern: str, text: str) -> tuple[str, ...]:
    found = re.fullmatch(pattern, text)
    assert found is not None, text
    return found.groups()


def _whole(form: str) -> Oracle:
    return lambda text: (form, int(text))


def _text(form: str) -> Oracle:
    return lambda text: (form, text)


def _exact(text: str) -> Told:
    number = Decimal(text)
    return (DECIMAL, number) if number.is_finite() else None


def _double(text: str) -> Told:
    return "double", float(text.replace("Inf", "inf"))


def _float(text: str) -> Told:
    return "float", float(np.float32(text))


def _truth(text: str) -> Told:
    return ("boolean", text in {"t", "1"}) if text in {"t", "f", "1", "0"} else None


def _octets(text: str) -> Told:
    """Of hexadecimal digits, as PostgreSQL and all others write them."""
    return "bytes", bytes.fromhex(text.removeprefix("\\x"))


def _instant(form: str, unit: str, *, is_none_null: bool = False) -> Oracle:
    def told(text: str) -> Told:
        found = moment(text, unit)
        return None if found is None and not is_none_null else (form, found)

    return told


def _millis_of_a_day(text: str) -> Told:
    micros = clock_micros(text)
    return (TIME, micros // 1000) if 0 <= micros < MICROS_OF_A_DAY else None


def _micro_time(text: str) -> Told:
    return f"{TIMES}.MicroTime", clock_micros(text)


JDBC_POSTGRESQL: Mapping[str, Oracle] = {
    "smallint": _whole("int16"),
    "integer": _whole("int32"),
    "positive": _whole("int32"),
    "bigint": _whole("int64"),
    "oid": _whole("int64"),
    "real": _float,
    "double precision": _double,
    "boolean": _truth,
    "bit(1)": _truth,
    "numeric()": _exact,
    "numeric(3,-2)": _text("string"),
    "bytea": _octets,
    "date": _instant(DATE, "D"),
    "time": _millis_of_a_day,
    "timestamp": _instant(TIMESTAMP, "ms"),
    "timestamptz": _instant(TIMESTAMP, "ms"),
}


def _items(text: str) -> Told:
    return "array", [None if item == "NULL" else int(item) for item in text.strip("{}").split(",")]


def _variable(text: str) -> Told:
    return None if text == "NaN" else (VARIABLE, Decimal(text))


def _zoned_time(text: str) -> Told:
    clock, hours, minutes = _parts(r"([\d:.]+)\+(\d\d):(\d\d)", text)
    utc = clock_micros(clock) // 60_000_000 - int(hours) * 60 - int(minutes)
    return f"{TIMES}.ZonedTime", f"{utc // 60:02d}:{utc % 60:02d}:00Z"


def _zoned(text: str) -> Told:
    if moment(text, "us") is None:
        return None
    day, clock, fraction = _parts(r"(\S+) (\d\d:\d\d:\d\d)\.?(\d*)\+00", text)
    return f"{TIMES}.ZonedTimestamp", f"{day}T{clock}.{fraction.ljust(6, '0')}Z"


def _duration(text: str) -> Told:
    months, days, clock = _parts(r"(\d+) mon (\d+) days (\S+)", text)
    month = round(365.25 / 12 * MICROS_OF_A_DAY)
    return f"{TIMES}.MicroDuration", int(months) * month + int(days) * MICROS_OF_A_DAY + clock_micros(clock)


LOG_POSTGRESQL: Mapping[str, Oracle] = {
    **JDBC_POSTGRESQL,
    "integer[]": _items,
    "bit()": lambda text: (f"{DATA}.Bits", int(text, 2).to_bytes(math.ceil(len(text) / 8), "little")),
    "numeric": _variable,
    "numeric(3,-2)": _variable,
    "money": lambda text: _exact(re.sub("[$,]", "", text)),
    "date": _instant(f"{TIMES}.Date", "D"),
    "time": _micro_time,
    "timetz": _zoned_time,
    "timestamp": _instant(f"{TIMES}.MicroTimestamp", "us"),
    "timestamptz": _zoned,
    "interval": _duration,
    "json": _text(f"{DATA}.Json"),
    "jsonb": _text(f"{DATA}.Json"),
    "uuid": _text(f"{DATA}.Uuid"),
    "mood": _text(f"{DATA}.Enum"),
}

JDBC_MYSQL: Mapping[str, Oracle] = {
    "tinyint": _whole("int8"),
    "boolean": _whole("int8"),
    "tinyint unsigned": _whole("int16"),
    "smallint unsigned": _whole("int32"),
    "mediumint unsigned": _whole("int64"),
    "int unsigned": _whole("int64"),
    "bigint": _whole("int64"),
    "bigint unsigned": _exact,
    "year": _whole("int32"),
    "decimal()": _exact,
    "float": _float,
    "double": _double,
    "bit(1)": _truth,
    "bit()": _whole("int64"),
    "bit(64)": _exact,
    "binary": _octets,
    "varbinary": _octets,
    "blob": _octets,
    "date": _instant(DATE, "D"),
    "datetime": _instant(TIMESTAMP, "ms"),
    "timestamp": _instant(TIMESTAMP, "ms"),
    "time": _millis_of_a_day,
}


def _bits(count: int) -> Oracle:
    return lambda text: (f"{DATA}.Bits", int(text).to_bytes(math.ceil(count / 8), "little"))


def _point(text: str) -> Told:
    x, y = _parts(r"POINT\((\S+) (\S+)\)", text)
    return POINT, (float(x), float(y))


LOG_MYSQL: Mapping[str, Oracle] = {
    **JDBC_MYSQL,
    "tinyint": _whole("int16"),
    "boolean": _whole("int16"),
    "mediumint unsigned": _whole("int32"),
    "bigint unsigned": lambda text: None if int(text) >= 2**63 else ("int64", int(text)),
    "year": _whole(f"{TIMES}.Year"),
    "bit(10)": _bits(10),
    "bit(64)": _bits(64),
    "json": _text(f"{DATA}.Json"),
    "enum()": _text(f"{DATA}.Enum"),
    "set()": _text(f"{DATA}.EnumSet"),
    "date": _instant(f"{TIMES}.Date", "D", is_none_null=True),
    "datetime": _instant(f"{TIMES}.Timestamp", "ms", is_none_null=True),
    "datetime(6)": _instant(f"{TIMES}.MicroTimestamp", "us", is_none_null=True),
    "timestamp": lambda text: (f"{TIMES}.ZonedTimestamp", f"{text.replace(' ', 'T')}Z"),
    "time": _micro_time,
    "point": _point,
}

LOG_MARIADB: Mapping[str, Oracle] = {**LOG_MYSQL, "json": _text("string"), "uuid": _text(f"{DATA}.Uuid")}


def _fitting(precision: int, scale: int) -> Oracle:
    def told(text: str) -> Told:
        number = Decimal(text)
        return (DECIMAL, number) if number == round(number, scale) and abs(number) < 10 ** (precision - scale) else None

    return told


def _millis(text: str) -> Told:
    return TIMESTAMP, int(text) if text.isdigit() else int(np.datetime64(text, "ms").astype(int))


SQLITE: Mapping[str, Oracle] = {
    "integer": _whole("int64"),
    "bigint": _whole("int64"),
    "real": _double,
    "double": _double,
    "float": _double,
    "boolean": _truth,
    "decimal(12,4)": _fitting(12, 4),
    "decimal(5,2)": _fitting(5, 2),
    "blob": _octets,
    "date": lambda text: (DATE, int(np.datetime64(text, "D").astype(int))),
    "datetime": _millis,
    "timestamp": _millis,
}


def told_by(table: Mapping[str, Oracle], kind: str, text: str) -> Told:
    """Of a value of a declared type: by the type as it is, by any of its lengths, by its name; else it is a text."""
    keys = (kind, re.sub(r"\(.*?\)", "()", kind), re.sub(r"\(.*?\)", "", kind))
    oracle = next((table[key] for key in keys if key in table), _text("string"))
    try:
        return oracle(text)
    except (ValueError, ArithmeticError):  # it is no such number, day or time at all
        return None


def from_avro(form: Any, raw: Any) -> Told:
    """Of a field: its Avro type, and its value read without logical types. Null has a form, too."""
    kind = next(each for each in form if each != "null") if isinstance(form, list) else form
    name = kind if isinstance(kind, str) else kind.get("connect.name") or kind.get("connect.type") or kind["type"]
    name = {"int": "int32", "long": "int64"}.get(name, name)
    parameters = kind if isinstance(kind, dict) else {}
    return name, _plain(name, raw, parameters.get("scale", 0))


def from_json(form: Mapping[str, Any], raw: Any) -> Told:
    """Of a field: its schema in Connect's JSON, and its value there."""
    name = form.get("name") or form["type"]
    if raw is not None and form["type"] == "bytes":
        raw = base64.b64decode(raw)
    return name, _plain(name, raw, int(form.get("parameters", {}).get("scale", 0)))


def _plain(name: str, raw: Any, scale: int) -> Any:
    if raw is None:
        return None
    if name == DECIMAL:
        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _MANY_DIGITS)
    if name == VARIABLE:
        return Decimal(int.from_bytes(raw["value"], "big", signed=True)).scaleb(-raw["scale"], _MANY_DIGITS)
    if name == POINT:
        return raw["x"], raw["y"]
    return float(np.float32(raw)) if name == "float" else float(raw) if name == "double" else raw
