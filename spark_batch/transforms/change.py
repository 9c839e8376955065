"""What is done to the value of one field: to its type, in Spark's columns, and to a canonical value.

The columns of sinks, and texts with Connect's schemas, take the canonical way too: what they hold is made canonical
first, and afterwards what it was.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context
from decimal import Decimal as ExactNumber
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from spark_batch.avro_types import (
    Array,
    AvroType,
    Decimal,
    Fixed,
    JsonValue,
    Map,
    Narrow,
    Primitive,
    Record,
    Slot,
    Temporal,
)
from spark_batch.literals.numbers import DIGITS_MAX, exact_number, unscaled_bytes
from spark_batch.literals.reading import Number
from spark_batch.literals.rows import canonical_row
from spark_batch.literals.writing import json_text
from spark_batch.outcome import Reason
from spark_batch.transforms.connect_schema import DECIMAL, Document
from spark_batch.transforms.form import Inapplicable

if TYPE_CHECKING:
    from pyspark.sql import Column

ArrowColumn: TypeAlias = "pa.Array[Any]"
EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Rounds nothing: Python's usual context keeps 28 digits, and Connect's schema of a decimal sets no limit to them."""
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Numbers that JSON has only as texts."""
CONNECT_TEMPORALS = {
    Temporal.DATE: "org.apache.kafka.connect.data.Date",
    Temporal.TIME_MILLIS: "org.apache.kafka.connect.data.Time",
    Temporal.TIMESTAMP_MILLIS: "org.apache.kafka.connect.data.Timestamp",
}
"""Connect holds these in dates of Java's; dates and times in microseconds are plain numbers to it."""
_BY_CONNECT_NAME = {name: kind for kind, name in CONNECT_TEMPORALS.items()}
_CONNECT_TYPES: dict[AvroType, str] = {
    Narrow(8): "int8",
    Narrow(16): "int16",
    Primitive.INT: "int32",
    Primitive.LONG: "int64",
    Primitive.FLOAT: "float",
    Primitive.DOUBLE: "double",
    Primitive.BOOLEAN: "boolean",
    Primitive.STRING: "string",
    Primitive.BYTES: "bytes",
}
_BY_CONNECT_TYPE = {text: kind for kind, text in _CONNECT_TYPES.items()}
_ARROW: dict[AvroType, Any] = {
    Narrow(8): pa.int32(),
    Narrow(16): pa.int32(),
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.STRING: pa.string(),
    Temporal.DATE: pa.date32(),
    Temporal.TIME_MILLIS: pa.time32("ms"),
    Temporal.TIMESTAMP_MILLIS: pa.timestamp("ms", "UTC"),
}
_CARRIERS = {32: pa.int32(), 64: pa.int64()}


class Unchangeable(Exception):
    """Values of a type cannot be changed so, whatever they are; the text says what was expected."""


@dataclass(frozen=True)
class Changed:
    """A changed column, null where the value is, and where it is sure to be right (None: everywhere)."""

    value: Column
    proof: Column | None = None


class Change(Protocol):
    """Something that is done to values of one type."""

    def kind(self, kind: AvroType) -> AvroType:
        """The type afterwards; raises Unchangeable."""

    def column(self, kind: AvroType, value: Column) -> Changed:
        """The values afterwards, of a column of that type."""

    def canonical(self, kind: AvroType, value: JsonValue) -> JsonValue:
        """A canonical value that is not null, afterwards. Raises Inapplicable."""


@dataclass(frozen=True)
class Taken:
    """A field of the record afterwards: its name, where its value lies, and what is done to it."""

    name: str
    path: tuple[str, ...]
    change: Change | None = None
    is_optional: bool | None = None
    """Whether it may be null; None: as it is where it lies."""
    has_default: bool = True
    """Whether a default goes with it."""


def avro_type(kind: AvroType) -> JsonValue:
    """Avro's schema of a type that a change has made, as Confluent's converter writes it."""
    if isinstance(kind, Narrow):
        return {"type": "int", "connect.type": f"int{kind.bits}"}
    if isinstance(kind, Temporal):
        name = CONNECT_TEMPORALS[kind]
        return {"type": kind.base.value, "connect.version": 1, "connect.name": name, "logicalType": kind.value}
    assert isinstance(kind, Primitive)  # noqa: S101 - told to the type checker: changes make nothing else
    return kind.value


def connect_type(kind: AvroType) -> Document:
    """Connect's schema of a type that a change has made, but for what belongs to the field."""
    if isinstance(kind, Temporal):
        return {"type": _CONNECT_TYPES[kind.base], "name": CONNECT_TEMPORALS[kind], "version": 1}
    return {"type": _CONNECT_TYPES[kind]}


def kind_of_document(document: Document) -> AvroType:
    """The type that a Connect schema says; of arrays and maps only that they are."""
    name, kind = document.get("name"), document["type"]
    if kind == "struct":
        return Record(name or "", ())
    if kind == "array":
        return Array(Slot(Primitive.STRING))
    if kind == "map":
        return Map(Slot(Primitive.STRING))
    if name == DECIMAL:
        return Decimal(38, int(document.get("parameters", {}).get("scale", 0)))
    return _BY_CONNECT_NAME.get(name, _BY_CONNECT_TYPE[kind]) if isinstance(name, str) else _BY_CONNECT_TYPE[kind]


