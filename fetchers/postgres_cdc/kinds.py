"""What becomes of a column: from the server's texts to Arrow, under Debezium's names.

Log and snapshot give the same texts of the same session settings (``columns.SESSION``), so that a value is the same in
both.
Whole columns are read by Arrow's casts. Where one of them holds what these do not read (``infinity``, years before
Christ, ``24:00:00``), its distinct values are read one by one, exactly or not at all. The table of types is in
``docs/guides/postgresql-changes.md``; the server's are in the chapter "Data Types" of its manual.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.postgres_cdc.arrays import array_of
from fetchers.postgres_cdc.columns import Kind, Modes, Texts, Type, UnreadableError
from fetchers.sdk import rows as forms
from fetchers.toolkit.binary_modes import encoded

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
DECIMAL128_DIGITS, MILLIS_DIGITS, MICROS_DIGITS = 38, 3, 6
_DAY_MICROS = 86_400_000_000
_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)( BC)?")
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ZONE = re.compile(r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,6}))?S)?)?"
)
_MONTH_MICROS = round(365.25 / 12 * _DAY_MICROS)
"""Of a month, as Debezium reckons (``interval.handling.mode``)."""


def kind_of(found: Type, modes: Modes) -> Kind:
    """By the type's name, modifier and the config's modes; what is not known is its text."""
    if found.item is not None:
        return array_of(kind_of(found.item, modes), found.item.delimiter)
    if found.labels is not None:
        return _text(forms.named("io.debezium.data.Enum", forms.STRING, parameters={"allowed": ",".join(found.labels)}))
    if found.name in _PLAIN:
        return _PLAIN[found.name]
    made = {
        "numeric": _numeric,
        "date": _date,
        "time": _time,
        "timestamp": _timestamp,
        "bit": _bits,
        "varbit": _bits,
        "interval": _interval,
        "bytea": _bytes,
        "money": _money,
        "timestamptz": _instant,
    }.get(found.name)
    return made(found, modes) if made is not None else _text(forms.STRING)


def _text(form: forms.Form, *, selects: bool = False) -> Kind:
    return Kind(form, pa.string(), str, _same, str, selects)


def _cast(arrow: Any, texts: Texts) -> Any:
    return texts.cast(arrow)


def _same(texts: Texts) -> Any:
    return texts


def _number(form: forms.Form, arrow: Any, one: Callable[[str], Any] = int) -> Kind:
    return Kind(form, arrow, one, partial(_cast, arrow), selects=True)


def _booleans(texts: Texts) -> Any:
    return pc.equal(texts, "t") if not pc.any(pc.equal(texts, "true")).as_py() else pc.equal(texts, "true")


def _utc(texts: Texts, digits: int) -> Any:
    """``2024-01-02 03:04:05.6+00`` as ISO 8601 with a Z, and with so many digits of a second."""
    if not pc.all(pc.match_substring_regex(texts, r"^\d{4}-.*\+00$")).as_py() and texts.null_count < len(texts):
        raise pa.ArrowInvalid("a time that is none of the usual ones")
    day, time = pc.utf8_slice_codeunits(texts, 0, 10), pc.utf8_slice_codeunits(texts, 11, -3)
    if digits:
        dotted = pc.binary_join_element_wise(time, "", ".")
        time = pc.utf8_rpad(pc.if_else(pc.match_substring(time, "."), time, dotted), 9 + digits, "0")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(day, time, "T"), "", "Z")


def _instant(found: Type, _modes: Modes) -> Kind:
    digits = found.modifier if 0 <= found.modifier <= MICROS_DIGITS else MICROS_DIGITS
    form = forms.named("io.debezium.time.ZonedTimestamp", forms.STRING)
    return Kind(form, pa.string(), partial(_zoned, digits=digits), partial(_utc, digits=digits))


def _zoned(text: str, digits: int) -> str:
    instant, _, era = text.partition("+00")
    day, _, time = instant.partition(" ")
    if not time:
        raise UnreadableError("it is no instant")
    year, rest = day.split("-", 1)
    number = 1 - int(year) if era else int(year)
    told = f"{number:05d}" if number < 0 else f"{number:04d}" if len(year) <= len("2024") else f"+{number}"
    clock, _, fraction = time.partition(".")
    return f"{told}-{rest}T{clock}{'.' if digits else ''}{fraction.ljust(digits, '0')}Z"


def _zoned_time(text: str) -> str:
    clock = _TIME.match(text)
    zone = _ZONE.fullmatch(text[clock.end() :]) if clock else None
    if clock is None or zone is None:
        raise UnreadableError("it is no time of day")
    hours, minutes, seconds = (int(part or 0) for part in zone.group(2, 3, 4))
    shift = (hours * 3600 + minutes * 60 + seconds) * (1 if zone[1] == "+" else -1)
    micros = (_clock_micros(clock) - shift * 1_000_000) % _DAY_MICROS
    seconds, fraction = divmod(micros, 1_000_000)
    told = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{told}Z"


def _hosts(texts: Texts) -> Any:
    """The log tells a host without its mask; a snapshot's cast to text does not."""
    return pc.replace_substring_regex(texts, r"^(?:([0-9.]+)/32|([0-9a-f:.]*:[0-9a-f:.]*)/128)$", r"\1\2")


