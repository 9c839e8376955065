"""What becomes of a column: its form in Debezium's words, and the ways to it from the log and from a snapshot.

Names and forms are those of Debezium's connectors for MySQL and MariaDB (their manual, "Data type mappings"). Where its
form could not hold a value it is told, never altered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.mysql_cdc import values
from fetchers.mysql_cdc.charsets import Texts
from fetchers.mysql_cdc.geometry import (
    GEOMETRY_ARROW,
    GEOMETRY_FORM,
    POINT,
    POINT_ARROW,
    POINT_FORM,
    from_hex,
    geometries,
)
from fetchers.mysql_cdc.json_text import json_text
from fetchers.mysql_cdc.named_types import texts_of
from fetchers.mysql_cdc.rows import Images, Numbers, width_of
from fetchers.mysql_cdc.table_map import (
    BINARY_CHARSET,
    BIT,
    BLOB,
    DATE,
    DATETIME2,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    GEOMETRY,
    INT24,
    JSON,
    LONG,
    LONGLONG,
    SET,
    SHORT,
    STRING,
    TIME2,
    TIMESTAMP2,
    TINY,
    VARCHAR,
    YEAR,
    Column,
    NotDescribed,
)
from fetchers.sdk import Fatal
from fetchers.sdk import rows as forms
from fetchers.toolkit.binary_modes import BinaryMode, encoded

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
_INT64_MAX = (1 << 63) - 1
_DECIMAL_TYPE_DIGITS = 38
_WHOLE: Mapping[tuple[int, bool], tuple[forms.Form, Any]] = {
    (TINY, False): (forms.INT16, pa.int16()),
    (TINY, True): (forms.INT16, pa.int16()),
    (SHORT, False): (forms.INT16, pa.int16()),
    (SHORT, True): (forms.INT32, pa.int32()),
    (INT24, False): (forms.INT32, pa.int32()),
    (INT24, True): (forms.INT32, pa.int32()),
    (LONG, False): (forms.INT32, pa.int32()),
    (LONG, True): (forms.INT64, pa.int64()),
    (LONGLONG, False): (forms.INT64, pa.int64()),
    (LONGLONG, True): (forms.INT64, pa.int64()),
}
ZONED: Any = pa.string()
UNZONED: Any = pa.int64()
_DAY_MICROS = 86_400 * values.MICROS
_TIME = r"^(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d+))?$"


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to hold the values of a column."""

    column: Column
    form: forms.Form
    """Optional where the column is, and where it holds moments: MySQL's zero dates are null."""
    arrow: Any
    read: Callable[[Images, Numbers, Numbers, Numbers], Any]
    """From row images: where values begin, how long they are, which are not null."""
    hold: Callable[[Any], Any]
    """From the server's texts, as ``expression`` selects them."""
    expression: str = "{}"
    """What a snapshot selects; ``{}`` stands for the quoted column."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """The choices of a config, and what the server's collations are."""

    decimals: str = "precise"
    """``decimal.handling.mode``."""
    unsigned: str = "long"
    """``bigint.unsigned.handling.mode``."""
    times: str = "adaptive_time_microseconds"
    """``time.precision.mode``."""
    binaries: BinaryMode = "bytes"
    """``binary.handling.mode``."""
    charsets: Mapping[int, str] | None = None
    """Names of character sets by the numbers of their collations; None: everything is UTF-8."""

    def kind(self, column: Column) -> Kind:
        """The kind of a column; raises ``NotDescribed`` where there is none."""
        made = self._kind(column)
        is_moment = column.type in (DATE, DATETIME2, TIMESTAMP2)
        is_optional = column.is_nullable or is_moment
        return Kind(column, forms.optional(made[0]) if is_optional else made[0], *made[1:])

    def _kind(self, column: Column) -> tuple[Any, ...]:  # noqa: PLR0911 - one line a type
        if (column.type, column.is_unsigned) in _WHOLE:
            return self._whole(column)
        if column.type in (FLOAT, DOUBLE):
            form, arrow = (forms.FLOAT32, pa.float32()) if column.type == FLOAT else (forms.FLOAT64, pa.float64())
            width, expression = (4, "({} + 0e0)") if column.type == FLOAT else (8, "{}")
            return form, arrow, _fixed(width, _floats), lambda texts: texts.cast(arrow), expression
        if column.type in (DATE, DATETIME2, TIMESTAMP2, TIME2, YEAR):
            return _temporal(column, is_connects=self.times == "connect")
        if column.type == DECIMAL:
            return self._decimal(column)
        if column.type in (VARCHAR, STRING, BLOB):
            return self._text(column)
        if column.type in (ENUM, SET):
            return self._choice(column)
        if column.type == BIT:
            return _bits(column)
        if column.type == JSON:
            form = forms.named("io.debezium.data.Json", forms.STRING)
            return form, pa.string(), _json, _same
        if column.type == GEOMETRY:
            return _geometry(column)
        raise NotDescribed(
            f"column {column.name} is of a type that cannot be read: leave it out by column.exclude.list"
        )

    def _whole(self, column: Column) -> tuple[Any, ...]:
        form, arrow = _WHOLE[column.type, column.is_unsigned]
        width = width_of(column) or 0
        is_widest = column.type == LONGLONG and column.is_unsigned
        if is_widest and self.unsigned == "precise":
            kind = pa.decimal128(20, 0)
            read = _fixed(8, lambda octets: values.whole(octets, is_unsigned=True))
            return (
                forms.decimal(20, 0),
                kind,
                lambda images, *where: read(images, *where).cast(kind),
                lambda texts: texts.cast(kind),
            )

        def checked(made: Any) -> Any:
            if is_widest and (pc.max(made).as_py() or 0) > _INT64_MAX:
                raise Fatal(
                    f"column {column.name} holds a number over 9223372036854775807, which no INT64 can be: "
                    "set bigint.unsigned.handling.mode=precise"
                )
            return made.cast(arrow)

        plain = _fixed(width, lambda octets: values.whole(octets, is_unsigned=column.is_unsigned))
        wide = pa.uint64() if is_widest else pa.int64()
        return form, arrow, lambda *where: checked(plain(*where)), lambda texts: checked(texts.cast(wide))

    def _decimal(self, column: Column) -> tuple[Any, ...]:
        precision, scale, width = column.size, column.scale, width_of(column) or 0
        if not 0 < precision <= forms.DECIMAL_PRECISION_MAX or scale > precision:
            raise NotDescribed(f"column {column.name} is a DECIMAL({precision},{scale}), of which there is none")
        kind: Any = (pa.decimal128 if precision <= _DECIMAL_TYPE_DIGITS else pa.decimal256)(precision, scale)

        def read(images: Images, begins: Numbers, _: Numbers, is_valid: Numbers) -> Any:
            octets = values.octets_of(images, begins, width)
            return values.decimals(octets, is_valid, precision=precision, scale=scale)

        if self.decimals == "precise":
            return forms.decimal(precision, scale), kind, read, lambda texts: texts.cast(kind)
        if self.decimals == "double":
            made = pa.float64()
            return forms.FLOAT64, made, lambda *where: read(*where).cast(pa.string()).cast(made), lambda t: t.cast(made)
        return forms.STRING, pa.string(), lambda *where: _plain_digits(read(*where)), _same

    def _text(self, column: Column) -> tuple[Any, ...]:
        if column.named:
            return _named(column)
        if column.charset == BINARY_CHARSET:
            return self._binary(column)
        texts = self._texts(column)

        def read(*where: Any) -> Any:
            made, bad = texts.column(values.slices(*where))
            if bad:
                raise Fatal(
                    f"column {column.name} holds bytes that are no text in its character set: mend the row, or leave "
                    "the column out by column.exclude.list"
                )
            return made

        return forms.STRING, pa.string(), read, _same

    def _binary(self, column: Column) -> tuple[Any, ...]:
        form, arrow = (forms.BYTES, pa.binary()) if self.binaries == "bytes" else (forms.STRING, pa.string())

        def read(*where: Any) -> Any:
            found = values.slices(*where)
            return encoded(values.padded(found, column.scale) if column.type == STRING else found, self.binaries)

        return form, arrow, read, lambda texts: encoded(texts.cast(pa.binary()), self.binaries)

    def _texts(self, column: Column) -> Texts:
        if self.charsets is None:
            return Texts("utf8mb4")
        charset = self.charsets.get(column.charset)
        if charset is None:
            raise NotDescribed(f"column {column.name} has the collation {column.charset}, which the server has not")
        return Texts(charset)

    def _choice(self, column: Column) -> tuple[Any, ...]:
        texts = self._texts(column)
        names = [texts.one(value) for value in column.values]
        name = "io.debezium.data.Enum" if column.type == ENUM else "io.debezium.data.EnumSet"
        form = forms.named(
            name, forms.STRING, parameters={"allowed": ",".join(one.replace(",", r"\,") for one in names)}
        )

        def read(octets: Numbers, is_valid: Numbers) -> Any:
            return values.choices(column, names, octets, is_valid)

        return form, pa.string(), _by_octets(column.size, read), _same