def kind_of_json(value: JsonValue) -> AvroType:
    """The type that Connect gives to a JSON value without a schema."""
    if isinstance(value, Number):
        return Primitive.DOUBLE if any(sign in value for sign in ".eE") else Primitive.LONG
    if isinstance(value, bool):
        return Primitive.BOOLEAN
    if isinstance(value, dict):
        return Map(Slot(Primitive.STRING))
    return Array(Slot(Primitive.STRING)) if isinstance(value, list) else Primitive.STRING


def changed_json(change: Change, value: JsonValue) -> JsonValue:
    """A value without a schema afterwards; raises Inapplicable."""
    if value is None:
        return None
    kind = kind_of_json(value)
    if kind is Primitive.LONG and len(value) > DIGITS_MAX:
        raise Inapplicable(Reason.OUT_OF_RANGE, f"expected a number of at most {DIGITS_MAX} digits")
    try:
        change.kind(kind)
    except Unchangeable as error:
        raise Inapplicable(Reason.WRONG_TYPE, f"expected {error}") from error
    return change.canonical(kind, value)


_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number)


def opened(text: bytes) -> JsonValue:
    """A JSON text's value, numbers as they are written."""
    return _DECODER.decode(text.decode())


def canonical_of_connect(kind: AvroType, text: bytes) -> JsonValue:
    """The canonical value of what JsonConverter wrote of a type; raises Inapplicable for what it cannot have written.

    A producer may put any payload beside a schema. As in Java, numbers with a fraction are cut where whole ones belong,
    and dates and times must be whole; where Java takes a value of another type for nothing (0, false), it is refused.
    """
    value = opened(text)
    if isinstance(kind, Decimal):
        return _decimal_of_connect(kind, value)
    number = exact_number(value) if isinstance(value, Number) else None
    is_fitting = True
    if isinstance(kind, (Temporal, Narrow)) or kind in {Primitive.INT, Primitive.LONG}:
        is_whole = isinstance(value, Number) and kind_of_json(value) is Primitive.LONG
        is_fitting = number is not None and -(1 << 63) <= number < 1 << 63
        is_fitting = is_fitting and (is_whole or not isinstance(kind, Temporal))
        value = Number(int(number)) if is_fitting and number is not None else value
    elif kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        is_fitting = isinstance(value, Number) or value in _NOT_FINITE
    elif kind is Primitive.BOOLEAN:
        is_fitting = isinstance(value, bool)
    elif kind in {Primitive.STRING, Primitive.BYTES}:
        is_fitting = isinstance(value, str) and not isinstance(value, Number)
    if not is_fitting:
        raise _no_value_of_schema()
    return value


def _decimal_of_connect(kind: Decimal, value: JsonValue) -> Number:
    """Of base64 of its digits, or of a number, which JsonConverter writes if asked to."""
    if isinstance(value, Number) and exact_number(value) is not None:
        return value
    if not isinstance(value, str) or isinstance(value, Number):
        raise _no_value_of_schema()
    try:
        unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
    except ValueError as error:
        raise _no_value_of_schema() from error
    return Number(f"{ExactNumber(unscaled).scaleb(-kind.scale, context=EXACT):f}")


def _no_value_of_schema() -> Inapplicable:
    return Inapplicable(Reason.WRONG_TYPE, "expected a value of the type that the schema says")


def connect_text(kind: AvroType, value: JsonValue) -> bytes:
    """What JsonConverter writes of a canonical value."""
    if isinstance(kind, Decimal) and value is not None:
        unscaled = ExactNumber(int(ExactNumber(value).scaleb(kind.scale, context=EXACT)))
        value = base64.b64encode(unscaled_bytes(unscaled)).decode()
    return json_text(value, number=str).encode()


def canonical_items(kind: AvroType, column: ArrowColumn) -> list[JsonValue]:
    """The canonical values of a sink's typed column."""
    items = column.cast(_carried(column.type)).to_pylist()
    if isinstance(kind, (Record, Array, Map)):
        return [canonical_row(kind, item) for item in items]
    if isinstance(kind, (Temporal, Decimal, Narrow)) or kind in {
        Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE,
    }:  # fmt: skip
        return [None if item is None else Number(f"{item:f}" if isinstance(kind, Decimal) else item) for item in items]
    if isinstance(kind, Fixed) or kind is Primitive.BYTES:
        return [None if item is None else base64.b64encode(item).decode() for item in items]
    return items


def _carried(kind: Any) -> Any:
    """An Arrow type whose dates and times are the numbers that carry them: Python has none before the year 1."""
    if pa.types.is_temporal(kind):
        return _CARRIERS[kind.bit_width]
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_carried(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_carried(kind.item_type)))
    return pa.list_(kind.value_field.with_type(_carried(kind.value_type))) if pa.types.is_list(kind) else kind


def arrow_items(kind: AvroType, items: list[JsonValue], before: ArrowColumn, *, is_same: bool) -> Any:
    """A sink's typed column of canonical values; of the type of `before` where the type is the same."""
    wanted: Any = before.type if is_same else _ARROW[kind]
    if isinstance(kind, (Temporal, Narrow)) or kind in {Primitive.INT, Primitive.LONG}:
        carrier = _CARRIERS[wanted.bit_width]
        return pa.array([None if item is None else int(item) for item in items], carrier).cast(wanted)
    if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        return pa.array([None if item is None else float(item) for item in items], wanted)
    if isinstance(kind, Decimal):
        return pa.array([None if item is None else ExactNumber(item) for item in items], wanted)
    if isinstance(kind, Map):
        return pa.array([None if item is None else list(item.items()) for item in items], wanted)
    return pa.array(items, wanted)
