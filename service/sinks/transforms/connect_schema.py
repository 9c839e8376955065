"""Connect's schemas, as JsonConverter writes them, before and after a transformation: pure, once for each schema."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeAlias

from service.sinks.reasons import RefusalReason
from service.sinks.transforms.halves import (
    INSERTION,
    Fault,
    Unfit,
    duplicate_field,
    no_struct_to_look_in,
    only_structs,
)
from service.sinks.transforms.halves import unknown_field as unknown
from spark_batch.transforms.kinds import FieldName, InsertField

Document: TypeAlias = "dict[str, Any]"
_CACHED = 1024
_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
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
    _TIMESTAMP: "java.util.Date",
    "org.apache.kafka.connect.data.Date": "java.util.Date",
    "org.apache.kafka.connect.data.Time": "java.util.Date",
    "org.apache.kafka.connect.data.Decimal": "java.math.BigDecimal",
}


@lru_cache(maxsize=_CACHED)
def schema_document(text: str) -> Document:
    """The schema, not to be changed; raises Unfit for what is none."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Unfit(Fault(RefusalReason.NO_SCHEMA, "the schema is not JSON")) from error
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise Unfit(Fault(RefusalReason.NO_SCHEMA, "Schema must contain 'type' field"))
    if found["type"] == "struct" and not _has_fields(found):
        raise Unfit(Fault(RefusalReason.NO_SCHEMA, 'Struct schema\'s "fields" argument is not an array.'))
    return found


def _has_fields(document: Document) -> bool:
    fields = document.get("fields")
    return isinstance(fields, list) and all(
        isinstance(field, dict) and isinstance(field.get("field"), str) and isinstance(field.get("type"), str)
        for field in fields
    )


@lru_cache(maxsize=_CACHED)
def hoisted_schema(text: str, name: str) -> str:
    """A struct with one field. Raises Unfit."""
    field = {**schema_document(text), "field": name}
    return _written({"type": "struct", "fields": [field], "optional": False})


@lru_cache(maxsize=_CACHED)
def inserted_schema(text: str, insert: InsertField) -> str:
    """With the fields that are added; as in Connect the struct itself is required from then on. Raises Unfit."""
    document = schema_document(text)
    if document["type"] != "struct":
        raise Unfit(only_structs(INSERTION, _java_class(document)))
    fields = [*document["fields"], *_added(insert)]
    names = [field["field"] for field in fields]
    for name in names[len(document["fields"]) :]:
        if names.count(name) > 1:
            raise Unfit(duplicate_field(name))
    kept: Document = {key: document[key] for key in ("name", "version", "doc", "parameters") if key in document}
    return _written({"type": "struct", "fields": fields, "optional": False, **kept})


def _added(insert: InsertField) -> list[Document]:
    timestamp = {"type": "int64", "name": _TIMESTAMP, "version": 1}
    kinds: tuple[tuple[FieldName | None, Document], ...] = (
        (insert.topic, {"type": "string"}),
        (insert.partition, {"type": "int32"}),
        (insert.offset, {"type": "int64"}),
        (insert.timestamp, timestamp),
        (insert.static, {"type": "string"}),
    )
    return [{**kind, "optional": field.is_optional, "field": field.name} for field, kind in kinds if field is not None]


@lru_cache(maxsize=_CACHED)
def fields_on(text: str, path: tuple[str, ...]) -> tuple[Document, ...]:
    """The fields that a path goes through, the one it leads to last. Raises Unfit."""
    document = schema_document(text)
    found: list[Document] = []
    for name in path:
        if document["type"] != "struct" or not _has_fields(document):
            raise no_struct_to_look_in(_java_class(document), is_nested=bool(found))
        field = next((field for field in document["fields"] if field["field"] == name), None)
        if field is None:
            raise Unfit(unknown(path))
        found.append(field)
        document = field
    return tuple(found)


@lru_cache(maxsize=_CACHED)
def extracted_schema(text: str, path: tuple[str, ...]) -> str:
    """That of a field. Raises Unfit."""
    field = fields_on(text, path)[-1]
    return _written({key: value for key, value in field.items() if key != "field"})


def _java_class(document: Document) -> str:
    name = document.get("name")
    return _JAVA_CLASSES.get(name if isinstance(name, str) else "") or _JAVA_CLASSES.get(document["type"], "null")


def _written(document: Document) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