def _named(column: Column) -> tuple[Any, ...]:
    def read(*where: Any) -> Any:
        return texts_of(values.padded(values.slices(*where), column.scale), column.named)

    form = forms.named("io.debezium.data.Uuid", forms.STRING) if column.named == "uuid" else forms.STRING
    return form, pa.string(), read, _same


def _temporal(column: Column, *, is_connects: bool) -> tuple[Any, ...]:
    """``is_connects``: as Connect's own types, which have milliseconds."""
    if column.type == YEAR:
        form = forms.named("io.debezium.time.Year", forms.INT32)
        read = _fixed(1, lambda octets: np.where(octets[:, 0] > 0, octets[:, 0].astype(np.int32) + 1900, 0))
        return form, pa.int32(), lambda *where: read(*where).cast(pa.int32()), lambda texts: texts.cast(pa.int32())
    if column.type == DATE:

        def days(octets: Numbers, is_valid: Numbers) -> Any:
            found, is_day = values.dates(octets)
            return values.nullable(found.astype(np.int32), is_valid & is_day, pa.int32())

        form = forms.DATE if is_connects else forms.named("io.debezium.time.Date", forms.INT32)
        return form, pa.int32(), _by_octets(3, days), lambda texts: _told_days(texts).cast(pa.int32())
    return _time(column, is_connects=is_connects) if column.type == TIME2 else _moment(column, is_connects=is_connects)


