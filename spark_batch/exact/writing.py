"""Canonical values to the bytes of a key or a value, in plain Python: what `serialize` does in columns.

A typed value here is what the canonical text of `judge` holds: objects by Avro names, `Number` literals, booleans,
text, base64 for bytes, None. Numbers of floating point are written as Java 19 and later write them (the shortest
digits that mean the number, JDK-4511638); an older Java may write further digits of the same number.
"""

from __future__ import annotations

import base64
import io
import json
from decimal import Context
from decimal import Decimal as ExactNumber
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from spark_batch.avro_types import (
    SCHEMAS_MAX,
    Array,
    AvroType,
    Decimal,
    Field,
    Fixed,
    JsonValue,
    Map,
    Primitive,
    Record,
    Slot,
)
from spark_batch.connect_documents import document_text, slot_schema
from spark_batch.literals.floating import floating, floating_text
from spark_batch.literals.numbers import unscaled_bytes
from spark_batch.literals.reading import Number
from spark_batch.literals.writing import json_text
from spark_batch.plan import ConverterKind, ConverterSpec

if TYPE_CHECKING:
    from spark_batch.transforms.shape import Shape

_NAME_LENGTH_MAX, _TEXT_LENGTH_MAX = 50_000, 20_000_000
LENGTH_READABLE = _NAME_LENGTH_MAX
"""Canonical text of at most so many characters needs no asking whether Spark reads it."""
_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number)


def typed_value(canonical: str) -> JsonValue:
    """The value that a canonical text holds."""
    return _DECODER.decode(canonical)


def is_readable_by_spark(record: Record, value: JsonValue) -> bool:
    """Whether Spark's JSON reader takes the value: keys of maps have a greatest length there, and so have texts.

    Source: `StreamReadConstraints` of Jackson 2.15 and later.
    """
    return all(_is_readable(field.slot.type, value[field.name]) for field in record.fields)


def _is_readable(kind: AvroType, value: JsonValue) -> bool:
    if isinstance(value, str):
        return _java_length(value) <= _TEXT_LENGTH_MAX
    if value is None or isinstance(value, bool):
        return True
    if isinstance(kind, Record):
        return is_readable_by_spark(kind, value)
    if isinstance(kind, Array):
        return all(_is_readable(kind.items.type, item) for item in value)
    assert isinstance(kind, Map)  # noqa: S101 - told to the type checker: nothing else has objects
    names = (_java_length(name) <= _NAME_LENGTH_MAX for name in value)
    return all(names) and all(_is_readable(kind.values.type, item) for item in value.values())


def _java_length(text: str) -> int:
    """In the units of UTF-16, as Java counts."""
    return len(text) + sum(letter > "\uffff" for letter in text)


def written_value(shape: Shape, value: JsonValue, spec: ConverterSpec) -> bytes | None:
    """A key or value in the form of its converter; None where it has become null and only JSON has a form of that."""
    slot = shape.slot
    if spec.kind is ConverterKind.AVRO:
        return None if value is None else _framed(shape.avro, slot, value, spec.schema_id)
    if spec.kind.number is not None:
        return spec.kind.number.written(value)
    if spec.kind is not ConverterKind.JSON:
        return _struct_bytes(slot.type, value)
    text = _json(slot.type, value, is_decimal_numeric=spec.is_decimal_numeric)
    return (_enveloped(slot, shape.origin, text, spec) if spec.is_schema_enveloped else text).encode()


def _enveloped(slot: Slot, origin: Field | None, payload: str, spec: ConverterSpec) -> str:
    schema = _schema_text(slot, origin, is_decimal_numeric=spec.is_decimal_numeric)
    return f'{{"schema":{schema},"payload":{payload}}}'


@lru_cache(maxsize=SCHEMAS_MAX)
def _schema_text(slot: Slot, origin: Field | None, *, is_decimal_numeric: bool) -> str:
    return document_text(slot_schema(slot, origin), is_decimal_numeric=is_decimal_numeric)


