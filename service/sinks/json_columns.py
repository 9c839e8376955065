"""Columns as columns of JSON texts: no value of a number, a text, a struct, a list or a map is touched in Python.

Instants, dates and times are the numbers that Kafka Connect has for them (milliseconds, days), decimals are numbers,
bytes are base64. Numbers that JSON has no word for (NaN, infinities) are texts, as Jackson writes them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import Form, ValueType
from service.sinks.readings import Column
from service.sinks.schemas import Kind, Schema, SchemaUnreadable, schema_of

_NULL = pa.scalar("null")
_TO_ESCAPE = r'["\\\x00-\x1f]'
_KEY_KINDS = {Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.STRING}
_DIGITS_MAX = 200
"""Of a whole number in `field_of_json`; Python makes none of more than 4,300 by itself."""
_UNFIT_NUMBERS = pa.array(["nan", "-nan", "inf", "-inf"])


def text(value: str) -> Any:
    """A constant among columns."""
    return pa.scalar(value, pa.string())


def joined(*pieces: Any) -> Any:
    """Columns and constants, row by row, one after another; null where one is null."""
    return pc.binary_join_element_wise(*pieces, text(""))


def escaped(texts: Any) -> Any:
    """Texts as they stand between the quotes of a JSON string. Only those that need it are looked at one by one."""
    suspicious: Any = pc.fill_null(pc.match_substring_regex(texts, _TO_ESCAPE), False)  # noqa: FBT003 - a scalar
    if not pc.any(suspicious).as_py():
        return texts
    replacements = [json.dumps(each, ensure_ascii=False)[1:-1] for each in texts.filter(suspicious).to_pylist()]
    return pc.replace_with_mask(texts, suspicious, pa.array(replacements, pa.string()))


def json_texts(column: Column, *, is_map_object: bool = True) -> Column:
    """Each value as JSON; null where there is none.

    ``is_map_object``: entries of a map are members of an object, else a list of objects of ``key`` and ``value``.
    """
    made = _encoded(column, is_map_object=is_map_object)
    is_null = column.is_null()
    return cast("Column", pc.if_else(is_null, pa.scalar(None, pa.string()), made) if column.null_count else made)


def _encoded(column: Any, *, is_map_object: bool) -> Any:  # noqa: C901, PLR0911 - one line a type
    """Each value as JSON, ``null`` for one that is not there."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _struct(column, is_map_object=is_map_object)
    if pa.types.is_map(kind):
        return _map(column, is_map_object=is_map_object)
    if pa.types.is_list(kind):
        return _bracketed(column, _encoded(column.values, is_map_object=is_map_object), "[", "]")
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _filled(column.cast(pa.string()))
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_decimal(kind):
        return _filled(column.cast(pa.string()))  # also as 1E-10, which is a number of JSON
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return _filled(column.cast(pa.int64()).cast(pa.string()))
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _filled(column.cast(pa.int32()).cast(pa.string()))
    if pa.types.is_null(kind):
        return _filled(column.cast(pa.string()))
    if pa.types.is_string(kind):
        return _filled(joined(text('"'), escaped(column), text('"')))
    # Arrow has no kernel for base64.
    values = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    return _filled(joined(text('"'), pa.array(values, pa.string()), text('"')))


def _filled(texts: Any) -> Any:
    return pc.fill_null(texts, _NULL)


def _floats(column: Any) -> Any:
    texts = column.cast(pa.string())
    unfit: Any = pc.is_in(texts, value_set=_UNFIT_NUMBERS)
    if pc.any(unfit).as_py():
        words = {"nan": '"NaN"', "-nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
        replacements = [words[each] for each in texts.filter(unfit).to_pylist()]
        texts = pc.replace_with_mask(texts, unfit, pa.array(replacements, pa.string()))
    return _filled(texts)


def _struct(column: Any, *, is_map_object: bool) -> Any:
    pieces: list[Any] = [text("{")]
    for index, child in enumerate(column.flatten()):
        name = json.dumps(column.type[index].name, ensure_ascii=False)
        pieces += [text(f"{',' if index else ''}{name}:"), _encoded(child, is_map_object=is_map_object)]
    if len(pieces) == 1:
        made: Any = pa.array(["{}"] * len(column), pa.string())
    else:
        made = joined(*pieces, text("}"))
    return pc.if_else(column.is_null(), _NULL, made) if column.null_count else made


def _map(column: Any, *, is_map_object: bool) -> Any:
    keys, values = column.keys, _encoded(column.items, is_map_object=is_map_object)
    names = (
        joined(text('"'), escaped(keys), text('"'))
        if pa.types.is_string(keys.type)
        else _encoded(keys, is_map_object=is_map_object)
    )
    if is_map_object:
        return _bracketed(column, joined(names, text(":"), values), "{", "}")
    return _bracketed(column, joined(text('{"key":'), names, text(',"value":'), values, text("}")), "[", "]")


def _bracketed(column: Any, items: Any, opening: str, closing: str) -> Any:
    """The items of each row between brackets; ``items`` are those of all rows."""
    lists = pa.ListArray.from_arrays(column.offsets, items)
    made = joined(text(opening), pc.binary_join(lists, ","), text(closing))
    return pc.if_else(column.is_null(), _NULL, made) if column.null_count else made


def key_texts(keys: Any, kind: ValueType) -> tuple[Any, Callable[[int], str]]:
    """Keys of numbers and texts as texts, null where they are others; what the key of a row is, in Connect's word."""
    try:
        schema = schema_of(kind)
    except SchemaUnreadable:
        schema = Schema(Kind.BYTES)
    if schema is not None and (schema.kind not in _KEY_KINDS or kind.form is Form.BYTES):
        return pa.nulls(len(keys), pa.string()), lambda _row: schema.kind
    if kind.form is not Form.JSON:
        return keys.cast(pa.string()), lambda _row: Kind.STRING
    parsed = [None if key is None else json.loads(key, parse_int=str) for key in keys.to_pylist()]
    kinds = {bool: Kind.BOOLEAN, float: Kind.FLOAT64, list: Kind.ARRAY, dict: Kind.MAP}
    ids = pa.array([key if isinstance(key, str) else None for key in parsed], pa.string())
    return ids, lambda row: kinds.get(type(parsed[row]), Kind.STRING)


def field_of_json(texts: Any, path: str) -> list[Any]:
    """The values of a field of JSON texts, None where there is none. All texts are read at once."""
    head, *rest = path.split(".")
    lines = ",".join(text or "null" for text in texts.to_pylist())
    try:
        rows = msgspec.json.decode(f"[{lines}]")
    except msgspec.ValidationError:  # somewhere is a number beyond all doubles, which may be of another field
        rows = json.loads(f"[{lines}]", parse_int=_counted)
    # What is no object has no fields.
    found = [row.get(head) if isinstance(row, dict) else None for row in rows]
    for name in rest:
        found = [each.get(name) if isinstance(each, dict) else None for each in found]
    return found


def _counted(text: str) -> int | float:
    return int(text) if len(text) <= _DIGITS_MAX else float(text)


def text_of_json(value: str | int | None) -> str | None:
    """As a name of something is written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
