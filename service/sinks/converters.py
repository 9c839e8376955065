"""Converters of a sink: from the bytes of a topic to columns, with a verdict on each record that is none.

String and bytes cost nothing for each record. Avro is decoded in columns and JSON looked at one by one, in a thread.
Nothing is replaced: text that is no UTF-8 is refused, where Java's StringConverter would put U+FFFD.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.config.converters import Converter
from service.registry.client import RegistryClient
from service.registry.errors import RegistryFatal, SchemaNotFound, UnusableSchema
from service.sinks.avro_columns import AvroShape, AvroShapeError, avro_shape
from service.sinks.avro_decoding import nothing, read_at_once
from service.sinks.avro_walk import NO_ID, Frames
from service.sinks.batch import Form, RefusalReason, ValueType
from service.sinks.readings import UNKNOWN, Column, Reading, Rows, filled, of_one_type
from service.sinks.schemas import KEPT_DEFAULT
from spark_batch.avro_types import Narrow, Primitive
from spark_batch.number_forms import NumberForm
from spark_batch.plan import ConverterKind

_THREADS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="sink-decode")
_INLINE_RECORDS_MAX = 100
"""For fewer records a thread costs more than it saves."""
_AT_ONCE_RECORDS_MIN = 64
"""For fewer records of a schema its walk costs more than reading them one by one."""
_ENVELOPE_MESSAGE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
T = TypeVar("T")
Refused = dict[int, tuple[str, str]]
DEPTH_MAX = 250
"""Levels of arrays and objects that a JSON value may have; sinks walk through them by recursion."""
_TOO_DEEP = (RefusalReason.TOO_DEEP, f"nested more than {DEPTH_MAX} levels deep")


class ColumnReader(Protocol):
    """Reads the keys, or the values, of polls by one converter."""

    async def read(self, column: Column) -> Reading:
        """Decode a binary column; a row that cannot be decoded is refused in the result.

        Raises RegistryRetriable and RegistryFatal, which say nothing of a record.
        """


def column_reader(converter: Converter, registry: RegistryClient | None) -> ColumnReader:
    """The reader of a converter; ``registry`` is there for Avro."""
    kind = converter.spec.kind
    if kind is ConverterKind.BYTES:
        return BytesReader()
    if kind is ConverterKind.STRING:
        return TextReader()
    if kind.number is not None:
        return NumberReader(kind.number)
    if kind is ConverterKind.JSON:
        return (
            EnvelopeReader(is_null_kept=converter.is_null_kept) if converter.spec.is_schema_enveloped else JsonReader()
        )
    if registry is None:
        message = "the Avro converter needs a schema registry"
        raise RegistryFatal(message)
    return AvroReader(registry)


class BytesReader:
    """Leaves bytes as they are: Connect's ByteArrayConverter."""

    async def read(self, column: Column) -> Reading:
        """Give the column as it is."""
        return of_one_type(column, ValueType(Form.BYTES))


class TextReader:
    """Reads UTF-8 text: Connect's StringConverter, but that it refuses what is none."""

    async def read(self, column: Column) -> Reading:
        """Decode to a column of text; what is no UTF-8 is refused."""
        values, refused = as_text(column)
        return of_one_type(values, ValueType(Form.TEXT), refused)


class NumberReader:
    """Reads big-endian numbers or booleans: Connect's IntegerConverter and its siblings."""

    def __init__(self, form: NumberForm) -> None:
        """``form``: what each value is."""
        self._form = form

    async def read(self, column: Column) -> Reading:
        """Decode to one typed column; what has another length, or is no boolean, is refused."""
        values, refused = as_numbers(column, self._form)
        return of_one_type(values, ValueType(Form.RECORD, self._form.avro), refused)


