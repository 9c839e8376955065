"""What a table's schema lacks for the records that come, and how it is made of that.

Only changes that Iceberg lets happen without rewriting data (https://iceberg.apache.org/spec/#schema-evolution):
a new optional column, ``int`` to ``long``, ``float`` to ``double``, more digits of a decimal, required to optional.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from service.sinks.batch import RefusalReason
from service.sinks.shapes import ShapeError


@dataclass(frozen=True, slots=True)
class Change:
    """One step of an evolution."""

    path: tuple[str, ...]
    add: IcebergType | None = None
    widen: IcebergType | None = None
    """Type that an existing column gets; with neither, it becomes optional."""

    def apply(self, update: UpdateSchema) -> None:
        """Make it part of an update."""
        if self.add is not None:
            update.add_column(self.path, self.add)
        elif self.widen is not None:
            update.update_column(self.path, field_type=self.widen)
        else:
            update.make_column_optional(self.path)


def changes(table: Schema, records: Any, *, is_case_insensitive: bool = False) -> tuple[Change, ...]:
    """What ``table`` needs so that it can hold a struct column of the Arrow type ``records``."""
    found = _changes(table.as_struct(), records, (), is_case_insensitive)
    # Columns by which rows are identified, and those around them, stay required: a record without one is refused.
    kept = {name.split(".")[0] for name in map(table.find_column_name, table.identifier_field_ids) if name}
    return tuple(each for each in found if each.add or each.widen or each.path[0] not in kept)


def _changes(table: StructType, records: Any, above: tuple[str, ...], is_folded: bool) -> Iterator[Change]:  # noqa: FBT001 - one recursion
    found = {_key(field.name, is_folded): field for field in records}
    for column in table.fields:
        field = found.pop(_key(column.name, is_folded), None)
        path = (*above, column.name)
        if column.required and (field is None or field.nullable):
            yield Change(path)
        if field is not None:
            yield from _of_column(column.field_type, field.type, path, is_folded)
    for field in found.values():
        if not pa.types.is_null(field.type):
            yield Change((*above, field.name), add=iceberg_type(field.type, ".".join((*above, field.name))))


def _of_column(column: IcebergType, kind: Any, path: tuple[str, ...], is_folded: bool) -> Iterator[Change]:  # noqa: FBT001
    if isinstance(column, StructType) and pa.types.is_struct(kind):
        yield from _changes(column, kind, path, is_folded)
    elif isinstance(column, ListType) and pa.types.is_list(kind):
        yield from _of_column(column.element_type, kind.value_type, (*path, "element"), is_folded)
    elif isinstance(column, MapType) and pa.types.is_map(kind):
        yield from _of_column(column.value_type, kind.item_type, (*path, "value"), is_folded)
    elif isinstance(column, IntegerType) and kind == pa.int64():
        yield Change(path, widen=LongType())
    elif isinstance(column, FloatType) and kind == pa.float64():
        yield Change(path, widen=DoubleType())
    elif isinstance(column, DecimalType) and _has_more_digits(kind, column):
        yield Change(path, widen=DecimalType(kind.precision, kind.scale))


def _has_more_digits(kind: Any, column: DecimalType) -> bool:
    return bool(pa.types.is_decimal(kind) and kind.scale == column.scale and kind.precision > column.precision)


def _key(name: str, is_folded: bool) -> str:  # noqa: FBT001
    return name.lower() if is_folded else name


def iceberg_type(kind: Any, path: str) -> IcebergType:
    """The type of a new column; all within it is optional. Raises ShapeError where Iceberg has none."""
    schema = created(pa.struct([pa.field("value", kind)]), path=path, is_optional=True)
    made: IcebergType = schema.fields[0].field_type
    return made


def created(records: Any, *, path: str = "value", is_optional: bool = False) -> Schema:
    """The schema of a table that is made for a struct column; its field ids are given anew by the catalogue."""
    try:
        return Schema(*_Numbered(is_optional).struct(records).fields)
    except KeyError as error:
        raise ShapeError(RefusalReason.WRONG_TYPE, f"{path}: Iceberg has no such type: {error}") from error


class _Numbered:
    """Iceberg types of Arrow's, with ids in the order in which they are met."""

    def __init__(self, is_optional: bool) -> None:  # noqa: FBT001
        self._is_optional = is_optional
        self._last = 0

    def struct(self, kind: Any) -> StructType:
        fields = [(self._next(), field) for field in kind if not pa.types.is_null(field.type)]
        return StructType(
            *(
                NestedField(number, field.name, self._type(field.type), required=self._is_required(field))
                for number, field in fields
            )
        )

    def _type(self, kind: Any) -> IcebergType:
        if pa.types.is_struct(kind):
            return self.struct(kind)
        if pa.types.is_list(kind):
            return ListType(self._next(), self._type(kind.value_type), element_required=False)
        if pa.types.is_map(kind):
            key, value = self._next(), self._next()
            return MapType(key, self._type(kind.key_type), value, self._type(kind.item_type), value_required=False)
        return _primitive(kind)

    def _is_required(self, field: Any) -> bool:
        return not field.nullable and not self._is_optional

    def _next(self) -> int:
        self._last += 1
        return self._last


_PRIMITIVES: dict[Any, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int8(): IntegerType(),
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.time32("ms"): TimeType(),
    pa.time64("us"): TimeType(),
    pa.timestamp("ms"): TimestampType(),
    pa.timestamp("us"): TimestampType(),
    pa.timestamp("ms", "UTC"): TimestamptzType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
}


def _primitive(kind: Any) -> IcebergType:
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    return _PRIMITIVES[kind]
