"""The text of each value, as Kafka Connect's file sink prints it.

A string is itself and a tombstone is ``null``; so lines that a file source has read come out as they were. A struct
is ``Struct{a=1,b=x}`` without its null fields, a list ``[a, b]``, a map ``{k=v}``. Numbers are Java's, decimals with
all their digits; instants, dates and times of a schema are Java's dates, always in UTC: ``Thu Jan 01 00:00:01 UTC
1970``. Three things are not as in Java: JSON without a schema stays the JSON it was, where Java prints a hash map;
the entries of a map stay in their order; bytes are themselves, in JSON base64 and in typed records hexadecimal, where
Java prints an address.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from service.domain.java_numbers import java_double, java_float
from service.sinks.batch import Form, SinkBatch
from service.sinks.schemas import CONNECT_KINDS, MISFITS, Misfit, unscaled
from spark_batch.literals.numbers import plain_digits

NULL = "null"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATA = "org.apache.kafka.connect.data"
_INSTANTS = {
    f"{_DATA}.Timestamp": timedelta(milliseconds=1),
    f"{_DATA}.Time": timedelta(milliseconds=1),
    f"{_DATA}.Date": timedelta(days=1),
}
_TYPED_INSTANTS: Mapping[Any, timedelta] = {
    pa.timestamp("ms", "UTC"): timedelta(milliseconds=1),
    pa.time32("ms"): timedelta(milliseconds=1),
    pa.date32(): timedelta(days=1),
}
_LINE_FEED = b"\n"
_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_INTEGER_DIGITS_MAX = 19
"""Of a decimal's digits: the time to make them decimal grows with the square, beyond a second at 100,000 bytes."""
Printer: TypeAlias = Callable[[Any], str]


def texts_of(batch: SinkBatch) -> tuple[pa.ChunkedArray[Any], dict[int, str]]:
    """The text of each value; null for those that are not of their schema, of which it is told why, by row."""
    column, form = cast("Any", batch.records.column("value")), batch.value.form
    if form is Form.BYTES:
        return pc.fill_null(column, NULL.encode()), {}
    if form is Form.TEXT:
        return pc.fill_null(column, NULL), {}
    printer = _json_printer(batch.value.schema) if form is Form.JSON else _typed_printer(column.type)
    made: list[str | None] = []
    misfits: dict[int, str] = {}
    for row, value in enumerate(_python_values(column)):
        try:
            if isinstance(value, Misfit):
                raise value
            made.append(NULL if value is None else printer(value))
        except MISFITS as error:
            made.append(None)
            misfits[row] = str(error if isinstance(error, Misfit) else Misfit("", "not of its schema"))
    return pa.chunked_array([pa.array(made, pa.string())]), misfits


def _python_values(column: Any) -> list[Any]:
    """The values; in place of one with a date that Python's calendar does not have, which of its fields that is."""
    try:
        found: list[Any] = column.to_pylist()
    except OverflowError:
        found = [_python_value(value) for value in column]
    return found


def _python_value(value: Any) -> Any:
    try:
        return value.as_py()
    except OverflowError:
        return _beyond(value)


def _beyond(value: Any) -> Misfit:
    """Which value of a scalar of Arrow it is that Python cannot take."""
    kind = value.type
    children: Iterable[tuple[str, Any]] = ()
    if pa.types.is_struct(kind):
        children = value.items()
    elif pa.types.is_map(kind):
        children = (("{}", entry["value"]) for entry in value.values)
    elif pa.types.is_list(kind):
        children = ((f"[{at}]", item) for at, item in enumerate(value.values or ()))
    for step, child in children:
        try:
            child.as_py()
        except OverflowError:
            return Misfit.at(step, _beyond(child), None, "")
    return Misfit("", f"beyond the years 1 to 9999, {kind}")


def lines(texts: pa.ChunkedArray[Any]) -> list[memoryview]:
    """Each text that is not null and a line feed, as pieces to be written one after another."""
    return [_piece(chunk) for chunk in texts.drop_null().chunks if len(chunk)]