class JsonReader:
    """JsonConverter without schemas: texts that are one JSON value each."""

    async def read(self, column: Column) -> Reading:
        """Decode to a column of JSON texts, unchanged; what is not one JSON value is refused."""
        values, refused = as_text(column)
        malformed = await in_thread(lambda: _malformed(values))
        return of_one_type(_without(values, malformed), ValueType(Form.JSON), refused | malformed)


class EnvelopeReader:
    """JsonConverter with schemas: the payload's text, its schema at hand."""

    def __init__(self, *, is_null_kept: bool = False) -> None:
        """``is_null_kept``: sinks hear of no default of what may be null, since they put it in a null's place."""
        self._is_null_kept = is_null_kept

    async def read(self, column: Column) -> Reading:
        """Decode to columns of payloads, unchanged JSON texts, one column for each schema."""
        values, refused = as_text(column)
        found = await in_thread(lambda: _unwrapped(values, refused))
        if not self._is_null_kept:
            return found
        types = (replace(each, schema=each.schema and without_null_defaults(each.schema)) for each in found.types)
        return replace(found, types=tuple(types))


class AvroReader:
    """AvroConverter: typed columns, one type for each schema the records were written with."""

    def __init__(self, registry: RegistryClient) -> None:
        """Ask ``registry`` for schemas, once each; for ids that it does not know, at each read."""
        self._registry = registry
        self._shapes: dict[int, AvroShape | str] = {}

    async def read(self, column: Column) -> Reading:
        """Decode to typed columns, one for each schema id; asks the registry for schemas that are new."""
        frames = Frames(column)
        unknown: dict[int, AvroShape | str] = {}
        for schema_id in set(np.unique(frames.ids).tolist()) - {NO_ID} - self._shapes.keys():
            try:
                self._shapes[schema_id] = await self._shape(schema_id)
            except SchemaNotFound as error:
                unknown[schema_id] = f"schema id {schema_id}: {error}"
        shapes = self._shapes | unknown
        return await in_thread(lambda: _framed_reading(frames, shapes))

    async def _shape(self, schema_id: int) -> AvroShape | str:
        """The schema of an id, or why records that name it are refused."""
        try:
            return avro_shape(await self._registry.by_id(schema_id))
        except (UnusableSchema, AvroShapeError) as error:
            return f"schema id {schema_id}: {error}"


def avro_reading(column: Column, shapes: Mapping[int, AvroShape | str]) -> Reading:
    """What framed records are, by the shapes of their schema ids; those of a shape that is a text are refused by it."""
    return _framed_reading(Frames(column), shapes)


def _framed_reading(frames: Frames, shapes: Mapping[int, AvroShape | str]) -> Reading:
    strangers = np.flatnonzero(frames.is_there & (frames.ids == NO_ID))
    refused: Refused = {}
    refused.update(dict.fromkeys(strangers.tolist(), (RefusalReason.NOT_AVRO, _NOT_FRAMED)))
    groups, ids = frames.numbered()
    if not ids:
        return of_one_type(pa.nulls(len(frames)), _NO_TYPE, refused)
    found = [(schema_id, shapes[schema_id]) for schema_id in ids]
    columns = []
    for number, (schema_id, shape) in enumerate(found):
        rows = np.flatnonzero(groups == number)
        columns.append(_column(shape, schema_id, frames, rows, refused=refused))
    return Reading(groups, tuple(_value_type(shape) for _, shape in found), tuple(columns), refused)


_NOT_FRAMED = "not in Confluent's framing: a zero byte and four bytes of schema id are expected"
_NO_TYPE = ValueType(Form.RECORD)


def _value_type(shape: AvroShape | str) -> ValueType:
    return ValueType(Form.RECORD, shape.schema) if isinstance(shape, AvroShape) else _NO_TYPE