def _json(  # noqa: PLR0911 - one line a type
    kind: AvroType, value: JsonValue, *, is_decimal_numeric: bool
) -> str:
    if value is None:
        return "null"
    if isinstance(kind, Record):
        fields = (
            f"{json_text(f.name)}:{_json(f.slot.type, value[f.name], is_decimal_numeric=is_decimal_numeric)}"
            for f in kind.fields
        )
        return f"{{{','.join(fields)}}}"
    if isinstance(kind, Array):
        items = (_json(kind.items.type, item, is_decimal_numeric=is_decimal_numeric) for item in value)
        return f"[{','.join(items)}]"
    if isinstance(kind, Map):
        entries = (
            f"{json_text(key)}:{_json(kind.values.type, item, is_decimal_numeric=is_decimal_numeric)}"
            for key, item in value.items()
        )
        return f"{{{','.join(entries)}}}"
    if isinstance(kind, Decimal):
        number = _decimal(kind, value)
        return str(number) if is_decimal_numeric else json_text(base64.b64encode(unscaled_bytes(number)).decode())
    if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        return floating_text(kind, value)
    return json_text(value, number=str)


def _struct_bytes(kind: AvroType, value: JsonValue) -> bytes | None:
    """Connect's StringConverter: Java's text of a Struct, null fields left out; bytes stay bytes."""
    if value is None:
        return None
    if kind is Primitive.BYTES:
        return base64.b64decode(value)
    return _struct_text(kind, value).encode()


def _struct_text(kind: AvroType, value: JsonValue) -> str:
    if isinstance(kind, Record):
        shown = (
            f"{field.name}={_struct_text(field.slot.type, value[field.name])}"
            for field in kind.fields
            if value[field.name] is not None
        )
        return f"Struct{{{','.join(shown)}}}"
    if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        return floating_text(kind, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _decimal(kind: Decimal, value: Number) -> ExactNumber:
    """With every digit of its scale, as Java's BigDecimal has it."""
    exact = Context(prec=kind.precision + 1)
    return ExactNumber(value).quantize(ExactNumber(1).scaleb(-kind.scale), context=exact)


def _framed(schema: str, slot: Slot, value: JsonValue, schema_id: int | None) -> bytes:
    """Confluent's wire format; raises ValueError where the plan has no schema id yet."""
    if schema_id is None:
        message = "an Avro conversion needs the registry's schema id: ConversionPlan.with_schema_ids"
        raise ValueError(message)
    import fastavro  # noqa: PLC0415 - only where it is wanted: it costs a start 0.1 s

    out = io.BytesIO(b"\x00" + schema_id.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, _plain_schema(schema), _datum(slot.type, value))
    return out.getvalue()


@lru_cache(maxsize=SCHEMAS_MAX)
def _plain_schema(schema: str) -> Any:
    """Parsed, without logical types: what they stand for is given as what carries it."""
    import fastavro  # noqa: PLC0415 - as above

    return fastavro.parse_schema(_without_logical(json.loads(schema)))


def _without_logical(document: JsonValue) -> Any:
    if isinstance(document, list):
        return [_without_logical(item) for item in document]
    if not isinstance(document, dict):
        return document
    kept = {key: item for key, item in document.items() if key not in {"logicalType", "default"}}
    inner = {key: _without_logical(kept[key]) for key in ("type", "items", "values") if key in kept}
    fields = {"fields": [_without_logical(field) for field in kept["fields"]]} if "fields" in kept else {}
    return {**kept, **inner, **fields}


def _datum(kind: AvroType, value: JsonValue) -> Any:  # noqa: PLR0911 - one line a type
    if value is None:
        return None
    if isinstance(kind, Record):
        return {field.name: _datum(field.slot.type, value[field.name]) for field in kind.fields}
    if isinstance(kind, Array):
        return [_datum(kind.items.type, item) for item in value]
    if isinstance(kind, Map):
        return {key: _datum(kind.values.type, item) for key, item in value.items()}
    if isinstance(kind, Decimal):
        raw = unscaled_bytes(_decimal(kind, value))
        sign = b"\xff" if raw[0] & 0x80 else b"\x00"
        return raw if kind.size is None else raw.rjust(kind.size, sign)
    if isinstance(kind, Fixed) or kind is Primitive.BYTES:
        return base64.b64decode(value)
    if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        return floating(kind, value)
    return int(value) if isinstance(value, Number) else value