def _time(column: Column, *, is_connects: bool) -> tuple[Any, ...]:
    def clock(octets: Numbers, is_valid: Numbers) -> Any:
        return values.nullable(values.times(octets, column.scale), is_valid, pa.int64())

    read = _by_octets(width_of(column) or 0, clock)
    if not is_connects:
        return forms.named("io.debezium.time.MicroTime", forms.INT64), pa.int64(), read, _told_time

    def millis(micros: Any) -> Any:
        bounds = pc.min_max(micros).as_py()
        if (bounds["min"] or 0) < 0 or (bounds["max"] or 0) >= _DAY_MICROS:
            raise Fatal(
                f"column {column.name} holds a time that is none of a day, which Connect's Time cannot be: set "
                "time.precision.mode=adaptive_time_microseconds"
            )
        return pc.divide(micros, 1000).cast(pa.int32())

    return forms.TIME, pa.int32(), lambda *where: millis(read(*where)), lambda texts: millis(_told_time(texts))


def _moment(column: Column, *, is_connects: bool) -> tuple[Any, ...]:
    """DATETIME and TIMESTAMP."""
    is_zoned = column.type == TIMESTAMP2
    divisor = 1000 if is_connects or column.scale <= 3 else 1  # noqa: PLR2004 - milliseconds

    def made(micros: Numbers, is_valid: Numbers) -> Any:
        if is_zoned:
            return values.iso_instants(micros, is_valid, column.scale)
        return values.nullable(micros // divisor, is_valid, pa.int64())

    def moment(octets: Numbers, is_valid: Numbers) -> Any:
        micros, is_moment = values.moments(column, octets)
        return made(micros, is_valid & is_moment)

    def told(texts: Any) -> Any:
        days = _told_days(texts)
        rest = pc.utf8_slice_codeunits(texts, 11, 26)
        micros = pc.add(pc.multiply(days, 86_400 * values.MICROS), _told_time(rest))
        return made(np.asarray(micros.fill_null(0)), np.asarray(micros.is_valid()))

    if is_zoned:
        form, arrow = forms.named("io.debezium.time.ZonedTimestamp", forms.STRING), ZONED
    else:
        name = "Timestamp" if divisor > 1 else "MicroTimestamp"
        form = forms.TIMESTAMP if is_connects else forms.named(f"io.debezium.time.{name}", forms.INT64)
        arrow = UNZONED
    return form, arrow, _by_octets(width_of(column) or 0, moment), told


def _geometry(column: Column) -> tuple[Any, ...]:
    is_point = column.scale == POINT
    form, arrow = (POINT_FORM, POINT_ARROW) if is_point else (GEOMETRY_FORM, GEOMETRY_ARROW)
    return (
        form,
        arrow,
        lambda *where: geometries(values.slices(*where), is_point=is_point),
        lambda texts: from_hex(texts, is_point=is_point),
        "HEX({})",
    )


def _bits(column: Column) -> tuple[Any, ...]:
    bits, width = column.scale, column.size
    if bits == 1:
        return (
            forms.BOOLEAN,
            pa.bool_(),
            _by_octets(1, lambda octets, is_valid: values.nullable(octets[:, 0] > 0, is_valid)),
            lambda texts: texts.cast(pa.int64()).cast(pa.bool_()),
            "({} + 0)",
        )
    form = forms.named("io.debezium.data.Bits", forms.BYTES, parameters={"length": str(bits)})

    def told(texts: Any) -> Any:
        numbers = np.asarray(texts.cast(pa.uint64()).fill_null(0))
        octets = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
        return values.fixed_bytes(octets, np.asarray(texts.is_valid()))

    read = _by_octets(width, lambda octets, is_valid: values.fixed_bytes(octets[:, ::-1], is_valid))
    return form, pa.binary(), read, told, "({} + 0)"


def _by_octets(width: int, read: Callable[[Numbers, Numbers], Any]) -> Callable[..., Any]:
    def whole(images: Images, begins: Numbers, _: Numbers, is_valid: Numbers) -> Any:
        return read(values.octets_of(images, begins, width), is_valid)

    return whole


def _fixed(width: int, read: Callable[[Numbers], Numbers]) -> Callable[..., Any]:
    return _by_octets(width, lambda octets, is_valid: values.nullable(read(octets), is_valid))


def _floats(octets: Numbers) -> Numbers:
    made: Numbers = np.ascontiguousarray(octets).view(f"<f{octets.shape[1]}")[:, 0]
    return made


def _json(*where: Any) -> Any:
    found = values.slices(*where).to_pylist()
    return pa.array([None if value is None else json_text(value) for value in found], pa.string())


def _same(texts: Any) -> Any:
    return texts.cast(pa.string())


def _plain_digits(made: Any) -> Any:
    """Arrow writes small decimals with an exponent."""
    return pa.array([None if one is None else f"{one:f}" for one in made.to_pylist()], pa.string())


def _told_days(texts: Any) -> Any:
    """Days since the epoch of texts that begin with YYYY-MM-DD; null for what is no day."""
    is_valid = np.asarray(texts.is_valid())
    filled = texts.fill_null("0000-00-00")
    parts = [pc.utf8_slice_codeunits(filled, begin, end).cast(pa.int64()) for begin, end in ((0, 4), (5, 7), (8, 10))]
    days, is_day = values._day_numbers(*map(np.asarray, parts))  # noqa: SLF001 - the same days as the log's
    return values.nullable(days, is_valid & is_day, pa.int64())


def _told_time(texts: Any) -> Any:
    """Microseconds of texts such as ``-838:59:59.5``."""
    parts = pc.extract_regex(texts.fill_null("0:00:00"), _TIME)
    hours, minutes, seconds = (parts.field(at).cast(pa.int64()) for at in (1, 2, 3))
    fraction = pc.utf8_rpad(parts.field(4), 6, "0").cast(pa.int64())
    whole = pc.add(pc.multiply(hours, 3600), pc.add(pc.multiply(minutes, 60), seconds))
    micros = pc.add(pc.multiply(whole, values.MICROS), fraction)
    made = pc.if_else(pc.equal(parts.field(0), "-"), pc.negate(micros), micros)
    return pc.if_else(texts.is_valid(), made, None)
