"""The half of a sink's records (keys or values) that a transformation works on: a column, and what may go wrong.

Two kinds: JSON texts, with Connect's schema or without, of which everything that is not asked for stays as it was
written, digits, order and escapes; and typed Arrow columns, put together and taken apart without touching a value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_batch.avro_types import (
    Array,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Narrow,
    Primitive,
    Record,
    Temporal,
)
from spark_batch.transforms.shape import Shape

ArrowColumn: TypeAlias = "pa.Array[Any]"
Mask: TypeAlias = "npt.NDArray[np.bool_]"
_OBJECT: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PRIMITIVE_CLASSES = {
    Narrow(8): "java.lang.Byte",
    Narrow(16): "java.lang.Short",
    Primitive.INT: "java.lang.Integer",
    Primitive.LONG: "java.lang.Long",
    Primitive.FLOAT: "java.lang.Float",
    Primitive.DOUBLE: "java.lang.Double",
    Primitive.BOOLEAN: "java.lang.Boolean",
    Primitive.BYTES: "[B",
}
_JAVA_CLASSES: tuple[tuple[type, str], ...] = (
    (Record, "org.apache.kafka.connect.data.Struct"),
    (Array, "java.util.ArrayList"),
    (Map, "java.util.HashMap"),
    (Decimal, "java.math.BigDecimal"),
    (Temporal, "java.util.Date"),
    (Fixed, "[B"),
)
_DEFAULTED = {*_PRIMITIVE_CLASSES, Primitive.STRING} - {Primitive.BYTES}
"""Types whose default in the schema is the value itself."""


class FaultReason(StrEnum):
    """Why a transformation refuses a sink's record, in a word for metrics and logs."""

    NO_SCHEMA = "no_schema"
    WRONG_TYPE = "wrong_type"
    MISSING_FIELD = "missing_field"
    DUPLICATE_FIELD = "duplicate_field"
    MISSING_TIMESTAMP = "missing_timestamp"
    UNUSABLE_DEFAULT = "unusable_default"
    OUT_OF_RANGE = "out_of_range"
    EXPRESSION_FAILED = "expression_failed"


class Fault(NamedTuple):
    """Why a record cannot be transformed, as Connect says it."""

    reason: FaultReason
    message: str
    """Never the record's content."""
    exception: str = "org.apache.kafka.connect.errors.DataException"


Faults: TypeAlias = Mapping[int, Fault]
"""By row of the half; the values of these rows mean nothing any more."""


class Unfit(Exception):
    """What is wrong with a schema is wrong with all of its records, if for another reason where they are null."""

    def __init__(self, fault: Fault, of_nulls: Fault | None = None) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.of_nulls = fault if of_nulls is None else of_nulls


class NoObjectError(Exception):
    """The text is JSON of another kind than an object."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Where the records of a half come from, for transformations that add it."""

    topic: str
    """Topic at this step, after the routers before it."""
    partitions: ArrowColumn
    offsets: ArrowColumn
    timestamps: ArrowColumn
    """Milliseconds since the epoch, or null."""


@dataclass(frozen=True, slots=True)
class JsonHalf:
    """JSON texts (`pa.string()`), null where there is no value, with Connect's schema as JSON text or without one."""

    column: ArrowColumn
    schema: str | None = None
    has_type: bool = True
    """False where there are only nulls, and no schema came with them."""

    def taken(self, rows: Mask) -> JsonHalf:
        """The half with only the rows that the mask is true for."""
        return replace(self, column=self.column.filter(pa.array(rows)))


@dataclass(frozen=True, slots=True)
class TypedHalf:
    """Values of one Arrow type, and the type with its Avro schema."""

    column: ArrowColumn
    shape: Shape
    is_record: bool
    """Whether they are to be read by the Avro schema; else they are plain texts or bytes."""

    def taken(self, rows: Mask) -> TypedHalf:
        """The half with only the rows that the mask is true for."""
        return replace(self, column=self.column.filter(pa.array(rows)))


Half: TypeAlias = JsonHalf | TypedHalf


def typed(column: Any, shape: Shape) -> TypedHalf:
    """What a transformation has made: texts and bytes are plain from then on."""
    return TypedHalf(column, shape, is_record=shape.slot.type not in {Primitive.STRING, Primitive.BYTES})


def json_half(texts: list[bytes | None], schema: str | None) -> JsonHalf:
    """What a transformation has made of each text."""
    return JsonHalf(pa.array(texts, pa.binary()).cast(pa.string()), schema)


def texts_of(column: ArrowColumn) -> list[bytes | None]:
    """The texts in UTF-8, one by one."""
    return column.cast(pa.binary()).to_pylist()


def object_of(text: bytes) -> dict[str, msgspec.Raw]:
    """Slices of an object's values by their names; raises NoObjectError."""
    try:
        return _OBJECT.decode(text)
    except msgspec.DecodeError as error:
        raise NoObjectError from error


def only_structs(purpose: str, found: str) -> Fault:
    """What has a schema has no fields in it; both texts are Connect's words."""
    return Fault(FaultReason.WRONG_TYPE, f"Only Struct objects supported for [{purpose}], found: {found}")


def no_object(half: JsonHalf, text: bytes | None, purpose: str) -> Fault:
    """A text of a half is no object."""
    if half.schema is not None:
        return Fault(FaultReason.WRONG_TYPE, f"expected an object where the schema has a struct [{purpose}]")
    found = _java_class_of_text(text or b"null")
    words = f"Only Map objects supported in absence of schema for [{purpose}], found: {found}"
    return Fault(FaultReason.WRONG_TYPE, words)


def defaulted(field: Field, column: ArrowColumn, is_there: Any, faults: dict[int, Fault]) -> ArrowColumn:
    """Nulls of a field that has a default become it, in records that are there; `faults` gets the rows that cannot."""
    if field.default is None or not field.has_value_default or not column.null_count:
        return column
    is_missing = pc.and_(is_there, column.is_null())
    if field.slot.type in _DEFAULTED or isinstance(field.slot.type, Enum):
        default = pa.scalar(json.loads(field.default), column.type)
        return cast("ArrowColumn", pc.if_else(is_missing, default, column))
    words = f"field {field.name} is null, and its default cannot be put in its place here"
    fault = Fault(FaultReason.UNUSABLE_DEFAULT, words)
    faults |= {int(row): fault for row in np.flatnonzero(is_missing.to_numpy(zero_copy_only=False))}
    return column


def java_class_of_type(kind: AvroType) -> str:
    """Class that Connect holds such a value in."""
    found = next((name for python, name in _JAVA_CLASSES if isinstance(kind, python)), None)
    return found or _PRIMITIVE_CLASSES.get(cast("Primitive | Narrow", kind), "java.lang.String")


def _java_class_of_text(text: bytes) -> str:
    """Class that Connect would have made of a JSON text."""
    first = text.lstrip()[:1]
    if first in {b"-", *(b"%d" % digit for digit in range(10))}:
        return "java.lang.Double" if any(sign in text for sign in b".eE") else "java.lang.Long"
    classes = {b'"': "java.lang.String", b"[": "java.util.ArrayList", b"t": "java.lang.Boolean"}
    return {**classes, b"f": "java.lang.Boolean", b"{": "java.util.HashMap"}.get(first, "null")
