"""Connect's schemas as JsonConverter writes them (KIP-26; `org.apache.kafka.connect.json.JsonSchema`)."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeAlias

from spark_batch.transforms.halves import Fault, FaultReason, Unfit

Document: TypeAlias = "dict[str, Any]"
_CACHED = 1024
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
DECIMAL = "org.apache.kafka.connect.data.Decimal"
_JAVA_CLASSES = {
    "struct": "org.apache.kafka.connect.data.Struct",
    "array": "java.util.ArrayList",
    "map": "java.util.HashMap",
    "string": "java.lang.String",
    "boolean": "java.lang.Boolean",
    "int8": "java.lang.Byte",
    "int16": "java.lang.Short",
    "int32": "java.lang.Integer",
    "int64": "java.lang.Long",
    "float": "java.lang.Float",
    "double": "java.lang.Double",
    "bytes": "[B",
    TIMESTAMP: "java.util.Date",
    "org.apache.kafka.connect.data.Date": "java.util.Date",
    "org.apache.kafka.connect.data.Time": "java.util.Date",
    DECIMAL: "java.math.BigDecimal",
}


@lru_cache(maxsize=_CACHED)
def schema_document(text: str) -> Document:
    """The schema, not to be changed; raises Unfit for what is none."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Unfit(Fault(FaultReason.NO_SCHEMA, "the schema is not JSON")) from error
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise Unfit(Fault(FaultReason.NO_SCHEMA, "Schema must contain 'type' field"))
    if found["type"] == "struct" and not has_fields(found):
        raise Unfit(Fault(FaultReason.NO_SCHEMA, 'Struct schema\'s "fields" argument is not an array.'))
    return found


def has_fields(document: Document) -> bool:
    """Whether it has a list of fields, each with a name and a type."""
    fields = document.get("fields")
    return isinstance(fields, list) and all(
        isinstance(field, dict) and isinstance(field.get("field"), str) and isinstance(field.get("type"), str)
        for field in fields
    )


def java_class_of_schema(document: Document) -> str:
    """Class that Connect holds a value of the schema in."""
    name = document.get("name")
    return _JAVA_CLASSES.get(name if isinstance(name, str) else "") or _JAVA_CLASSES.get(document["type"], "null")
