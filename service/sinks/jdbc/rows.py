"""From a batch to the rows of a table: columns of keys and of values, typed by the records' schema.

What ``pk.mode`` and ``pk.fields`` mean is Confluent's
(https://docs.confluent.io/kafka-connectors/jdbc/current/sink-connector/sink_config_options.html). Lists, maps and
structs, for which its connector has no columns, are JSON texts.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import Form, RefusalReason, Selection, SinkBatch, ValueType
from service.sinks.jdbc.config import KAFKA_FIELDS, JdbcSinkConfig
from service.sinks.json_columns import json_texts
from service.sinks.schemas import (
    DATE,
    DECIMAL,
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

DECIMAL_DIGITS_MAX = 76
_NESTED = {Kind.STRUCT, Kind.ARRAY, Kind.MAP}
_TYPES: dict[Kind, Any] = {
    Kind.INT8: pa.int8(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
}
_LOGICAL: dict[str | None, tuple[Any, Any]] = {
    DATE: (pa.int32(), pa.date32()),
    TIME: (pa.int32(), pa.time32("ms")),
    TIMESTAMP: (pa.int64(), pa.timestamp("ms", "UTC")),
}
"""What JsonConverter writes of a logical type, and what it is."""


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """One field of all records of a batch."""

    name: str
    values: Any
    """An Arrow array; nested values are JSON texts."""
    is_optional: bool
    is_json: bool = False
    default: Any = None
    """The schema's default of the field, an Arrow array of it alone; None where there is none."""

    def taken(self, rows: npt.NDArray[np.int64]) -> FieldColumn:
        """Some rows."""
        return replace(self, values=self.values.take(pa.array(rows)))


@dataclass(frozen=True, slots=True)
class Rows:
    """What is written of a batch to one table, in order."""

    numbers: npt.NDArray[np.int64]
    """The rows of the batch."""
    keys: tuple[FieldColumn, ...]
    values: tuple[FieldColumn, ...]
    is_delete: npt.NDArray[np.bool_]
    """Rows of which only the key counts."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.numbers)

    @property
    def columns(self) -> tuple[FieldColumn, ...]:
        """Of the key first."""
        return (*self.keys, *self.values)

    def taken(self, rows: npt.NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        return Rows(
            self.numbers[rows],
            tuple(column.taken(rows) for column in self.keys),
            tuple(column.taken(rows) for column in self.values),
            self.is_delete[rows],
        )

    def last_of_keys(self) -> npt.NDArray[np.int64]:
        """Where the last row of each key is, ascending."""
        codes = np.zeros(len(self), np.int64)
        for column in self.keys:
            own = column.values.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
            _, codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)
        _, places = np.unique(codes[::-1], return_index=True)
        return np.sort(len(self) - 1 - places)


def rows_of(batch: SinkBatch, config: JdbcSinkConfig, found: Selection) -> Rows:
    """The rows of a batch; records that make none are refused in ``found``."""
    is_null = _mask(_whole(batch, "value").is_null())
    if not config.delete_enabled:
        message = "the value is null, which is a row to be deleted only with delete.enabled=true and pk.mode=record_key"
        found.refuse(is_null, RefusalReason.NULL_VALUE, message)
    is_replaced = config.replace_null_with_default
    values = _fields(batch, "value", batch.value, found, is_there=~is_null, is_replaced=is_replaced)
    keys = _keys(batch, config, values, found)
    names = {column.name for column in keys}
    kept = [name for name in values if name not in names]
    if config.fields_whitelist:
        kept = [name for name in kept if name in config.fields_whitelist]
    for column in keys:
        message = f"column {column.name} of the primary key is null"
        found.refuse(_mask(column.values.is_null()), RefusalReason.UNUSABLE_ID, message)
    numbers = np.flatnonzero(found.is_sent)
    rows = Rows(np.arange(len(batch)), keys, tuple(values[name] for name in kept), is_null)
    return rows if len(numbers) == len(batch) else rows.taken(numbers)


def _keys(
    batch: SinkBatch, config: JdbcSinkConfig, values: Mapping[str, FieldColumn], found: Selection
) -> tuple[FieldColumn, ...]:
    mode, names = config.pk_mode, config.pk_fields
    if mode == "none":
        return ()
    if mode == "kafka":
        places = ("original_topic", "partition", "offset")
        return tuple(
            FieldColumn(name, _whole(batch, place), is_optional=False)
            for name, place in zip(names or KAFKA_FIELDS, places, strict=True)
        )
    fields = values
    if mode == "record_key":
        keys = _whole(batch, "key")
        found.refuse(_mask(keys.is_null()), RefusalReason.UNUSABLE_ID, "the key is null, and is the primary key")
        single = _single(keys, batch.key, names, found)
        if single is not None:
            return (single,)
        is_there, is_replaced = _mask(keys.is_valid()), config.replace_null_with_default
        fields = _fields(batch, "key", batch.key, found, is_there=is_there, is_replaced=is_replaced)
    missing = [name for name in names if name not in fields] or ([] if fields else ["any field"])
    if missing:
        message = f"the primary key (pk.mode={mode}, pk.fields) needs {missing[0]}, which the record has not"
        found.refuse(np.ones(len(batch), dtype=bool), RefusalReason.MISSING_FIELD, message)
        return ()
    return tuple(fields[name] for name in names or fields)


def _single(keys: Any, kind: ValueType, names: Sequence[str], found: Selection) -> FieldColumn | None:
    """A key that is one value, whose name ``pk.fields`` gives; None where it has fields."""
    name = names[0] if names else "key"
    if kind.form in {Form.TEXT, Form.BYTES}:
        return FieldColumn(name, keys, is_optional=False)
    if kind.form is Form.RECORD:
        return None if pa.types.is_struct(keys.type) else FieldColumn(name, keys, is_optional=False)
    schema = _schema(kind)
    if schema is not None:
        if schema.kind is Kind.STRUCT:
            return None
        made, unfit = _column(_documents(keys, found), schema)
        return None if unfit else FieldColumn(name, made, is_optional=False)
    parsed = _documents(keys, found)
    kinds = {type(each) for each in parsed if each is not None}
    if kinds <= {str} or kinds == {int}:
        made, wrong = _made(parsed, None, pa.int64() if kinds == {int} else pa.string())
        found.refuse(_at(wrong, len(parsed)), RefusalReason.OUT_OF_RANGE, "the key is a number that is no INT64")
        return FieldColumn(name, made, is_optional=False)
    return None


def _documents(texts: Any, found: Selection) -> list[Any]:
    """Values of JSON, each read once; None for a null, and where one has a number that is out of every type's range."""
    try:
        return [None if text is None else msgspec.json.decode(text) for text in texts.to_pylist()]
    except msgspec.ValidationError:
        pass
    made: list[Any] = []
    wrong: list[int] = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            made.append(None if text is None else msgspec.json.decode(text))
        except msgspec.ValidationError:
            made.append(None)
            wrong.append(row)
    found.refuse(_at(wrong, len(made)), RefusalReason.OUT_OF_RANGE, "a number is beyond what any type holds")
    return made