_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |$)', re.DOTALL)


def _hstore_json(text: str) -> str:
    found = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise UnreadableError("it is no hstore")
        key, value = (
            None if part is None else re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in pair.groups()
        )
        found[key] = value
        at = pair.end()
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


_PLAIN: dict[str, Kind] = {
    "bool": Kind(forms.BOOLEAN, pa.bool_(), lambda text: text in {"t", "true"}, _booleans, selects=True),
    "int2": _number(forms.INT16, pa.int16()),
    "int4": _number(forms.INT32, pa.int32()),
    "int8": _number(forms.INT64, pa.int64()),
    "oid": Kind(forms.INT64, pa.int64(), int, partial(_cast, pa.int64())),
    "float4": _number(forms.FLOAT32, pa.float32(), float),
    "float8": _number(forms.FLOAT64, pa.float64(), float),
    "text": _text(forms.STRING, selects=True),
    "varchar": _text(forms.STRING, selects=True),
    "json": _text(forms.named("io.debezium.data.Json", forms.STRING)),
    "jsonb": _text(forms.named("io.debezium.data.Json", forms.STRING)),
    "uuid": _text(forms.named("io.debezium.data.Uuid", forms.STRING)),
    "xml": _text(forms.named("io.debezium.data.Xml", forms.STRING)),
    "bpchar": _text(forms.STRING, selects=True),
    "inet": Kind(forms.STRING, pa.string(), str, _hosts),
    "hstore": Kind(forms.named("io.debezium.data.Json", forms.STRING), pa.string(), _hstore_json),
    "ltree": _text(forms.named("io.debezium.data.Ltree", forms.STRING)),
    "tsvector": _text(forms.named("io.debezium.data.Tsvector", forms.STRING)),
    "timetz": Kind(forms.named("io.debezium.time.ZonedTime", forms.STRING), pa.string(), _zoned_time),
}


def _numeric(found: Type, modes: Modes) -> Kind:
    if modes.decimals == "string":
        return _text(forms.STRING)
    if modes.decimals == "double":
        return Kind(forms.FLOAT64, pa.float64(), float, partial(_cast, pa.float64()))
    precision = (found.modifier - 4) >> 16 & 0xFFFF
    scale = (((found.modifier - 4) & 0x7FF) ^ 1024) - 1024
    if found.modifier < 0 or not 0 <= scale <= precision <= forms.DECIMAL_PRECISION_MAX:
        return _VARIABLE
    arrow = pa.decimal128(precision, scale) if precision <= DECIMAL128_DIGITS else pa.decimal256(precision, scale)
    return Kind(forms.decimal(precision, scale), arrow, _finite, partial(_cast, arrow))


def _money(_found: Type, modes: Modes) -> Kind:
    """As ``numeric(19,2)``: sessions have ``lc_monetary=C``, which writes ``-$1,234.50``."""
    kind = _numeric(Type("numeric", (19 << 16 | 2) + 4), modes)
    many = kind.many or _same

    def plain(texts: Texts) -> Any:
        return pc.replace_substring_regex(texts, r"[$,]", "")

    return Kind(
        kind.form, kind.arrow, lambda text: kind.one(re.sub(r"[$,]", "", text)), lambda texts: many(plain(texts))
    )