def _column(shape: AvroShape | str, schema_id: int, frames: Frames, rows: Rows, *, refused: Refused) -> Column:
    """The values of these rows: of records of the schema, whose neighbours have null; what is refused is told."""
    is_own = frames.ids[rows] == schema_id
    own = rows[is_own]
    if isinstance(shape, str):
        refused.update(dict.fromkeys(own.tolist(), (RefusalReason.NOT_AVRO, shape)))
        return pa.nulls(len(rows))
    column, is_read = nothing(shape.type).slice(1), np.zeros(len(own), bool)
    if shape.read_at_once is not None and len(own) >= _AT_ONCE_RECORDS_MIN:
        column, is_read = read_at_once(shape.read_at_once, frames.bodies(own))
    if is_read.all() and len(own) == len(rows):
        return column
    singles = _one_by_one(shape, schema_id, frames, own[~is_read], refused=refused)
    places = np.full(len(rows), len(column) + len(singles))
    places[is_own] = np.where(is_read, np.arange(len(own)), len(column) + np.cumsum(~is_read) - 1)
    return pa.concat_arrays([column, singles, nothing(shape.type)]).take(places)


def _one_by_one(shape: AvroShape, schema_id: int, frames: Frames, rows: Rows, *, refused: Refused) -> Column:
    """The values of records, each looked at alone; those that are not of the schema, or fit no column, are refused."""
    values: list[object] = [None] * len(rows)
    numbers = rows.tolist()
    for at, body in enumerate(frames.records(rows)):
        try:
            values[at] = shape.read(body)
        except AvroShapeError as error:
            refused[numbers[at]] = (RefusalReason.NOT_AVRO, f"schema id {schema_id}: {error}")
    try:
        return shape.column(values)
    except AvroShapeError:
        for at, row in enumerate(numbers):
            try:
                shape.column([values[at]])
            except AvroShapeError as error:
                values[at] = None
                refused[row] = (RefusalReason.NOT_AVRO, str(error))
    return shape.column(values)


def as_text(column: Column) -> tuple[Column, Refused]:
    """A binary column as text; null and refused where it is no UTF-8."""
    try:
        return column.cast(pa.string()), {}
    except pa.ArrowInvalid:
        pass
    refused: Refused = {}
    texts: list[str | None] = []
    for row, value in enumerate(cast("list[bytes | None]", column.to_pylist())):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            refused[row] = (RefusalReason.INVALID_UTF8, f"not UTF-8 at byte {error.start}")
    return pa.array(texts, pa.string()), refused


def as_numbers(column: Column, form: NumberForm) -> tuple[Column, Refused]:
    """A binary column as what a converter of single numbers reads; null and refused where it is none."""
    lengths: Any = pc.binary_length(cast("Any", column))
    is_whole: Any = pc.fill_null(pc.equal(lengths, pa.scalar(form.size_bytes)), False)  # noqa: FBT003 - a literal
    told = f"Size of data received by {form.deserializer} is not {form.size_bytes}"
    is_wrong = np.asarray(pc.and_not(column.is_valid(), is_whole))
    refused: Refused = {int(row): (RefusalReason.WRONG_TYPE, told) for row in np.flatnonzero(is_wrong)}
    rows = np.flatnonzero(np.asarray(is_whole))
    joined: Any = pc.binary_join(pa.array([column.filter(is_whole)], pa.list_(pa.binary())), b"")
    found = np.frombuffer(joined[0].as_buffer(), form.layout)
    if form.type is Primitive.BOOLEAN:
        is_no_boolean = (found != 0) & (found != 1)
        for row, byte in zip(rows[is_no_boolean].tolist(), found[is_no_boolean].tolist(), strict=True):
            told = f"Unexpected byte received by {form.deserializer}: {byte}"
            refused[row] = (RefusalReason.WRONG_TYPE, told)
        rows, found = rows[~is_no_boolean], found[~is_no_boolean].astype(np.bool_)
    else:
        found = found.astype(found.dtype.newbyteorder("="))
    places = np.full(len(column), len(rows))
    places[rows] = np.arange(len(rows))
    numbers: Any = pa.array(found)
    numbers = numbers.cast(pa.int32()) if form.type == Narrow(16) else numbers
    made: Column = pa.concat_arrays([numbers, pa.nulls(1, numbers.type)]).take(pa.array(places))
    return made, refused


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: msgspec.Raw


