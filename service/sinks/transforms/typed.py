"""Transformations of typed values: Arrow columns put together and taken apart, no value touched in Python.

What becomes of the type and its Avro schema is said by the shapes that sources use too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.avro_columns import parsed_slot
from service.sinks.batch import Form, ValueType
from service.sinks.readings import Column
from service.sinks.reasons import RefusalReason
from service.sinks.transforms.halves import (
    INSERTION,
    Fault,
    Faults,
    Mask,
    Origins,
    Unfit,
    additions,
    duplicate_field,
    missing_faults,
    no_struct_to_look_in,
    only_structs,
    unknown_field,
)
from spark_batch.avro_types import Array, AvroType, Decimal, Enum, Field, Fixed, Map, Primitive, Record, Slot, Temporal
from spark_batch.transforms.kinds import ExtractField, HoistField, InsertField
from spark_batch.transforms.shape import Shape, inserted_fields, reshaped
from spark_batch.transforms.tracks import Leg

_PRIMITIVE_CLASSES = {
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


@dataclass(frozen=True, slots=True)
class TypedHalf:
    """A column of one Arrow type."""

    column: Column
    kind: ValueType
    shape: Shape

    def taken(self, rows: Mask) -> TypedHalf:
        """See ``Half``."""
        return replace(self, column=self.column.filter(pa.array(rows)))

    def hoisted(self, hoist: HoistField) -> TypedHalf:
        """See ``Half``."""
        field = pa.field(hoist.field, self.column.type, nullable=self.shape.slot.is_nullable)
        return _half(pa.StructArray.from_arrays([self.column], fields=[field]), _reshaped(hoist, self.shape))

    def inserted(self, insert: InsertField, origins: Origins) -> tuple[TypedHalf, Faults]:
        """See ``Half``."""
        record = self.shape.record
        if record is None:
            raise Unfit(only_structs(INSERTION, _java_class(self.shape.slot.type)))
        fields = inserted_fields(insert)
        names = [field.name for field in (*record.fields, *fields)]
        for field in fields:
            if names.count(field.name) > 1:
                raise Unfit(duplicate_field(field.name))
        added = additions(insert, origins)
        faults = missing_faults(added)
        children = cast("Any", self.column).flatten()
        if insert.is_null_defaulted:
            is_there = self.column.is_valid()
            children = [
                _defaulted(field, child, is_there, faults) for field, child in zip(record.fields, children, strict=True)
            ]
        columns = [_timed(column, field) for (_, column), field in zip(added, fields, strict=True)]
        new = [
            pa.field(field.name, column.type, nullable=field.slot.is_nullable)
            for field, column in zip(fields, columns, strict=True)
        ]
        whole = pa.StructArray.from_arrays([*children, *columns], fields=[*self.column.type, *new])
        return _half(whole, _reshaped(replace(insert, is_null_defaulted=False), self.shape)), faults

    def extracted(self, extract: ExtractField) -> tuple[TypedHalf, Faults]:
        """See ``Half``."""
        slot, column, is_there = self.shape.slot, self.column, self.column.is_valid()
        field: Field | None = None
        for name in extract.path:
            if not isinstance(slot.type, Record):
                raise no_struct_to_look_in(_java_class(slot.type), is_nested=field is not None)
            field = slot.type.field(name)
            if field is None:
                raise Unfit(unknown_field(extract.path))
            is_there = column.is_valid()
            column = pc.struct_field(cast("Any", column), [slot.type.fields.index(field)])
            slot = field.slot
        faults: dict[int, Fault] = {}
        if field is not None and extract.is_null_defaulted:
            column = _defaulted(field, column, is_there, faults)
        return _half(column, _reshaped(replace(extract, is_null_defaulted=False), self.shape)), faults


def typed_half(column: Column, kind: ValueType) -> TypedHalf:
    """Of texts, bytes, or records of an Avro schema."""
    if kind.form is Form.RECORD:
        return TypedHalf(column, kind, _shape_of(str(kind.schema)))
    primitive = Primitive.STRING if kind.form is Form.TEXT else Primitive.BYTES
    # Connect's converters of strings and bytes call every value optional.
    return TypedHalf(column, kind, Shape(Slot(primitive, is_nullable=True), json.dumps(["null", primitive.value])))


@lru_cache(maxsize=256)
def _shape_of(schema: str) -> Shape:
    return Shape(parsed_slot(schema), schema)


@lru_cache(maxsize=1024)
def _reshaped(reshaping: HoistField | InsertField | ExtractField, shape: Shape) -> Shape:
    """Once for each schema. What does not fit was found before, and nulls are filled in here."""
    return reshaped(Leg("", reshaping, ""), shape)


def _half(column: Any, shape: Shape) -> TypedHalf:
    forms = {Primitive.STRING: Form.TEXT, Primitive.BYTES: Form.BYTES}
    form = forms.get(cast("Primitive", shape.slot.type))
    return TypedHalf(column, ValueType(Form.RECORD, shape.avro) if form is None else ValueType(form), shape)


def _timed(column: Column, field: Field) -> Column:
    if field.slot.type is not Temporal.TIMESTAMP_MILLIS:
        return column
    return cast("Column", column.cast(pa.timestamp("ms", "UTC")))


def _defaulted(field: Field, column: Column, is_there: Any, faults: dict[int, Fault]) -> Column:
    """Nulls of a field that has a default become it, in records that are there."""
    if field.default is None or not field.has_value_default or not column.null_count:
        return column
    is_missing = pc.and_(is_there, column.is_null())
    if field.slot.type in _DEFAULTED or isinstance(field.slot.type, Enum):
        default = pa.scalar(json.loads(field.default), column.type)
        return cast("Column", pc.if_else(is_missing, default, column))
    fault = Fault(
        RefusalReason.UNUSABLE_DEFAULT, f"field {field.name} is null, and its default cannot be put in its place here"
    )
    faults |= {int(row): fault for row in np.flatnonzero(is_missing.to_numpy(zero_copy_only=False))}
    return column


def _java_class(kind: AvroType) -> str:
    found = next((name for python, name in _JAVA_CLASSES if isinstance(kind, python)), None)
    return found or _PRIMITIVE_CLASSES.get(cast("Primitive", kind), "java.lang.String")