def _finite(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise UnreadableError("it is no number; decimal.handling.mode=string keeps it")
    return number


def _variable(text: str) -> dict[str, Any]:
    sign, digits, exponent = _finite(text).as_tuple()
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = (whole.bit_length() if whole >= 0 else (whole + 1).bit_length()) // 8 + 1
    return {"scale": -int(exponent), "value": whole.to_bytes(size, "big", signed=True)}


_VARIABLE = Kind(
    forms.struct(
        "io.debezium.data.VariableScaleDecimal",
        {"scale": forms.INT32, "value": forms.BYTES},
        version=1,
        doc="Variable scaled decimal",
    ),
    pa.struct([("scale", pa.int32()), ("value", pa.binary())]),
    _variable,
)


def _days(text: str) -> int:
    """Days since 1970-01-01 in the Gregorian calendar, carried back before Christ (``infinity`` is none of them)."""
    day = _DATE.fullmatch(text)
    if day is None:
        raise UnreadableError("it is no day of the calendar")
    year = 1 - int(day[1]) if day[4] else int(day[1])
    month, number = int(day[2]), int(day[3])
    is_late = month > len(("January", "February"))
    shifted = year - (not is_late)
    era, of_era = shifted // 400, shifted % 400
    of_year = (153 * (month + (-3 if is_late else 9)) + 2) // 5 + number - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _date(_found: Type, modes: Modes) -> Kind:
    form = forms.DATE if modes.times == "connect" else forms.named("io.debezium.time.Date", forms.INT32)
    return Kind(form, pa.int32(), _days, lambda texts: _cast(pa.date32(), texts).cast(pa.int32()))


def _clock_micros(clock: re.Match[str]) -> int:
    hours, minutes, seconds = (int(part) for part in clock.group(1, 2, 3))
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int((clock[4] or "").ljust(6, "0"))


def _time_micros(text: str) -> int:
    clock = _TIME.fullmatch(text)
    if clock is None:
        raise UnreadableError("it is no time of day")
    return _clock_micros(clock)


def _times(texts: Texts) -> Any:
    """Arrow reads no times, but it reads instants."""
    return pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("us")).cast(pa.int64())


def _time(found: Type, modes: Modes) -> Kind:
    has_millis = modes.times == "connect" or (modes.times == "adaptive" and 0 <= found.modifier <= MILLIS_DIGITS)
    if not has_millis:
        form = forms.named("io.debezium.time.MicroTime", forms.INT64)
        return Kind(form, pa.int64(), _time_micros, _times)
    form = forms.TIME if modes.times == "connect" else forms.named("io.debezium.time.Time", forms.INT32)
    return Kind(
        form,
        pa.int32(),
        lambda text: _time_micros(text) // 1000,
        lambda texts: pc.divide(_times(texts), 1000).cast(pa.int32()),
    )


def _timestamp_micros(text: str) -> int:
    instant, era = (text[:-3], " BC") if text.endswith(" BC") else (text, "")
    day, _, clock = instant.partition(" ")
    micros = _days(day + era) * _DAY_MICROS + _time_micros(clock)
    if not -(2**63) <= micros < 2**63:
        raise UnreadableError("it is too far away")
    return micros


def _timestamps(texts: Texts) -> Any:
    return texts.cast(pa.timestamp("us")).cast(pa.int64())


def _timestamp(found: Type, modes: Modes) -> Kind:
    has_millis = modes.times == "connect" or 0 <= found.modifier <= MILLIS_DIGITS
    if not has_millis:
        form = forms.named("io.debezium.time.MicroTimestamp", forms.INT64)
        return Kind(form, pa.int64(), _timestamp_micros, _timestamps)
    form = forms.TIMESTAMP if modes.times == "connect" else forms.named("io.debezium.time.Timestamp", forms.INT64)
    return Kind(
        form,
        pa.int64(),
        lambda text: _timestamp_micros(text) // 1000,
        lambda texts: _floored(_timestamps(texts)),
    )


