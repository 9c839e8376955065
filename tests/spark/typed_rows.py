"""Schemas and rows of every type that rows have, made at random, for tests of what is written of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from fetchers.sdk import RowSchema
from fetchers.sdk import rows as forms

AVRO_NAMES = iter(f"type_{number}" for number in range(10**9))
"""Of types that a schema names: no two have one name."""
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["\x00\x1f\x7f", '"\\/', "💧é\u2028"]
)


@dataclass(frozen=True)
class Made:
    """A type, with values of it."""

    form: Any
    arrow: Any
    values: st.SearchStrategy[Any]
    bad: Any = None
    """A value that the type cannot hold but its column can; None: there is none but null."""

    @property
    def optional(self) -> Made:
        """The same, or null."""
        return replace(self, form=forms.optional(self.form), values=st.none() | self.values)


def whole(bits: int) -> st.SearchStrategy[int]:
    """Whole numbers of so many bits, those around powers of two more often."""
    edges = [sign * (1 << at) + add for at in range(bits - 1) for sign in (1, -1) for add in (-1, 0)]
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) | st.sampled_from(edges)


def scaled(number: int, scale: int) -> Decimal:
    """A decimal of that many digits after the point, exactly."""
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


@st.composite
def decimals(draw: st.DrawFn) -> Made:
    """Of any precision, carried as bytes or in a fixed."""
    precision = draw(st.integers(1, 60))
    scale = draw(st.integers(0, precision))
    values = st.integers(1 - 10**precision, 10**precision - 1) | st.integers(-300, 300).filter(
        lambda number: abs(number) < 10**precision
    )
    arrow = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    form = forms.decimal(precision, scale)
    if precision <= 38 and draw(st.booleans()):
        size = (10**precision).bit_length() // 8 + 1 + draw(st.integers(0, 4))
        form = {"type": "fixed", "name": next(AVRO_NAMES), "size": size, "logicalType": "decimal"}
        form |= {"precision": precision, "scale": scale}
    return Made(form, arrow, values.map(lambda number: scaled(number, scale)))


def named_types() -> list[Made]:
    """Each with a name of its own."""
    symbols = [f"S{number}" for number in range(70)]
    return [
        Made(
            {"type": "enum", "name": next(AVRO_NAMES), "symbols": symbols}, pa.string(), st.sampled_from(symbols), "x"
        ),
        Made(
            {"type": "fixed", "name": next(AVRO_NAMES), "size": 3}, pa.binary(), st.binary(min_size=3, max_size=3), b""
        ),
    ]


def _one_nan(number: float) -> float:
    """The number; of all NaNs that one which the exact path writes, too: it has no bits of theirs."""
    return math.nan if math.isnan(number) else number


def plain_types() -> list[Made]:
    """Those without a name or an inside."""
    millis, micros = st.integers(-(2**62) // 1000, 2**62 // 1000), whole(64)
    return [
        Made(forms.INT8, pa.int16(), whole(8), 128),
        Made(forms.INT32, pa.int64(), whole(32), 2**31),
        Made(forms.INT64, pa.int64(), whole(64)),
        Made(forms.FLOAT32, pa.float32(), st.floats(width=32).map(_one_nan)),
        Made(forms.FLOAT64, pa.float64(), st.floats().map(_one_nan)),
        Made(forms.BOOLEAN, pa.bool_(), st.booleans()),
        Made(forms.STRING, pa.string(), texts),
        Made(forms.STRING, pa.large_string(), st.sampled_from(["é" * 70, "x" * 9_000])),
        Made({"type": "string", "logicalType": "uuid"}, pa.string(), st.uuids().map(str), "no"),
        Made(forms.BYTES, pa.binary(), st.binary(max_size=5)),
        Made(forms.DATE, pa.int32(), whole(32)),
        Made(forms.TIME, pa.int32(), st.integers(0, 86_399_999), -1),
        Made(forms.TIMESTAMP, pa.int64(), millis),
        Made(forms.TIMESTAMP_MICROS, pa.int64(), micros),
    ]


@st.composite
def types(draw: st.DrawFn, *, depth: int = 2) -> Made:
    """Of any kind, records and lists among them as long as there is depth left."""
    kinds = [st.sampled_from(plain_types()), decimals(), st.sampled_from(named_types())]
    if depth:
        kinds += [lists(depth=depth - 1), structs(depth=depth - 1)]
    made = draw(st.one_of(kinds))
    return made.optional if draw(st.booleans()) else made


@st.composite
def lists(draw: st.DrawFn, *, depth: int) -> Made:
    """Of items of one type."""
    item = draw(types(depth=depth))
    return Made(forms.array(item.form), pa.list_(item.arrow), st.lists(item.values, max_size=3))


@st.composite
def structs(draw: st.DrawFn, *, depth: int) -> Made:
    """Records of one to five fields."""
    fields = draw(st.lists(types(depth=depth), min_size=1, max_size=5))
    named = {f"f{at}": made for at, made in enumerate(fields)}
    return Made(
        forms.struct(f"app.{next(AVRO_NAMES)}", {name: made.form for name, made in named.items()}),
        pa.struct([(name, made.arrow) for name, made in named.items()]),
        st.fixed_dictionaries({name: made.values for name, made in named.items()}),
    )


@dataclass(frozen=True)
class Rows:
    """A micro-batch with its schemas."""

    schema: RowSchema
    key_schema: RowSchema
    table: pa.Table


@st.composite
def batches(draw: st.DrawFn) -> Rows:
    """Some columns hold one value, some rows are tombstones, and now and then a value is bad."""
    fields = draw(st.lists(types(), min_size=1, max_size=8))
    named = {f"f{at}": made for at, made in enumerate(fields)}
    count = draw(st.integers(1, 8))
    columns: dict[str, Any] = {}
    for name, made in named.items():
        values = draw(st.lists(made.values, min_size=count, max_size=count))
        if draw(st.booleans()):
            values = values[:1] * count
        if draw(st.integers(0, 9)) == 0:
            values[draw(st.integers(0, count - 1))] = made.bad
        columns[name] = pa.array(values, made.arrow)
    is_tombstone = draw(st.lists(st.booleans(), min_size=count, max_size=count)) if draw(st.booleans()) else None
    mask = None if is_tombstone is None else pa.array(is_tombstone)
    rows: Any = pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=mask)
    key_texts = pa.array(draw(st.lists(texts, min_size=count, max_size=count)))
    has_no_key = pa.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    keys: Any = pa.StructArray.from_arrays(
        [pa.array(range(count), pa.int64()), key_texts], names=["id", "text"], mask=has_no_key
    )
    start = draw(st.integers(0, 1)) if count > 1 else 0  # columns need not begin where their memory does
    table = pa.table({"key": keys, "value": rows, "timestamp": pa.nulls(count, pa.int64())}).slice(start)
    schema = RowSchema.of("app.rows", {name: made.form for name, made in named.items()})
    return Rows(schema, RowSchema.of("app.rows.Key", {"id": forms.INT64, "text": forms.optional(forms.STRING)}), table)
