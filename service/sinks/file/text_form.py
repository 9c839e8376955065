"""The text of each value, as Kafka Connect's file sink prints it.

A string is itself and a tombstone is ``null``; so lines that a file source has read come out as they were. A struct
is ``Struct{a=1,b=x}`` without its null fields, a list ``[a, b]``, a map ``{k=v}``. JSON without a schema stays the JSON
it was, where Java prints a hash map in an order of its own; bytes stay bytes, where Java prints an address. Instants,
dates and times of a schema are Java's dates, always in UTC: ``Thu Jan 01 00:00:01 UTC 1970``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import Form, SinkBatch

NULL = "null"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LOGICAL = {
    "org.apache.kafka.connect.data.Timestamp": timedelta(milliseconds=1),
    "org.apache.kafka.connect.data.Time": timedelta(milliseconds=1),
    "org.apache.kafka.connect.data.Date": timedelta(days=1),
}
_DATES: Mapping[Any, timedelta] = {
    pa.timestamp("ms", "UTC"): timedelta(milliseconds=1),
    pa.time32("ms"): timedelta(milliseconds=1),
    pa.date32(): timedelta(days=1),
}
_LINE_FEED = b"\n"


def lines(batch: SinkBatch) -> list[memoryview]:
    """Each value's text and a line feed, as pieces to be written one after another."""
    column = cast("Any", batch.records.column("value"))
    return [_piece(chunk) for chunk in _texts(column, batch).chunks if len(chunk)]


def _piece(texts: Any) -> memoryview:
    """A chunk of texts in one piece of memory, line feeds between them: no value is touched in Python."""
    feed = pa.scalar(_LINE_FEED, pa.binary())
    joined: Any = pc.binary_join_element_wise(texts.cast(pa.binary()), pa.scalar(b"", pa.binary()), feed)
    first, last = (int.from_bytes(_offset(joined, index), "little") for index in (0, len(joined)))
    return memoryview(joined.buffers()[2])[first:last]


def _offset(column: Any, index: int) -> bytes:
    begin = 4 * (column.offset + index)
    return bytes(memoryview(column.buffers()[1])[begin : begin + 4])


def _texts(column: Any, batch: SinkBatch) -> Any:
    form = batch.value.form
    if form is Form.BYTES:
        return pc.fill_null(column, NULL.encode())
    if form is Form.TEXT:
        return pc.fill_null(column, NULL)
    if form is Form.JSON:
        schema = _schema(batch.value.schema)
        made = [_json_text(text, schema) for text in column.to_pylist()]
    else:
        made = [_typed_text(value, column.type) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(made, pa.string())])


@lru_cache(maxsize=256)
def _schema(text: str | None) -> Mapping[str, Any]:
    found = json.loads(text, parse_int=str, parse_float=str) if text else {}
    return found if isinstance(found, dict) else {}


def _json_text(text: str | None, schema: Mapping[str, Any]) -> str:
    """Numbers keep their digits."""
    if text is None:
        return NULL
    if not schema:
        return json.loads(text) if text.lstrip().startswith('"') else text
    return _connect_text(json.loads(text, parse_int=str, parse_float=str), schema)


def _connect_text(value: Any, schema: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one line a type
    """A payload of JsonConverter under its schema."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    kind, unit = schema.get("type"), _LOGICAL.get(str(schema.get("name")))
    if unit is not None:
        return java_date(int(value), unit)
    if kind == "struct":
        fields = ((field["field"], _given(value, field), field) for field in schema.get("fields", ()))
        return _struct((name, _connect_text(item, field)) for name, item, field in fields if item is not None)
    if kind == "array":
        return _list(_connect_text(item, schema.get("items", {})) for item in value)
    if kind == "map":
        pairs = value.items() if isinstance(value, dict) else value
        return _map((str(key), _connect_text(item, schema.get("values", {}))) for key, item in pairs)
    return str(value)


def _given(value: Mapping[str, Any], field: Mapping[str, Any]) -> Any:
    """What a field holds: its default where the payload has nothing for it, or null."""
    item = value.get(field["field"])
    return field.get("default") if item is None else item


def java_date(count: int, unit: timedelta) -> str:
    """As Java prints a date; one too far away for a calendar here stays the number that it is."""
    try:
        moment = _EPOCH + count * unit
    except OverflowError:
        return str(count)
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day} {month} {moment:%d %H:%M:%S} UTC {moment.year}"


def _typed_text(value: Any, kind: Any) -> str:  # noqa: PLR0911 - one line a type
    """A value of an Arrow column."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    if pa.types.is_struct(kind):
        fields = ((field.name, value[field.name], field.type) for field in kind)
        return _struct((name, _typed_text(item, item_kind)) for name, item, item_kind in fields if item is not None)
    if pa.types.is_list(kind):
        return _list(_typed_text(item, kind.value_type) for item in value)
    if pa.types.is_map(kind):
        return _map((key, _typed_text(item, kind.item_type)) for key, item in value)
    if kind in _DATES:
        return java_date(pa.scalar(value, kind).value, _DATES[kind])
    if isinstance(value, bytes):
        return value.hex()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _struct(fields: Iterable[tuple[str, str]]) -> str:
    return f"Struct{{{','.join(f'{name}={text}' for name, text in fields)}}}"


def _list(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _map(pairs: Iterable[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{key}={text}' for key, text in pairs)}}}"
