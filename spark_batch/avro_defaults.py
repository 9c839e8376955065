"""Avro default values brought into the canonical form of a payload.

The canonical form is JSON text that needs no interpretation any more: Avro names, every field present, instants as
numbers in Avro's unit, bytes as base64, decimals as plain numbers. Avro itself writes defaults of bytes as text in
ISO 8859-1 (specification, "Complex Types", table of field default values).
"""

from __future__ import annotations

import base64
import decimal
import json
import math
import re
from typing import cast

from spark_batch.avro_types import (
    FLOAT_BOUND,
    INTEGER_BITS,
    UUID,
    Array,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    JsonValue,
    Map,
    Primitive,
    Record,
    Slot,
    Temporal,
    Uuid,
    unit_range,
)

_UUID = re.compile(UUID)


def canonical_default(slot: Slot, value: JsonValue, *, is_null_first: bool) -> str | None:
    """The default as canonical JSON text, or None when it does not fit the (first branch of the) type."""
    if slot.is_nullable and is_null_first:
        return "null" if value is None else None
    return canonical_text(slot.type, value)


def canonical_text(kind: AvroType, value: JsonValue) -> str | None:  # noqa: PLR0911 - one line a type
    """One Avro default value of the type as canonical text, or None when it does not fit."""
    if isinstance(kind, (Array, Map)):
        return _container(kind, value)
    if isinstance(kind, Record):
        return _record(kind, value)
    if isinstance(kind, (Decimal, Fixed)) or kind is Primitive.BYTES:
        return _bytes(kind, value)
    if isinstance(kind, Enum):
        return json.dumps(value) if value in kind.symbols else None
    if isinstance(kind, Uuid) or kind is Primitive.STRING:
        return _text(kind, value)
    if isinstance(kind, Temporal):
        return _integer(value, *unit_range(kind))
    return _primitive(cast("Primitive", kind), value)


def _text(kind: AvroType, value: JsonValue) -> str | None:
    if not isinstance(value, str) or not _is_utf8(value):
        return None
    if isinstance(kind, Uuid) and not _UUID.fullmatch(value):
        return None
    return json.dumps(value, ensure_ascii=False)


def _is_utf8(text: str) -> bool:
    """Whether no surrogate stands alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _primitive(kind: Primitive, value: JsonValue) -> str | None:
    if kind is Primitive.NULL:
        return "null" if value is None else None
    if kind is Primitive.BOOLEAN:
        return json.dumps(value) if isinstance(value, bool) else None
    if kind in INTEGER_BITS:
        half = 1 << (INTEGER_BITS[kind] - 1)
        return _integer(value, -half, half - 1)
    return _floating(kind, value)


def _integer(value: JsonValue, low: int, high: int) -> str | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_whole and low <= value <= high else None


def _floating(kind: Primitive, value: JsonValue) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        nearest = float(value)
    except OverflowError:
        return None
    is_in_range = math.isfinite(nearest) and (kind is Primitive.DOUBLE or abs(nearest) < FLOAT_BOUND)
    return repr(nearest) if is_in_range else None


def _bytes(kind: AvroType, value: JsonValue) -> str | None:
    if not isinstance(value, str) or any(ord(letter) > 0xFF for letter in value):  # noqa: PLR2004 - ISO 8859-1
        return None
    raw = value.encode("latin-1")
    size = getattr(kind, "size", None)
    if size is not None and len(raw) != size:
        return None
    if not isinstance(kind, Decimal):
        return json.dumps(base64.b64encode(raw).decode())
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**kind.precision:
        return None
    return f"{decimal.Decimal(unscaled).scaleb(-kind.scale, decimal.Context(prec=kind.precision)):f}"


def _container(kind: Array | Map, value: JsonValue) -> str | None:
    if isinstance(kind, Array):
        if not isinstance(value, list):
            return None
        items = [_slot_text(kind.items, item) for item in value]
        return None if None in items else f"[{','.join(cast('list[str]', items))}]"
    if not isinstance(value, dict):
        return None
    values = {key: _slot_text(kind.values, item) for key, item in value.items()}
    return (
        None if None in values.values() or not all(map(_is_utf8, values)) else _object(cast("dict[str, str]", values))
    )


def _record(kind: Record, value: JsonValue) -> str | None:
    if not isinstance(value, dict) or value.keys() - {field.name for field in kind.fields}:
        return None
    texts = {
        field.name: _slot_text(field.slot, value[field.name]) if field.name in value else field.default
        for field in kind.fields
    }
    return None if None in texts.values() else _object(cast("dict[str, str]", texts))


def _slot_text(slot: Slot, value: JsonValue) -> str | None:
    if value is None and slot.is_nullable:
        return "null"
    return canonical_text(slot.type, value)


def _object(texts: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in texts.items()) + "}"
