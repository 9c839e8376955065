"""The mapping that an index gets from the schema of its records, type by type as Confluent's ``Mapping`` has it."""

from __future__ import annotations

import base64
import math
from contextlib import suppress
from typing import Any

from service.sinks.batch import Form
from service.sinks.schemas import DATE, DECIMAL, MISFITS, TIME, TIMESTAMP, Kind, Schema, unscaled

_TYPES = {
    Kind.INT8: "byte",
    Kind.INT16: "short",
    Kind.INT32: "integer",
    Kind.INT64: "long",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.BOOLEAN: "boolean",
    Kind.BYTES: "binary",
}
_DAY_MS = 86_400_000
_GREATEST = {"byte": 2**7 - 1, "short": 2**15 - 1, "integer": 2**31 - 1, "long": 2**63 - 1, "date": 2**63 - 1}
_FLOAT_MAX = 3.4028234663852886e38


def properties_of(schema: Schema, form: Form, *, is_map_object: bool = True) -> dict[str, Any]:
    """The mapping of a struct's fields.

    ``form``: which converter's schema it is, since each writes the default of a decimal in its own way.
    ``is_map_object``: ``compact.map.entries``; Confluent's connector maps entries as lists in both cases.
    """
    return {name: _mapping(child, form, is_map_object) for name, child in schema.fields.items()}


def _mapping(schema: Schema, form: Form, is_map_object: bool) -> dict[str, Any]:  # noqa: FBT001, PLR0911 - one line a type
    if schema.name in {DATE, TIME, TIMESTAMP}:
        return _with_default("date", schema, form)
    if schema.name == DECIMAL and schema.kind is Kind.BYTES:
        return _with_default("double", schema, form)
    if schema.kind is Kind.ARRAY and schema.values is not None:
        return _mapping(schema.values, form, is_map_object)
    if schema.kind is Kind.MAP and schema.keys is not None and schema.values is not None:
        if is_map_object and schema.keys.kind is Kind.STRING:
            return {"type": "object"}
        sides = {"key": schema.keys, "value": schema.values}
        return {"properties": {name: _mapping(side, form, is_map_object) for name, side in sides.items()}}
    if schema.kind is Kind.STRUCT:
        properties = properties_of(schema, form, is_map_object=is_map_object)
        return {"properties": properties} if properties else {"type": "object"}
    if schema.kind is Kind.STRING:
        # Text has no null_value, so its keyword has none either: a default is written into the document.
        return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
    return _with_default(_TYPES[schema.kind], schema, form)


def _with_default(kind: str, schema: Schema, form: Form) -> dict[str, Any]:
    """With the default as ``null_value``; without one that is no value of the type, for which all would be refused."""
    mapping = {"type": kind}
    with suppress(*MISFITS):
        default = _default(schema, form)
        if isinstance(default, bool) is (kind == "boolean") and _is_fit(kind, default):
            return {**mapping, "null_value": default}
    return mapping


def _is_fit(kind: str, number: Any) -> bool:
    """Whether it is a number of the type: one beyond it, or a fraction for a whole number, is refused by the server."""
    if kind in _GREATEST:
        greatest = _GREATEST[kind]
        return isinstance(number, int) and -greatest - 1 <= number <= greatest
    return isinstance(number, int | float) and (abs(number) <= _FLOAT_MAX if kind == "float" else math.isfinite(number))


def _default(schema: Schema, form: Form) -> Any:
    """As the server reads it: days as milliseconds, decimals as numbers; binary fields have none."""
    if schema.default is None or schema.kind is not Kind.BYTES:
        is_day = schema.name == DATE and isinstance(schema.default, int)
        return schema.default * _DAY_MS if is_day else schema.default
    if schema.name != DECIMAL:
        return None
    if not isinstance(schema.default, str):
        return float(schema.default)  # decimal.format=NUMERIC
    # Avro writes the bytes of a default as a text of their code points (Avro 1.12, "Record").
    is_avro = form is Form.RECORD
    text = base64.b64encode(schema.default.encode("latin-1")).decode() if is_avro else schema.default
    return float(unscaled(text, int(schema.parameters["scale"])))
