"""What a key or value looks like: its type, and the Avro schema that says so.

Pure: a transformation that does not fit a shape is told before any record is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar, Protocol

from spark_batch.avro_types import Field, JsonValue, Primitive, Record, Slot


class Named(Protocol):
    """A transformation, as far as findings name it."""

    NAME: ClassVar[str]

    @property
    def side(self) -> str:
        """Whether it works on keys or on values."""


class Misfit(Exception):
    """A transformation cannot be applied to what it gets: the key to mend, the value seen, what was expected."""

    def __init__(self, key: str, value: str, expected: str) -> None:
        super().__init__(f"{key}: expected {expected}")
        self.key, self.value, self.expected = key, value, expected


@dataclass(frozen=True)
class Shape:
    """A type with its Avro schema.

    `origin` is the field that the whole was taken from: its default and text go with its type.
    """

    slot: Slot
    avro: str
    origin: Field | None = None

    @property
    def record(self) -> Record | None:
        """The type, where it is a record."""
        return self.slot.type if isinstance(self.slot.type, Record) else None


def text_shape(*, is_binary: bool = False) -> Shape:
    """Text (or bytes) that no contract describes."""
    kind = Primitive.BYTES if is_binary else Primitive.STRING
    return Shape(Slot(kind), json.dumps(kind.value))


def demand_record(reshaping: Named, name: str, shape: Shape) -> Record:
    """The record that a transformation needs; raises Misfit where the shape is none."""
    if shape.record is None:
        expected = f"a record for the {reshaping.side}, which has no fields here (a contract gives it fields)"
        raise Misfit(f"transforms.{name}.type", reshaping.NAME, expected)
    return shape.record


def pinned(document: JsonValue, namespace: str) -> JsonValue:
    """The outermost names with their namespace written out, so that they keep it wherever the type is put."""
    if isinstance(document, list):
        return [pinned(item, namespace) for item in document]
    if not isinstance(document, dict):
        return document
    if "name" in document:
        is_told = "." in document["name"] or "namespace" in document
        return document if is_told else {**document, "namespace": namespace}
    inner = {key: pinned(item, namespace) for key, item in document.items() if key in {"type", "items", "values"}}
    return {**document, **inner}


def demand_plain_null(name: str, field: Field) -> None:
    """A null that was written stays null here; Connect would put the default in its place."""
    if field.slot.is_nullable and field.has_value_default:
        key = f"transforms.{name}.replace.null.with.default"
        expected = f"false: field {field.name} has a default and may be null, and a null that is given stays one here"
        raise Misfit(key, "true", expected)


def record_document(document: JsonValue, known: dict[str, JsonValue], namespace: str) -> dict[str, JsonValue]:
    """The record's document, wherever in the schema it is written."""
    if isinstance(document, list):
        document = next(item for item in document if item != "null")
    if isinstance(document, str):
        document = known[document if "." in document or not namespace else f"{namespace}.{document}"]
    if isinstance(document["type"], (dict, list)):
        return record_document(document["type"], known, namespace)
    found: dict[str, JsonValue] = document
    return found


def written(document: JsonValue) -> str:
    """An Avro schema as text, the same for the same schema."""
    return json.dumps(document, separators=(",", ":"))
