"""What becomes of a column: its form in Debezium's words, and the ways to it from the log and from a snapshot.

Names and forms are those of Debezium's connectors for MySQL and MariaDB (their manual, "Data type mappings"). A value
that its form cannot hold is told, never altered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.mysql_cdc import values
from fetchers.mysql_cdc.events import MalformedError
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
from fetchers.mysql_cdc.moments import temporal
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
from fetchers.mysql_cdc.values import NOTHING, Made, by_octets, fixed, sound
from fetchers.sdk import rows as forms
from fetchers.toolkit.binary_modes import BinaryMode, encoded
from fetchers.toolkit.mysql_texts import Texts, shown
from fetchers.toolkit.texts import told_bytes

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


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to hold the values of a column."""

    column: Column
    form: forms.Form
    """Optional where the column is, and where it holds moments: MySQL's zero dates are null."""
    arrow: Any
    read: Callable[[Images, Numbers, Numbers, Numbers], Made]
    """From row images: where values begin, how long they are, which are not null."""
    hold: Callable[[Any], Made]
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
            return form, arrow, sound(fixed(width, _floats)), sound(lambda texts: texts.cast(arrow)), expression
        if column.type in (DATE, DATETIME2, TIMESTAMP2, TIME2, YEAR):
            return temporal(column, is_connects=self.times == "connect")
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
            return form, pa.string(), _json, sound(_same)
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
            read = fixed(8, lambda octets: values.whole(octets, is_unsigned=True))
            return (
                forms.decimal(20, 0),
                kind,
                sound(lambda *where: read(*where).cast(kind)),
                sound(lambda texts: texts.cast(kind)),
            )

        wide: Any = pa.uint64() if is_widest else pa.int64()

        def checked(made: Any) -> Made:
            if not is_widest or (pc.max(made).as_py() or 0) <= _INT64_MAX:
                return made.cast(arrow), NOTHING
            kept, wrong = values.without(
                made,
                np.asarray(pc.fill_null(pc.greater(made, pa.scalar(_INT64_MAX, wide)), False)),  # noqa: FBT003 - a value
                lambda row: f"no INT64 is {made[row].as_py()}: set bigint.unsigned.handling.mode=precise",
            )
            return kept.cast(arrow), wrong

        plain = fixed(width, lambda octets: values.whole(octets, is_unsigned=column.is_unsigned))
        return form, arrow, lambda *where: checked(plain(*where)), lambda texts: checked(texts.cast(wide))

    def _decimal(self, column: Column) -> tuple[Any, ...]:
        precision, scale, width = column.size, column.scale, width_of(column) or 0
        if not 0 < precision <= forms.DECIMAL_PRECISION_MAX or scale > precision:
            raise NotDescribed(f"column {column.name} is a DECIMAL({precision},{scale}), of which there is none")
        kind: Any = (pa.decimal128 if precision <= _DECIMAL_TYPE_DIGITS else pa.decimal256)(precision, scale)

        def exact(octets: Numbers, is_valid: Numbers) -> Made:
            return values.decimals(octets, is_valid, precision=precision, scale=scale)

        def read(of: Callable[[Any], Any]) -> Callable[..., Made]:
            def made(*where: Any) -> Made:
                found, wrong = by_octets(width, exact)(*where)
                return of(found), wrong

            return made

        if self.decimals == "precise":
            return forms.decimal(precision, scale), kind, by_octets(width, exact), sound(lambda texts: texts.cast(kind))
        if self.decimals == "double":
            made: Any = pa.float64()
            return (
                forms.FLOAT64,
                made,
                read(lambda found: found.cast(pa.string()).cast(made)),
                sound(lambda texts: texts.cast(made)),
            )
        return forms.STRING, pa.string(), read(_plain_digits), sound(_same)

    def _text(self, column: Column) -> tuple[Any, ...]:
        if column.named:
            return _named(column)
        if column.charset == BINARY_CHARSET:
            return self._binary(column)
        texts = self._texts(column)
        return forms.STRING, pa.string(), lambda *where: texts.column(values.slices(*where)), *_shown(column)

    def _binary(self, column: Column) -> tuple[Any, ...]:
        form, arrow = (forms.BYTES, pa.binary()) if self.binaries == "bytes" else (forms.STRING, pa.string())

        def read(*where: Any) -> Any:
            found = values.slices(*where)
            return encoded(values.padded(found, column.scale) if column.type == STRING else found, self.binaries)

        return form, arrow, sound(read), sound(lambda texts: encoded(texts.cast(pa.binary()), self.binaries))

    def _texts(self, column: Column) -> Texts:
        if self.charsets is None:
            return Texts("utf8mb4")
        charset = self.charsets.get(column.charset)
        if charset is None:
            raise NotDescribed(f"column {column.name} has the collation {column.charset}, which the server has not")
        return Texts(charset)

    def _choice(self, column: Column) -> tuple[Any, ...]:
        texts = self._texts(column)
        try:
            names = [texts.one(value) for value in column.values]
        except UnicodeDecodeError as error:
            told = told_bytes(error.object)
            raise NotDescribed(
                f"column {column.name} is declared with a value that is no text (the bytes {told}): "
                "change the value, or leave the column out by column.exclude.list"
            ) from None
        name = "io.debezium.data.Enum" if column.type == ENUM else "io.debezium.data.EnumSet"
        form = forms.named(
            name, forms.STRING, parameters={"allowed": ",".join(one.replace(",", r"\,") for one in names)}
        )

        def read(octets: Numbers, is_valid: Numbers) -> Made:
            return values.choices(column, names, octets, is_valid)

        return form, pa.string(), by_octets(column.size, read), *_shown(column)


