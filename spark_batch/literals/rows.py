"""Rows that were fitted into a record, one by one: as the canonical values that `writing` writes, and hashed."""

from __future__ import annotations

import base64
import hashlib
from decimal import Context
from decimal import Decimal as ExactNumber

from spark_batch.avro_types import Array, AvroType, Decimal, Fixed, JsonValue, Map, Primitive, Record
from spark_batch.literals.reading import Number


def canonical_row(kind: AvroType | None, value: JsonValue) -> JsonValue:  # noqa: PLR0911 - one line a type
    """A value of a fitted column, as pyarrow gives it to Python, in the form of `writing.typed_value`."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(kind, Record):
        return {field.name: canonical_row(field.slot.type, value[field.name]) for field in kind.fields}
    if isinstance(kind, Array):
        return [canonical_row(kind.items.type, item) for item in value]
    if isinstance(kind, Map):
        return {key: canonical_row(kind.values.type, item) for key, item in value}
    if isinstance(kind, Decimal):
        if kind.is_wide:
            exact = Context(prec=kind.precision + 1)
            value = ExactNumber(int.from_bytes(value, "big", signed=True)).scaleb(-kind.scale, context=exact)
        return Number(f"{value:f}")
    if isinstance(kind, Fixed) or kind is Primitive.BYTES:
        return base64.b64encode(value).decode()
    return value if isinstance(value, str) else Number(repr(value))


def row_hash(paths: tuple[str, ...], record: Record | None, value: JsonValue) -> bytes:
    """16 bytes over kinds and values of the fields at these paths of column names, as `payload_fields` has them."""
    texts = []
    for path in paths:
        kind: AvroType | None = record
        found = value
        for name in path.split("."):
            assert isinstance(kind, Record)  # noqa: S101 - told to the type checker: a plan has no other paths
            field = next(each for each in kind.fields if each.json_name == name)
            kind, found = field.slot.type, None if found is None else found[field.name]
        texts.append(_encoded(found))
    return hashlib.md5(f"F{''.join(texts)}".encode(), usedforsecurity=False).digest()


def _encoded(value: JsonValue) -> str:
    if value is None:
        return "n"
    if isinstance(value, bool):
        return f"b{'true' if value else 'false'};"
    return f"i{value};" if isinstance(value, Number) else f"s{len(value.encode())}:{value}"