def _at(rows: Sequence[int], count: int) -> npt.NDArray[np.bool_]:
    mask = np.zeros(count, dtype=bool)
    mask[list(rows)] = True
    return mask


def _schema(kind: ValueType) -> Schema | None:
    try:
        return schema_of(kind)
    except SchemaUnreadable:
        return None


def _fields(
    batch: SinkBatch,
    side: str,
    kind: ValueType,
    found: Selection,
    *,
    is_there: npt.NDArray[np.bool_],
    is_replaced: bool,
) -> dict[str, FieldColumn]:
    """Fields of the structs of a side; none, and every record refused, where there are no structs."""
    column = _whole(batch, side)
    schema = _schema(kind)
    if kind.form is Form.RECORD and pa.types.is_struct(column.type):
        return _struct_fields(column, schema, found, is_replaced=is_replaced)
    if kind.form is Form.JSON and schema is not None and schema.kind is Kind.STRUCT:
        return _json_fields(column, schema, found, is_replaced=is_replaced)
    message = f"the {side} is no struct with a schema: use AvroConverter, or JsonConverter with schemas.enable"
    found.refuse(is_there, RefusalReason.NO_SCHEMA, message)
    return {}


def _struct_fields(
    column: Any, schema: Schema | None, found: Selection, *, is_replaced: bool
) -> dict[str, FieldColumn]:
    """Fields of what Avro brings. Nulls of a field become its default where they are to be replaced."""
    fields: dict[str, FieldColumn] = {}
    for place, values in enumerate(column.flatten()):
        field = column.type[place]
        child = None if schema is None else schema.fields.get(field.name)
        kind = None if child is None else child.kind
        is_nested = pa.types.is_nested(field.type)
        made = json_texts(values) if is_nested else values
        if kind in {Kind.INT8, Kind.INT16} and made.type == pa.int32():
            made = made.cast(_TYPES[kind], safe=False) if _fits(made, _TYPES[kind]) else made
        elif pa.types.is_fixed_size_binary(made.type):
            made = made.cast(pa.binary())
        elif pa.types.is_null(made.type):
            made = made.cast(pa.string())
        default = None if child is None or child.default is None else _default_of_avro(child, made.type)
        if is_replaced and made.null_count and child is not None and child.default is not None:
            is_null = pc.and_(column.is_valid(), made.is_null())
            if default is None:
                message = f"field {field.name} is null, and its default cannot be put in its place here"
                found.refuse(_mask(is_null), RefusalReason.UNUSABLE_DEFAULT, message)
            else:
                made = pc.if_else(is_null, default[0], made)
        fields[field.name] = FieldColumn(field.name, made, field.nullable, is_nested, default)
    return fields


