"""What values of one schema are: the type of their column, their Avro schema, and Connect's view of it.

For sinks that write columns (files, Iceberg) and for `Sql`. Values that come as JSON with a schema are read into such
columns here.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from service.sinks.avro_columns import AvroShapeError, avro_shape
from service.sinks.batch import Form, RefusalReason, ValueType
from service.sinks.schemas import (
    DATE,
    DECIMAL,
    MISFITS,
    NOT_OPTIONAL,
    TIME,
    TIMESTAMP,
    Kind,
    Misfit,
    Schema,
    SchemaUnreadable,
    floating,
    schema_of,
    unscaled,
)

_DECIMAL_DIGITS = 38
_MISFITS = (*MISFITS, pa.ArrowException)
_TYPES: Mapping[Kind, tuple[Any, Any]] = {
    Kind.INT8: (pa.int8(), {"type": "int", "connect.type": "int8"}),
    Kind.INT16: (pa.int16(), {"type": "int", "connect.type": "int16"}),
    Kind.INT32: (pa.int32(), "int"),
    Kind.INT64: (pa.int64(), "long"),
    Kind.FLOAT32: (pa.float32(), "float"),
    Kind.FLOAT64: (pa.float64(), "double"),
    Kind.BOOLEAN: (pa.bool_(), "boolean"),
    Kind.STRING: (pa.string(), "string"),
    Kind.BYTES: (pa.binary(), "bytes"),
}
_LOGICAL: Mapping[tuple[str | None, Kind], tuple[Any, Any]] = {
    (DATE, Kind.INT32): (pa.date32(), {"type": "int", "logicalType": "date"}),
    (TIME, Kind.INT32): (pa.time32("ms"), {"type": "int", "logicalType": "time-millis"}),
    (TIMESTAMP, Kind.INT64): (pa.timestamp("ms", "UTC"), {"type": "long", "logicalType": "timestamp-millis"}),
}


class ShapeError(Exception):
    """Values that no file of the format holds: a reason for metrics, and a sentence."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        """``reason``: as dead letters tell it."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Shape:
    """Of the values of one file."""

    kind: ValueType
    type: Any
    """Of the column that is written."""
    avro: str | None = None
    """Avro schema; None for texts and bytes that are written as they come."""
    schema: Schema | None = None
    version: int | None = None
    """Of the schema, where it says one."""

    def text(self) -> str:
        """To be read by `shape_from`."""
        return json.dumps([self.kind.form, self.kind.schema])


NO_SHAPE = Shape(ValueType(Form.TEXT), pa.string())
"""Of files whose lines are texts, whatever the values' schemas are."""


def shape_from(text: str, file_format: str) -> Shape:
    """The shape that was written by `Shape.text`."""
    form, schema = json.loads(text)
    return shape_of(ValueType(Form(form), schema), file_format)


@lru_cache(maxsize=1024)
def shape_of(kind: ValueType, file_format: str) -> Shape:
    """The shape of values in a file of a format. Raises ShapeError."""
    if file_format in {"json", "string"}:
        return NO_SHAPE
    if kind.form in {Form.TEXT, Form.BYTES}:
        if file_format != "avro":
            message = (
                f"values without fields make no {file_format} file: use AvroConverter, or JsonConverter with schemas"
            )
            raise ShapeError(RefusalReason.WRONG_TYPE, message)
        is_text = kind.form is Form.TEXT
        return Shape(kind, pa.string() if is_text else pa.binary(), '"string"' if is_text else '"bytes"')
    if kind.schema is None:
        message = "the value has no schema: use AvroConverter, or JsonConverter with schemas.enable=true"
        raise ShapeError(RefusalReason.NO_SCHEMA, message)
    try:
        shape = _with_schema(kind, kind.schema)
    except (SchemaUnreadable, AvroShapeError) as error:
        raise ShapeError(RefusalReason.NO_SCHEMA, str(error)) from error
    if file_format != "avro" and not (pa.types.is_struct(shape.type) and shape.type.num_fields):
        message = f"only structs with fields make {file_format} files"
        raise ShapeError(RefusalReason.WRONG_TYPE, message)
    return shape


def _with_schema(kind: ValueType, text: str) -> Shape:
    document, schema = json.loads(text), schema_of(kind)
    if schema is None:
        raise SchemaUnreadable("no schema")
    if kind.form is Form.RECORD:
        version = document.get("connect.version") if isinstance(document, dict) else None
        return Shape(kind, avro_shape(text).type, text, schema, _version(version))
    return Shape(kind, _arrow(schema), json.dumps(_Avro().of(schema)), schema, _version(document.get("version")))


