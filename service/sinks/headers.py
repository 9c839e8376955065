"""Headers of a sink's records as Connect has them: each a value with its schema, as the header converter reads it.

Transformations and most sinks ask headers for their names alone. So they are kept as the bytes that they are, and read
only for a sink that asks, each text once a batch.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_batch.literals.writing import json_text
from spark_batch.number_forms import NUMBER_FORMS
from spark_batch.plan import ConverterKind, ConverterSpec
from spark_batch.transforms.value_parsing import NotFollowedError, parsed_value

CONNECT_HEADERS: Any = pa.list_(pa.struct([("name", pa.string()), ("schema", pa.string()), ("value", pa.string())]))
"""``schema`` and ``value`` are JSON as JsonConverter writes them; no schema: none is known, no value: it is null."""

_Read: TypeAlias = "tuple[str | None, str | None]"
"""Schema and value."""
_STRING, _BYTES = '{"type":"string","optional":true}', '{"type":"bytes","optional":true}'
_NUMBERS = {
    ConverterKind(word): f'{{"type":"{form.connect_type}","optional":true}}' for word, form in NUMBER_FORMS.items()
}
_OF_NULLS = {ConverterKind.STRING: _STRING, ConverterKind.BYTES: _BYTES, **_NUMBERS}
"""The schemas that converters give to a header that is null."""
_SOME_BYTES = '{"type":"bytes","optional":false}'


class _Envelope(msgspec.Struct):
    """As JsonConverter writes a value with its schema."""

    schema: msgspec.Raw = msgspec.Raw(b"null")
    payload: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class HeaderReader:
    """Reads the column ``headers`` of a sink's records by the task's header converter."""

    form: ConverterSpec | None = None
    """None: by SimpleHeaderConverter, which reads what a text looks like."""

    def read(self, headers: pa.ChunkedArray[Any]) -> pa.Array[Any]:
        """A column of CONNECT_HEADERS. What a transformation has made is as it was made, whatever the converter."""
        column: Any = headers.combine_chunks()
        flat: Any = pc.list_flatten(column)
        values: Any = pc.struct_field(flat, "value")
        made = _made(flat)
        is_made = made.is_valid()
        schemas, payloads = _each(pc.if_else(is_made, None, values), self._read)
        if self.form is not None and self.form.kind in _OF_NULLS:
            schemas = pc.fill_null(schemas, _OF_NULLS[self.form.kind])
        if made.null_count < len(made):
            made_schemas, made_payloads = _each(made, _opened)
            schemas, payloads = pc.if_else(is_made, made_schemas, schemas), pc.if_else(is_made, made_payloads, payloads)
        children = [pc.struct_field(flat, "name"), schemas, payloads]
        items = pa.StructArray.from_arrays(cast("Any", children), fields=list(CONNECT_HEADERS.value_type))
        lengths: Any = pc.fill_null(pc.list_value_length(column), 0)
        offsets = np.concatenate(([0], np.cumsum(lengths.to_numpy(zero_copy_only=False)))).astype(np.int32)
        return cast("pa.Array[Any]", pa.ListArray.from_arrays(cast("Any", pa.array(offsets)), items))

    def _read(self, header: bytes) -> _Read:
        if self.form is None:
            return _simple(header)
        if self.form.kind is ConverterKind.STRING:
            return _text(header)
        if self.form.kind is ConverterKind.BYTES:
            return _BYTES, _base64(header)
        if self.form.kind.number is not None:
            return _NUMBERS[self.form.kind], self.form.kind.number.json_text(header)
        return _opened(header) if self.form.is_schema_enveloped else (None, _unless_null(header))


def _made(flat: Any) -> Any:
    """What transformations have made, as bytes."""
    is_known = flat.type.get_field_index("made") >= 0
    return pc.struct_field(flat, "made").cast(pa.binary()) if is_known else pa.nulls(len(flat), pa.binary())


def last_of(headers: pa.ChunkedArray[Any], name: str, *, bytes_max: int) -> pa.ChunkedArray[Any]:
    """Of each record the last header of the name, as a column like the one given; unread, as ``HeaderReader`` takes it.

    An empty list where there is none, and where the last one has more than so many bytes.
    """
    column: Any = headers.combine_chunks()
    flat: Any = pc.list_flatten(column)
    lengths: Any = pc.fill_null(pc.list_value_length(column), 0)
    records = np.repeat(np.arange(len(column)), lengths.to_numpy(zero_copy_only=False))
    is_own: Any = pc.equal(pc.struct_field(flat, "name"), pa.scalar(name))
    rows = np.flatnonzero(is_own.to_numpy(zero_copy_only=False))
    is_last = np.append(np.diff(records[rows]) != 0, np.full(min(1, len(rows)), fill_value=True))
    rows = rows[is_last]
    found = flat.take(pa.array(rows))
    sizes = (pc.fill_null(pc.binary_length(part), 0) for part in (pc.struct_field(found, "value"), _made(found)))
    is_short = np.logical_and.reduce([size.to_numpy(zero_copy_only=False) <= bytes_max for size in sizes])
    counts = np.zeros(len(column), np.int32)
    counts[records[rows[is_short]]] = 1
    offsets: Any = pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))
    return pa.chunked_array([pa.ListArray.from_arrays(offsets, found.filter(pa.array(is_short)))])


def _each(column: Any, read: Callable[[bytes], _Read]) -> tuple[Any, Any]:
    """Schemas and values of a column of bytes; those of a null are null."""
    encoded = column.dictionary_encode()
    found = [read(each) for each in encoded.dictionary.to_pylist()]
    parts = (pa.array([each[at] for each in found], pa.string()) for at in range(2))
    schemas, values = (part.take(encoded.indices) for part in parts)
    return schemas, values


def _simple(header: bytes) -> _Read:
    try:
        found = parsed_value(header.decode())
    except (UnicodeDecodeError, NotFollowedError):
        return _SOME_BYTES, _base64(header)
    if found.value is None:
        return None, None
    return msgspec.json.encode(found.schema).decode(), found.payload


def _text(header: bytes) -> _Read:
    """A text; what is no UTF-8 is handed over as the bytes that it is, where Java would put U+FFFD in their place."""
    try:
        return _STRING, json_text(header.decode())
    except UnicodeDecodeError:
        return _BYTES, _base64(header)


def _opened(header: bytes) -> _Read:
    """Schema and payload of an envelope; records whose headers are none have been refused."""
    envelope = msgspec.json.decode(header, type=_Envelope)
    return _unless_null(bytes(envelope.schema)), _unless_null(bytes(envelope.payload))


def _unless_null(text: bytes) -> str | None:
    return None if text.strip() == b"null" else text.decode()


def _base64(header: bytes) -> str:
    return f'"{base64.b64encode(header).decode()}"'