def _floored(micros: Any) -> Any:
    """Milliseconds, rounded towards the past."""
    cut = pc.divide(micros, 1000)
    below = pc.and_(pc.less(micros, 0), pc.not_equal(pc.multiply(cut, 1000), micros))
    return pc.if_else(below, pc.subtract(cut, 1), cut)


def _interval(_found: Type, modes: Modes) -> Kind:
    if modes.intervals == "string":
        form = forms.named("io.debezium.time.Interval", forms.STRING)
        return Kind(form, pa.string(), _whole_interval)
    return Kind(forms.named("io.debezium.time.MicroDuration", forms.INT64), pa.int64(), _duration)


def _whole_interval(text: str) -> str:
    """With all of its parts, as Debezium writes it."""
    years, months, _, days, hours, minutes, sign, seconds, fraction = _interval_parts(text).groups()
    second = f"{sign or ''}{seconds or 0}{'.' if fraction else ''}{fraction or ''}"
    return f"P{years or 0}Y{months or 0}M{days or 0}DT{hours or 0}H{minutes or 0}M{second}S"


def _interval_parts(text: str) -> re.Match[str]:
    parts = _INTERVAL.fullmatch(text)
    if parts is None:
        raise UnreadableError("it is no interval of ISO 8601")
    return parts


def _duration(text: str) -> int:
    parts = _interval_parts(text)
    years, months, weeks, days, hours, minutes = (int(part or 0) for part in parts.group(1, 2, 3, 4, 5, 6))
    seconds = int(parts[8] or 0) * 1_000_000 + int((parts[9] or "").ljust(6, "0"))
    micros = (hours * 3600 + minutes * 60) * 1_000_000 + (-seconds if parts[7] else seconds)
    whole = (years * 12 + months) * _MONTH_MICROS + (weeks * 7 + days) * _DAY_MICROS + micros
    if not -(2**63) <= whole < 2**63:
        raise UnreadableError("it is too long; interval.handling.mode=string keeps it")
    return whole


def _bits(found: Type, _modes: Modes) -> Kind:
    """``bit(1)`` is a boolean; others are bytes, the lowest first."""
    if found.name == "bit" and found.modifier == 1:
        return Kind(forms.BOOLEAN, pa.bool_(), lambda text: text == "1", lambda texts: pc.equal(texts, "1"))
    length = str(found.modifier if found.modifier > 0 else 2**31 - 1)
    form = forms.named("io.debezium.data.Bits", forms.BYTES, parameters={"length": length})
    return Kind(form, pa.binary(), lambda text: int(text or "0", 2).to_bytes(math.ceil(len(text) / 8), "little"))


def _bytes(_found: Type, modes: Modes) -> Kind:
    if modes.binaries == "hex":
        return Kind(
            forms.STRING, pa.string(), lambda text: text[2:], lambda texts: pc.utf8_slice_codeunits(texts, 2), _hexed
        )
    if modes.binaries == "bytes":
        return Kind(forms.BYTES, pa.binary(), lambda text: bytes.fromhex(text[2:]), _unhexed, _hexed)

    def many(texts: Texts) -> Any:
        return encoded(_unhexed(texts), modes.binaries)

    return Kind(forms.STRING, pa.string(), lambda text: str(many(pa.array([text]))[0]), many, _hexed)


def _hexed(word: str) -> str:
    return f"\\x{word.encode().hex()}"


def _unhexed(texts: Texts) -> Any:
    r"""``\x0aff`` as bytes: all digits of the column are read as one."""
    digits = pc.utf8_slice_codeunits(texts, 2)
    offsets = np.frombuffer(digits.buffers()[1], np.int32)[digits.offset : digits.offset + len(digits) + 1]
    data = digits.buffers()[2]
    read = bytes.fromhex(memoryview(data)[offsets[0] : offsets[-1]].tobytes().decode("ascii")) if data else b""
    valid = None if not digits.null_count else pc.is_valid(digits)
    found = pa.py_buffer(((offsets - offsets[0]) // 2).astype(np.int32).tobytes())
    made = pa.Array.from_buffers(pa.binary(), len(digits), [None, found, pa.py_buffer(read)])
    return made if valid is None else pc.if_else(valid, made, pa.scalar(None, pa.binary()))