def _piece(texts: Any) -> memoryview:
    """A chunk of texts in one piece of memory, line feeds between them: no value is touched in Python."""
    feed = pa.scalar(_LINE_FEED, pa.binary())
    joined: Any = pc.binary_join_element_wise(texts.cast(pa.binary()), pa.scalar(b"", pa.binary()), feed)
    first, last = (int.from_bytes(_offset(joined, index), "little") for index in (0, len(joined)))
    return memoryview(joined.buffers()[2])[first:last]


def _offset(column: Any, index: int) -> bytes:
    begin = 4 * (column.offset + index)
    return bytes(memoryview(column.buffers()[1])[begin : begin + 4])


class _Number(str):
    """A number of a JSON text, with the digits it was written with."""

    __slots__ = ()


def _read(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number)


def _plain_text(text: str) -> str:
    """JSON without a schema: a string is its text, all else stays."""
    return str(json.loads(text)) if text.lstrip().startswith('"') else text


@lru_cache(maxsize=256)
def _json_printer(schema: str | None) -> Printer:
    """Of payloads under a schema of JsonConverter, which raises Misfit; of whole texts where there is none."""
    if not schema:
        return _plain_text
    try:
        document = _read(schema)
        printer, word = _printer(document), _word(document)
    except MISFITS:
        return _fit_nothing

    def print_payload(text: str) -> str:
        value: Any = text
        try:
            value = _read(text)
            return printer(value)
        except MISFITS as error:
            raise Misfit.at("", error, value, word) from error

    return print_payload


def _fit_nothing(_value: Any) -> str:
    """No payload is of a schema that is none."""
    raise Misfit("", "not of its schema, which cannot be read")


def _word(schema: Mapping[str, Any]) -> str:
    """What messages call it."""
    return str(schema.get("name") or CONNECT_KINDS.get(str(schema.get("type")), ""))


def _printer(schema: Mapping[str, Any]) -> Printer:
    """Of values that JsonConverter reads by this schema; null is the schema's default, or must be optional."""
    print_value, default = _value_printer(schema), schema.get("default")
    if default is not None:
        text_of_null = print_value(default)
        return lambda value: text_of_null if value is None else print_value(value)
    if schema.get("optional"):
        return lambda value: NULL if value is None else print_value(value)
    return print_value


def _value_printer(schema: Mapping[str, Any]) -> Printer:
    kind, name = schema.get("type"), schema.get("name")
    if name in _INSTANTS:
        bits = _INTEGER_BITS[str(kind)]
        return lambda value: java_date(_whole(value, bits), _INSTANTS[name])
    if name == f"{_DATA}.Decimal":
        scale = int(schema["parameters"]["scale"])
        return lambda value: str(Decimal(value) if isinstance(value, _Number) else unscaled(value, scale))
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](schema)
    return _SCALARS[str(kind)]


def _struct_printer(schema: Mapping[str, Any]) -> Printer:
    fields = [
        (field["field"], _printer(field), bool(field.get("optional")) and field.get("default") is None, _word(field))
        for field in schema.get("fields", ())
    ]

    def print_struct(value: dict[str, Any]) -> str:
        get, made = value.get, []
        for name, printer, may_be_away, word in fields:
            item = get(name)
            if item is not None or not may_be_away:
                try:
                    made.append((name, printer(item)))
                except MISFITS as error:
                    raise Misfit.at(name, error, item, word) from error
        return _struct(made)

    return print_struct


def _array_printer(schema: Mapping[str, Any]) -> Printer:
    items = schema.get("items", {})
    printer, word = _printer(items), _word(items)

    def print_array(value: Any) -> str:
        made: list[str] = []
        for item in _of(list, value):
            try:
                made.append(printer(item))
            except MISFITS as error:
                raise Misfit.at(f"[{len(made)}]", error, item, word) from error
        return _list(made)

    return print_array


