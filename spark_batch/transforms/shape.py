"""What a key or value looks like before and after each transformation: its type, and the Avro schema that says so.

Pure: a transformation that does not fit is told before any record is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from spark_batch.avro_documents import definitions, inlined, namespace_of, without_json_names
from spark_batch.avro_types import Field, JsonValue, Primitive, Record, Slot, Temporal
from spark_batch.transforms.kinds import ExtractField, FieldName, HoistField, InsertField
from spark_batch.transforms.tracks import Leg

_HOISTED = {"type": "record", "name": "ConnectDefault", "namespace": "io.confluent.connect.avro"}
"""A record without a name, as Confluent's converter writes it."""
_TIMESTAMP = {
    "type": "long",
    "connect.version": 1,
    "connect.name": "org.apache.kafka.connect.data.Timestamp",
    "logicalType": "timestamp-millis",
}


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


def shape_after(legs: Iterable[Leg], shape: Shape) -> Shape:
    """The shape at the end; raises Misfit."""
    for leg in legs:
        shape = reshaped(leg, shape)
    return shape


def reshaped(leg: Leg, shape: Shape) -> Shape:
    """The shape after one transformation; raises Misfit."""
    reshaping = leg.reshaping
    if isinstance(reshaping, HoistField):
        return _hoisted(reshaping, shape)
    record = shape.record
    if record is None:
        expected = f"a record for the {reshaping.side}, which has no fields here (a contract gives it fields)"
        raise Misfit(f"transforms.{leg.name}.type", type(reshaping).__name__, expected)
    if isinstance(reshaping, InsertField):
        return _inserted(leg, reshaping, record, shape)
    return _extracted(leg, reshaping, shape)


def inserted_fields(insert: InsertField) -> list[Field]:
    """The fields that are added, in Connect's order."""
    kinds = (
        (insert.topic, Primitive.STRING),
        (insert.partition, Primitive.INT),
        (insert.offset, Primitive.LONG),
        (insert.timestamp, Temporal.TIMESTAMP_MILLIS),
        (insert.static, Primitive.STRING),
    )
    return [
        Field(named.name, named.name, Slot(kind, named.is_optional), default="null" if named.is_optional else None)
        for named, kind in kinds
        if named is not None
    ]


def _inserted(leg: Leg, insert: InsertField, record: Record, shape: Shape) -> Shape:
    added = inserted_fields(insert)
    names = [field.name for field in (*record.fields, *added)]
    for field in added:
        if names.count(field.name) > 1:
            key = f"transforms.{leg.name}.{_key_of(insert, field.name)}"
            raise Misfit(key, field.name, "a name that no other field has")
    if insert.is_null_defaulted:
        for field in record.fields:
            _demand_plain_null(leg, field)
    document = json.loads(shape.avro)
    branch = document if isinstance(document, dict) else next(item for item in document if item != "null")
    branch["fields"] = [*branch["fields"], *map(_field_document, added)]
    kind = replace(record, fields=(*record.fields, *added))
    return replace(shape, slot=replace(shape.slot, type=kind), avro=_written(document))


def _key_of(insert: InsertField, name: str) -> str:
    named: tuple[tuple[str, FieldName | None], ...] = (
        ("static.field", insert.static),
        ("timestamp.field", insert.timestamp),
        ("offset.field", insert.offset),
        ("partition.field", insert.partition),
    )
    return next((key for key, field in named if field is not None and field.name == name), "topic.field")


def _field_document(field: Field) -> JsonValue:
    kind: JsonValue = field.slot.type.value if isinstance(field.slot.type, Primitive) else _TIMESTAMP
    if not field.slot.is_nullable:
        return {"name": field.name, "type": kind}
    return {"name": field.name, "type": ["null", kind], "default": None}


def _hoisted(hoist: HoistField, shape: Shape) -> Shape:
    origin = shape.origin
    field = Field(
        hoist.field,
        hoist.field,
        shape.slot,
        default=origin.default if origin else None,
        doc=origin.doc if origin else None,
    )
    inner = _pinned(json.loads(shape.avro), "")
    document = {**_HOISTED, "fields": [{"name": hoist.field, "type": inner}]}
    return Shape(Slot(Record("", (field,))), _written(document))


def _pinned(document: JsonValue, namespace: str) -> JsonValue:
    """The outermost names with their namespace written out, so that they keep it wherever the type is put."""
    if isinstance(document, list):
        return [_pinned(item, namespace) for item in document]
    if not isinstance(document, dict):
        return document
    if "name" in document:
        is_told = "." in document["name"] or "namespace" in document
        return document if is_told else {**document, "namespace": namespace}
    inner = {key: _pinned(item, namespace) for key, item in document.items() if key in {"type", "items", "values"}}
    return {**document, **inner}


def _extracted(leg: Leg, extract: ExtractField, shape: Shape) -> Shape:
    whole = json.loads(shape.avro)
    known = definitions(whole, "")
    slot, document, namespace = shape.slot, whole, ""
    field: Field | None = None
    is_nullable = slot.is_nullable
    for name in extract.path:
        field = slot.type.field(name) if isinstance(slot.type, Record) else None
        if field is None:
            key = f"transforms.{leg.name}.field"
            raise Misfit(key, ".".join(extract.path), f"a field of the {extract.side}")
        branch = _record_document(document, known, namespace)
        namespace = namespace_of(branch) or namespace
        document = next(item["type"] for item in branch["fields"] if item["name"] == name)
        slot, is_nullable = field.slot, is_nullable or field.slot.is_nullable
    if field is not None and extract.is_null_defaulted:
        _demand_plain_null(leg, field)
    avro = _pinned(inlined(without_json_names(document), known, set(), namespace), namespace)
    if is_nullable and not slot.is_nullable:
        avro = ["null", avro]
    return Shape(Slot(slot.type, is_nullable), _written(avro), field)


def _record_document(document: JsonValue, known: dict[str, JsonValue], namespace: str) -> dict[str, JsonValue]:
    """The record's document, wherever in the schema it is written."""
    if isinstance(document, list):
        document = next(item for item in document if item != "null")
    if isinstance(document, str):
        document = known[document if "." in document or not namespace else f"{namespace}.{document}"]
    if isinstance(document["type"], (dict, list)):
        return _record_document(document["type"], known, namespace)
    found: dict[str, JsonValue] = document
    return found


def _demand_plain_null(leg: Leg, field: Field) -> None:
    """A null that was written stays null here; Connect would put the default in its place."""
    if field.slot.is_nullable and field.has_value_default:
        key = f"transforms.{leg.name}.replace.null.with.default"
        expected = f"false: field {field.name} has a default and may be null, and a null that is given stays one here"
        raise Misfit(key, "true", expected)


def _written(document: JsonValue) -> str:
    return json.dumps(document, separators=(",", ":"))