def _version(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _arrow(schema: Schema) -> Any:
    if schema.name == DECIMAL and schema.kind is Kind.BYTES:
        return _decimal_type(schema.parameters)
    if schema.kind is Kind.STRUCT:
        fields = schema.fields.items()
        return pa.struct([pa.field(name, _arrow(child), nullable=child.is_optional) for name, child in fields])
    if schema.kind in {Kind.ARRAY, Kind.MAP} and schema.values is not None:
        if schema.kind is Kind.ARRAY:
            return pa.list_(_arrow(schema.values))
        if schema.keys is not None and schema.keys.kind is Kind.STRING:
            return pa.map_(pa.string(), _arrow(schema.values))
        raise SchemaUnreadable("a map whose keys are no strings")
    return (_LOGICAL.get((schema.name, schema.kind)) or _TYPES[schema.kind])[0]


def _decimal_type(parameters: Mapping[str, str]) -> Any:
    """Of at least the digits that the scale needs. Raises SchemaUnreadable.

    A scale that Arrow takes and a file's format does not, as one below 0, must not come to its writer: ORC's ends the
    process.
    """
    try:
        digits, scale = int(parameters.get("connect.decimal.precision", _DECIMAL_DIGITS)), int(parameters["scale"])
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaUnreadable("a Decimal without a scale, or with a precision that is no number") from error
    if not 0 <= scale <= _DECIMAL_DIGITS:
        message = (
            f"a Decimal of scale {scale}, and columns have room for 0 to {_DECIMAL_DIGITS} digits behind the point"
        )
        raise SchemaUnreadable(message)
    return pa.decimal128(min(max(digits, scale, 1), _DECIMAL_DIGITS), scale)


class _Avro:
    """Avro schemas of Connect's, as Confluent's AvroData writes them: an optional value is null or the value."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def of(self, schema: Schema) -> Any:
        made = self._plain(schema)
        return ["null", made] if schema.is_optional else made

    def _plain(self, schema: Schema) -> Any:
        if schema.name == DECIMAL and schema.kind is Kind.BYTES:
            kind = _arrow(schema)
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        if schema.kind is Kind.STRUCT:
            fields = [{"name": name, "type": self.of(child)} for name, child in schema.fields.items()]
            return {"type": "record", "name": self._name(schema), "fields": fields}
        if schema.values is not None:
            items = "items" if schema.kind is Kind.ARRAY else "values"
            return {"type": schema.kind.lower(), items: self.of(schema.values)}
        return (_LOGICAL.get((schema.name, schema.kind)) or _TYPES[schema.kind])[1]

    def _name(self, schema: Schema) -> str:
        """One name for each record, though Connect may use one for several structs."""
        wanted = schema.name or "ConnectDefault"
        parts = ["".join(sign if sign.isalnum() or sign == "_" else "_" for sign in part) for part in wanted.split(".")]
        name = ".".join(f"_{part}" if not part or part[0].isdigit() else part for part in parts)
        if name in self._names:
            name = f"{name}{len(self._names)}"
        self._names.add(name)
        return name


def field_of(values: Any, path: str) -> Any:
    """The values of a field; a dot leads into a struct. Raises ShapeError where there is none of the name."""
    column = values
    for name in path.split("."):
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            raise ShapeError(RefusalReason.MISSING_FIELD, f"the value has no field '{path}'")
        column = column.flatten()[column.type.get_field_index(name)]
    return column


def mask_of(misfits: Mapping[int, str], count: int) -> npt.NDArray[np.bool_]:
    """The rows that are not of their schema, of so many."""
    mask = np.zeros(count, dtype=bool)
    mask[list(misfits)] = True
    return mask


def column_of_json(texts: Any, shape: Shape) -> tuple[Any, dict[int, str]]:
    """Payloads of JSON as a column of the shape's type, and for those that are not of their schema (null there) why.

    Arrow reads them where it reads what Connect reads; all of a column are read singly where one of it is odd.
    """
    schema = shape.schema
    if schema is not None and _is_plain(schema) and not texts.null_count:
        try:
            return _read_at_once(texts, shape), {}
        except (pa.ArrowException, ValueError):
            pass
    misfits: dict[int, str] = {}
    made: list[Any] = []
    for row, text in enumerate(texts.to_pylist()):
        value = None
        try:
            value = None if text is None or schema is None else _value(json.loads(text, parse_float=Decimal), schema)
            pa.array([value], shape.type)
        except Misfit as error:
            misfits[row] = str(error)
        except _MISFITS:
            misfits[row] = str(_beyond(value, shape.type, ""))
            value = None
        made.append(value)
    return pa.array(made, shape.type), misfits


def _beyond(value: Any, kind: Any, path: str) -> Misfit:
    """Which value of a struct Arrow does not take for its type."""
    for field in kind if pa.types.is_struct(kind) and isinstance(value, dict) else ():
        try:
            pa.array([value[field.name]], field.type)
        except _MISFITS:
            return _beyond(value[field.name], field.type, f"{path}.{field.name}" if path else field.name)
    return Misfit(path, f"beyond what its schema says, {kind}" if path else "not of its schema")


def _is_plain(schema: Schema) -> bool:
    """Whether Arrow's reader of JSON makes of it what Connect does: structs of numbers and texts, without defaults."""
    if schema.kind not in {Kind.STRUCT, Kind.INT32, Kind.INT64, Kind.FLOAT64, Kind.BOOLEAN, Kind.STRING}:
        return False
    return schema.default is None and all(_is_plain(child) for child in schema.fields.values())


def _read_at_once(texts: Any, shape: Shape) -> Any:
    """All values as lines of JSON. Raises ValueError and ArrowException for what is to be looked at singly."""
    joined = "\n".join(texts.to_pylist())
    if joined.count("\n") != len(texts) - 1:
        raise ValueError("line ends in values")
    options = pj.ParseOptions(explicit_schema=pa.schema(_raw(shape.type)), unexpected_field_behavior="error")
    read = pj.ReadOptions(use_threads=False, block_size=len(joined) * 4 + 1024)
    table = pj.read_json(io.BytesIO(joined.encode()), read_options=read, parse_options=options)
    if table.num_rows != len(texts):
        raise ValueError("blank values")
    column: Any = table.to_struct_array().combine_chunks()
    column = column.cast(shape.type)
    column.validate(full=True)
    _demand_values(column)
    _demand_numbers(column)
    return column


def _raw(kind: Any) -> list[pa.Field[Any]]:
    """Its fields as Arrow's reader knows them: dates and times are numbers, and any may be missing."""
    return [pa.field(field.name, _raw_type(field.type)) for field in kind]


def _raw_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct(_raw(kind))
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _demand_values(column: Any) -> None:
    for child, field in zip(column.flatten(), column.type, strict=True):
        if not field.nullable and child.null_count > column.null_count:
            raise ValueError(f"{field.name} is missing")
        if pa.types.is_struct(field.type):
            _demand_values(child)


def _demand_numbers(column: Any) -> None:
    """Arrow takes whole numbers beyond all doubles for infinite ones; infinities have words of their own in JSON."""
    for child in column.flatten():
        if pa.types.is_struct(child.type):
            _demand_numbers(child)
        elif pa.types.is_floating(child.type) and pc.any(pc.is_inf(child)).as_py():
            raise ValueError("a number is out of range")


def _value(value: Any, schema: Schema, path: str = "") -> Any:
    """What Arrow takes for a value of JSON. Raises Misfit."""
    value = schema.default if value is None else value
    if value is None:
        if not schema.is_optional:
            raise Misfit(path, NOT_OPTIONAL)
        return None
    try:
        return _there(value, schema, path)
    except Misfit:
        raise
    except _MISFITS as error:
        raise Misfit(path, f"not of its schema, {schema.word}") from error


def _there(value: Any, schema: Schema, path: str) -> Any:  # noqa: PLR0911 - one line a type
    """Of a value that is there. Raises one of `_MISFITS`."""
    if schema.name == DECIMAL and schema.kind is Kind.BYTES:
        return _decimal(value, int(schema.parameters["scale"]))
    if schema.kind is Kind.STRUCT:
        begin = f"{path}." if path else ""
        return {name: _value(value.get(name), child, begin + name) for name, child in schema.fields.items()}
    if schema.kind is Kind.ARRAY and schema.values is not None:
        return [_value(item, schema.values, f"{path}[{at}]") for at, item in enumerate(_of(list, value))]
    if schema.kind is Kind.MAP and schema.values is not None:
        # Keys are content, which no message shows.
        return [(_of(str, key), _value(item, schema.values, f"{path}{{}}")) for key, item in value.items()]
    if schema.kind is Kind.BYTES:
        return base64.b64decode(value, validate=True)
    if schema.kind in {Kind.FLOAT32, Kind.FLOAT64}:
        return floating(value, is_single=schema.kind is Kind.FLOAT32)
    if schema.kind is Kind.STRING:
        return _of(str, value)
    return _of(bool if schema.kind is Kind.BOOLEAN else int, value)


def _of(kind: type, value: Any) -> Any:
    """The value, of just this type: a boolean is no number here. Raises TypeError."""
    if type(value) is not kind:
        raise TypeError(kind.__name__)
    return value


def _decimal(value: Any, scale: int) -> Decimal:
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return Decimal(value)
    return unscaled(value, scale)