def _shown(column: Column) -> tuple[Any, ...]:
    """How a snapshot holds a text, and what it selects of it."""
    texts = shown(column.told_charset)
    if texts is None:
        return (sound(_same),)
    return lambda found: texts.column(found.cast(pa.binary())), texts.expression


def _named(column: Column) -> tuple[Any, ...]:
    def read(*where: Any) -> Made:
        found = values.slices(*where)
        is_long = np.asarray(pc.fill_null(pc.greater(pc.binary_length(found), column.scale), False))  # noqa: FBT003
        kept, wrong = values.without(
            found, is_long, lambda row: f"no {column.named.upper()} has the bytes {told_bytes(found[row].as_py())}"
        )
        return texts_of(values.padded(kept, column.scale), column.named), wrong

    form = forms.named("io.debezium.data.Uuid", forms.STRING) if column.named == "uuid" else forms.STRING
    return form, pa.string(), read, sound(_same)


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
            sound(by_octets(1, lambda octets, is_valid: values.nullable(octets[:, 0] > 0, is_valid))),
            sound(lambda texts: texts.cast(pa.int64()).cast(pa.bool_())),
            "({} + 0)",
        )
    form = forms.named("io.debezium.data.Bits", forms.BYTES, parameters={"length": str(bits)})

    def told(texts: Any) -> Any:
        numbers = np.asarray(texts.cast(pa.uint64()).fill_null(0))
        octets = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
        return values.fixed_bytes(octets, np.asarray(texts.is_valid()))

    read = by_octets(width, lambda octets, is_valid: values.fixed_bytes(octets[:, ::-1], is_valid))
    return form, pa.binary(), sound(read), sound(told), "({} + 0)"


def _floats(octets: Numbers) -> Numbers:
    made: Numbers = np.ascontiguousarray(octets).view(f"<f{octets.shape[1]}")[:, 0]
    return made


def _json(*where: Any) -> Made:
    made: list[str | None] = []
    wrong = {}
    for row, value in enumerate(values.slices(*where).to_pylist()):
        try:
            made.append(None if value is None else json_text(value))
        except MalformedError as error:
            made.append(None)
            wrong[row] = f"{error} ({told_bytes(value)})"
    return pa.array(made, pa.string()), wrong


def _same(texts: Any) -> Any:
    return texts.cast(pa.string())


def _plain_digits(made: Any) -> Any:
    """Arrow writes small decimals with an exponent."""
    return pa.array([None if one is None else f"{one:f}" for one in made.to_pylist()], pa.string())
