"""What a text is taken for where its place may be coerced, exactly; the columns of `coerced_columns` say the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_batch.avro_types import Enum, Primitive, Temporal
from spark_batch.coercion import folded, folded_symbols
from spark_batch.exact.instants import parse_instant
from spark_batch.literals.reading import Number

if TYPE_CHECKING:
    from spark_batch.avro_types import AvroType, JsonValue, Slot

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")


def taken_for(slot: Slot, value: JsonValue) -> JsonValue:
    """The value that the text stands for, itself where it stands for none; raises InstantError for a bad pattern.

    What comes out is judged as if it had stood in the payload.
    """
    coercion = slot.coercion
    if coercion is None or not isinstance(value, str) or isinstance(value, Number):
        return value
    if value == "" and coercion.is_empty_null:
        return None
    if not coercion.is_taken:
        return value
    if isinstance(slot.type, Temporal) and coercion.pattern is not None:
        return Number(parse_instant(slot.type, value, is_number=False, pattern=coercion.pattern))
    return _taken(slot.type, value)


def _taken(kind: AvroType, text: str) -> JsonValue:
    if isinstance(kind, Enum):
        return text if text in kind.symbols else folded_symbols(kind.symbols).get(folded(text), text)
    if kind is Primitive.BOOLEAN:
        return {"true": True, "false": False}.get(folded(text), text)
    form = _INTEGER if isinstance(kind, Temporal) else _NUMBER
    return Number(text) if form.fullmatch(text) else text
