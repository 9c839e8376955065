"""Avro schemas as JSON documents: parts taken out of them that still say the same where they stand alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_batch.avro_types import JsonValue

PAYLOAD_ATTRIBUTES = {"json.name", "json.coerce", "json.pattern", "json.zone"}
"""Attributes of a field that say how it stands in the payload."""


def namespace_of(document: JsonValue) -> str:
    """Namespace of a named type, which may stand in its name."""
    name: str = document["name"]
    return name.rpartition(".")[0] or document.get("namespace", "")


def without_json_names(document: JsonValue) -> JsonValue:
    """The schema without `json.name` and the like: they speak of payloads, and registered schemas are not to change."""
    if isinstance(document, list):
        return [without_json_names(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        key: item if key == "default" else without_json_names(item)
        for key, item in document.items()
        if key not in PAYLOAD_ATTRIBUTES
    }


def _is_named(document: dict[str, JsonValue]) -> bool:
    kind = document.get("type")
    return isinstance(kind, str) and kind in {"record", "enum", "fixed"} and "name" in document


def definitions(document: JsonValue, namespace: str) -> dict[str, JsonValue]:
    """Every named type of the schema by full name."""
    return dict(each_definition(document, namespace))


def each_definition(document: JsonValue, namespace: str) -> Iterator[tuple[str, JsonValue]]:
    """Every place where a type is named, with its full name; Avro allows one for each name."""
    if isinstance(document, list):
        for item in document:
            yield from each_definition(item, namespace)
    if not isinstance(document, dict):
        return
    if _is_named(document):
        name = document["name"]
        namespace = name.rpartition(".")[0] or document.get("namespace", namespace)
        short = name.rpartition(".")[2]
        full = f"{namespace}.{short}" if namespace else short
        yield full, {**document, "namespace": namespace} if namespace else document
    for key in ("type", "items", "values", "fields"):
        yield from each_definition(document.get(key), namespace)


def inlined(document: JsonValue, definitions: dict[str, JsonValue], written: set[str], namespace: str) -> JsonValue:
    """The schema with the first use of each named type written out in full."""
    if isinstance(document, str):
        full = document if "." in document or not namespace else f"{namespace}.{document}"
        if full not in definitions or full in written:
            return document
        return inlined(without_json_names(definitions[full]), definitions, written, namespace)
    if isinstance(document, list):
        return [inlined(item, definitions, written, namespace) for item in document]
    if not isinstance(document, dict):
        return document
    if _is_named(document):
        namespace = document["name"].rpartition(".")[0] or document.get("namespace", namespace)
        short = document["name"].rpartition(".")[2]
        written.add(f"{namespace}.{short}" if namespace else short)
    return {
        key: inlined(item, definitions, written, namespace) if key in {"type", "items", "values", "fields"} else item
        for key, item in document.items()
    }