_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_NULL = b"null"


_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def _is_too_deep(text: str) -> bool:
    """Whether arrays and objects are nested further than ``DEPTH_MAX``; most texts have not even as many."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = deepest = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        deepest = max(deepest, depth)
    return deepest > DEPTH_MAX


def _malformed(texts: Column) -> Refused:
    refused: Refused = {}
    for row, text in enumerate(cast("list[str | None]", texts.to_pylist())):
        try:
            if text is not None and _is_too_deep(text):
                refused[row] = _TOO_DEEP
            elif text is not None:
                _ANY_JSON.decode(text)
        except msgspec.DecodeError as error:
            refused[row] = (RefusalReason.MALFORMED_JSON, f"not JSON: {error}")
    return refused


def _unwrapped(texts: Column, refused: Refused) -> Reading:
    refused = dict(refused)
    schemas: list[str | None] = []
    payloads: list[str | None] = []
    for row, text in enumerate(cast("list[str | None]", texts.to_pylist())):
        schema = payload = None
        try:
            if text is not None and _is_too_deep(text):
                refused[row] = _TOO_DEEP
            elif text is not None:
                envelope = _ENVELOPE.decode(text)
                schema, payload = bytes(envelope.schema).decode(), _payload(envelope)
        except msgspec.ValidationError:
            refused[row] = (RefusalReason.NO_ENVELOPE, _ENVELOPE_MESSAGE)
        except msgspec.DecodeError as error:
            refused[row] = (RefusalReason.MALFORMED_JSON, f"not JSON: {error}")
        schemas.append(schema)
        payloads.append(payload)
    groups, distinct = _numbered(schemas)
    types = tuple(ValueType(Form.JSON, None if schema == "null" else schema) for schema in distinct)
    columns = tuple(
        pa.array([payload for payload, group in zip(payloads, groups, strict=True) if group == number], pa.string())
        for number in range(max(1, len(distinct)))
    )
    return Reading(groups, types or (ValueType(Form.JSON),), columns, refused)


@lru_cache(maxsize=1024)
def without_null_defaults(schema: str) -> str:
    """A schema of JsonConverter's envelope, the defaults of what may be null set aside; required fields keep theirs."""
    return msgspec.json.encode(_without_null_defaults(msgspec.json.decode(schema))).decode()


def _without_null_defaults(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    is_aside = schema.get("optional") is True
    made = {KEPT_DEFAULT if key == "default" and is_aside else key: text for key, text in schema.items()}
    inner = {key: _without_null_defaults(made[key]) for key in ("keys", "values", "items") if key in made}
    if isinstance(made.get("fields"), list):
        inner["fields"] = [_without_null_defaults(each) for each in made["fields"]]
    return {**made, **inner}


def _payload(envelope: _Envelope) -> str | None:
    """A payload of null is no value, as in Connect."""
    raw = bytes(envelope.payload)
    return None if raw == _NULL else raw.decode()


def _numbered(names: list[Any]) -> tuple[Any, list[Any]]:
    """A number for each distinct name, None going with its neighbours; the names by number."""
    distinct = list(dict.fromkeys(name for name in names if name is not None))
    numbers = {name: number for number, name in enumerate(distinct)}
    return filled(np.array([numbers.get(name, UNKNOWN) for name in names], np.int32)), distinct


def _without(column: Column, refused: Refused) -> Column:
    if not refused:
        return column
    return pa.array([None if row in refused else text for row, text in enumerate(column.to_pylist())], pa.string())


async def in_thread(work: Callable[[], T], *, records: int = _INLINE_RECORDS_MAX) -> T:
    """Do work that looks at each of so many records: beside the event loop, unless they are few."""
    if records < _INLINE_RECORDS_MAX:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