def _default_of_avro(schema: Schema, kind: Any) -> Any:
    """The default as an array of one value; None where it is no value of the column's type.

    Avro writes bytes, and so decimals, as a text of their code points
    (https://avro.apache.org/docs/1.12.0/specification/#schema-record).
    """
    default = schema.default
    try:
        if schema.kind is Kind.BYTES:
            default = base64.b64encode(str(default).encode("latin-1")).decode()
        made, wrong = _column([default], schema)
        return None if wrong else made.cast(kind)
    except (pa.ArrowException, UnicodeEncodeError):
        return None


def _fits(values: Any, kind: Any) -> bool:
    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _json_fields(column: Any, schema: Schema, found: Selection, *, is_replaced: bool) -> dict[str, FieldColumn]:
    """Payloads of JsonConverter, each read once; a value that is not of its schema refuses its record.

    It puts defaults in the place of nulls by itself, unless it is told not to; then the sink's own key counts.
    """
    documents = _documents(column, found)
    unfit = np.array([each is not None and not isinstance(each, dict) for each in documents], dtype=bool)
    found.refuse(unfit, RefusalReason.WRONG_TYPE, str(Misfit("", f"not of its schema, {schema.word}")))
    fields: dict[str, FieldColumn] = {}
    for name, child in schema.fields.items():
        values = [each.get(name) if isinstance(each, dict) else None for each in documents]
        default = child.kept_default if child.default is None else child.default
        if default is not None and (is_replaced or child.default is not None):
            values = [default if each is None else each for each in values]
        made, wrong = _column(values, child)
        unfit = _at(wrong, len(documents))
        found.refuse(unfit, RefusalReason.WRONG_TYPE, str(Misfit(name, f"not of its schema, {child.word}")))
        if not child.is_optional:
            is_missing = np.array([each is None for each in values]) & np.array(
                [each is not None for each in documents]
            )
            found.refuse(is_missing, RefusalReason.MISSING_FIELD, str(Misfit(name, NOT_OPTIONAL)))
        defaults, wrong = (None, []) if default is None else _column([default], child)
        is_nested = child.kind in _NESTED
        fields[name] = FieldColumn(name, made, child.is_optional, is_nested, None if wrong else defaults)
    return fields


def _column(values: list[Any], schema: Schema) -> tuple[Any, list[int]]:
    """A column of what JsonConverter writes, null where it does not fit, and which rows these are."""
    if schema.kind in _NESTED:
        return _made(values, lambda each: msgspec.json.encode(each).decode(), pa.string())
    if schema.name == DECIMAL and schema.kind is Kind.BYTES:
        scale = int(schema.parameters.get("scale", "0"))
        if abs(scale) > DECIMAL_DIGITS_MAX:
            # Arrow would take them, and nobody reads them of it.
            return pa.nulls(len(values), pa.decimal256(DECIMAL_DIGITS_MAX, 0)), [
                row for row, each in enumerate(values) if each is not None
            ]
        return _made(values, lambda each: _decimal(each, scale), pa.decimal256(DECIMAL_DIGITS_MAX, scale))
    if schema.kind is Kind.BYTES:
        return _made(values, lambda each: base64.b64decode(each, validate=True), pa.binary())
    written, meant = _LOGICAL.get(schema.name, (_TYPES[schema.kind], None))
    if pa.types.is_floating(written):
        return _made(values, partial(floating, is_single=schema.kind is Kind.FLOAT32), written)
    is_plain = not pa.types.is_integer(written) or all(type(each) in {int, type(None)} for each in values)
    made, wrong = _made(values, None if is_plain else _integer, written)
    return (made if meant is None else made.cast(meant)), wrong


def _made(values: list[Any], change: Callable[[Any], Any] | None, kind: Any) -> tuple[Any, list[int]]:
    try:
        changed = values if change is None else [None if each is None else change(each) for each in values]
        return pa.array(changed, kind), []
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        made: list[Any] = []
        wrong: list[int] = []
        for row, each in enumerate(values):
            try:
                made.append(pa.scalar(None if each is None else each if change is None else change(each), kind))
            except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
                made.append(pa.scalar(None, kind))
                wrong.append(row)
        return pa.array([each.as_py() for each in made], kind), wrong


def _integer(value: Any) -> int:
    """Arrow would cut the fraction."""
    if type(value) is not int:
        raise TypeError(value)
    return value


def _decimal(value: Any, scale: int) -> Decimal:
    if not isinstance(value, str):
        return Decimal(str(value)) if isinstance(value, (int, float)) else Decimal(value)
    return unscaled(value, scale)


def _whole(batch: SinkBatch, name: str) -> Any:
    column: Any = batch.records.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _mask(column: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