def _map_printer(schema: Mapping[str, Any]) -> Printer:
    """Entries are an object where keys are text, else a list of pairs. A key that does not fit is told of the map."""
    keys, values = _printer(schema.get("keys", {})), _printer(schema.get("values", {}))
    word = _word(schema.get("values", {}))

    def print_map(value: Any) -> str:
        made: list[tuple[str, str]] = []
        for key, item in value.items() if isinstance(value, dict) else map(_pair, _of(list, value)):
            try:
                name = keys(key)
            except Misfit as error:
                raise TypeError(key) from error
            try:
                made.append((name, values(item)))
            except MISFITS as error:
                raise Misfit.at("{}", error, item, word) from error
        return _map(made)

    return print_map


def _pair(entry: Any) -> Any:
    """Key and value; a text of two letters would be taken apart as well."""
    return _of(list, entry)


_CONTAINERS: Mapping[Any, Callable[[Mapping[str, Any]], Printer]] = {
    "struct": _struct_printer,
    "array": _array_printer,
    "map": _map_printer,
}


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(kind)
    return value


def _number(value: Any) -> str:
    return cast("str", _of(_Number, value))


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise TypeError(str)
    return value


def _whole(value: Any, bits: int) -> int:
    """An integer of so many bits, also one written as ``1.0`` or ``1e3``; raises ValueError for any other."""
    text, half = _number(value), 1 << (bits - 1)
    digits = text if text.lstrip("-").isdecimal() else plain_digits(text, digits_max=_INTEGER_DIGITS_MAX)
    number = None if digits is None else int(digits)
    if number is None or not -half <= number < half:
        raise ValueError(bits)
    return number


def _integer_printer(bits: int) -> Printer:
    return lambda value: str(_whole(value, bits))


_SCALARS: Mapping[str, Printer] = {
    "boolean": lambda value: str(_of(bool, value)).lower(),
    **{kind: _integer_printer(bits) for kind, bits in _INTEGER_BITS.items()},
    "float": lambda value: java_float(float(_number(value))),
    "double": lambda value: java_double(float(_number(value))),
    "string": _text,
    "bytes": _text,
}


def java_date(count: int, unit: timedelta) -> str:
    """As Java prints a date; one too far away for a calendar here stays the number that it is."""
    try:
        moment = _EPOCH + count * unit
    except OverflowError:
        return str(count)
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day} {month} {moment:%d %H:%M:%S} UTC {moment.year}"


@lru_cache(maxsize=256)
def _typed_printer(kind: Any) -> Printer:
    """Of values of an Arrow column."""
    print_value = _typed_value_printer(kind)
    return lambda value: NULL if value is None else print_value(value)


def _typed_value_printer(kind: Any) -> Printer:  # noqa: PLR0911 - one line a type
    if pa.types.is_struct(kind):
        fields = [(field.name, _typed_printer(field.type)) for field in kind]
        return lambda value: _struct(
            (name, printer(value[name])) for name, printer in fields if value[name] is not None
        )
    if pa.types.is_list(kind):
        printer = _typed_printer(kind.value_type)
        return lambda value: _list(map(printer, value))
    if pa.types.is_map(kind):
        keys, values = _typed_printer(kind.key_type), _typed_printer(kind.item_type)
        return lambda value: _map((keys(key), values(item)) for key, item in value)
    if kind in _TYPED_INSTANTS:
        return lambda value: java_date(pa.scalar(value, kind).value, _TYPED_INSTANTS[kind])
    if pa.types.is_boolean(kind):
        return lambda value: str(value).lower()
    if pa.types.is_float32(kind):
        return java_float
    if pa.types.is_float64(kind):
        return java_double
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda value: value.hex()
    return str


def _struct(fields: Iterable[tuple[str, str]]) -> str:
    return f"Struct{{{','.join(f'{name}={text}' for name, text in fields)}}}"


def _list(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _map(pairs: Iterable[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{key}={text}' for key, text in pairs)}}}"
