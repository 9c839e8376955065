"""Change events as Debezium makes them: known by the name of their schema, with a row before and a row after.

The form is that of ``io.debezium.data.Envelope``:
https://debezium.io/documentation/reference/3.5/connectors/postgresql.html#postgresql-change-event-values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow.compute as pc

from spark_batch.avro_types import Primitive, Record
from spark_batch.transforms.connect_schema import Document, schema_document
from spark_batch.transforms.halves import (
    Fault,
    FaultReason,
    Half,
    Mask,
    NoObjectError,
    TypedHalf,
    Unfit,
    object_of,
    texts_of,
)
from spark_batch.transforms.shape import Misfit

AFTER, BEFORE = "after", "before"
_ENDING = ".Envelope"
_PARENTS = {"id": "transaction", "total_order": "transaction", "data_collection_order": "transaction"}
"""In which struct of an envelope a field lies that is named alone; others are in `source`."""
_ITSELF = frozenset({"op", "ts_ms", "ts_us", "ts_ns"})
"""Fields of the envelope itself."""


@dataclass(frozen=True)
class Reference:
    """A field of the envelope that is added to the row, or to the headers."""

    parent: str | None
    """Struct in which it lies."""
    field: str
    name: str
    """Its name afterwards."""

    @classmethod
    def read(cls, text: str, prefix: str) -> Reference:
        """`op`, `source.ts_ms` or `lsn`, each with `:name` behind it or not; raises ValueError."""
        path, colon, name = text.partition(":")
        parent, dot, field = path.rpartition(".")
        if not field or "." in parent or (dot and not parent) or (colon and (not name or ":" in name)):
            raise ValueError(text)
        told = name or (f"{parent}_{field}" if dot else field)
        known = parent if dot else None if field in _ITSELF else _PARENTS.get(field, "source")
        return cls(known, field, f"{prefix}{told}")

    def path(self, alias: str, envelope: Record) -> tuple[str, ...] | None:
        """Where it lies; None where there is no such field. Raises Misfit."""
        if self.parent is not None:
            outer = envelope.field(self.parent)
            if outer is None or not isinstance(outer.slot.type, Record):
                raise Misfit(f"transforms.{alias}.add.fields", self.parent, "a struct of the change event")
            if outer.slot.type.field(self.field) is not None:
                return self.parent, self.field
        return None if envelope.field(self.field) is None else (self.field,)


def is_envelope(record: Record | None) -> bool:
    """Whether it is the record of a change event."""
    if record is None:
        return False
    name = record.connect.name if record.connect is not None and record.connect.name else record.name
    return name.endswith(_ENDING)


def is_envelope_half(half: Half) -> bool:
    """Whether its values are change events, by the name of their schema."""
    if isinstance(half, TypedHalf):
        return half.is_record and is_envelope(half.shape.record)
    if half.schema is None:
        return False
    name = schema_document(half.schema).get("name")
    return isinstance(name, str) and name.endswith(_ENDING)


def nulls_at(half: Half, name: str) -> Mask:
    """Where the event has no such row; raises Unfit."""
    if name not in field_names(half):
        raise Unfit(Fault(FaultReason.MISSING_FIELD, f"Unknown field: {name}", "java.lang.IllegalArgumentException"))
    if isinstance(half, TypedHalf):
        record = cast("Record", half.shape.record)
        at = [field.name for field in record.fields].index(name)
        return as_mask(pc.struct_field(cast("Any", half.column), [at]).is_null())
    return np.array([_is_null_in(text, name) for text in texts_of(half.column)], dtype=bool)


def _is_null_in(text: bytes | None, name: str) -> bool:
    try:
        found = object_of(text or b"null").get(name)
    except NoObjectError:
        # Refused where its fields are taken.
        return False
    return found is None or bytes(found) == b"null"


def field_names(half: Half) -> list[str]:
    """The fields that its schema has."""
    if isinstance(half, TypedHalf):
        return [] if half.shape.record is None else [field.name for field in half.shape.record.fields]
    document = {} if half.schema is None else schema_document(half.schema)
    return [field["field"] for field in document.get("fields", ())]


def is_text(half: Half) -> bool:
    """Whether the one field of a half is a text."""
    if isinstance(half, TypedHalf):
        return half.shape.record is not None and half.shape.record.fields[0].slot.type is Primitive.STRING
    return half.schema is not None and schema_document(half.schema)["fields"][0]["type"] == "string"


def row_document(envelope: Document) -> Document:
    """The row's record in the envelope's Avro schema, written out where it is named first."""
    for field in envelope["fields"]:
        branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
        for branch in branches:
            if field["name"] in {BEFORE, AFTER} and isinstance(branch, dict) and branch.get("type") == "record":
                return cast("Document", branch)
    raise Misfit("transforms", json.dumps(envelope)[:100], "a change event whose rows are records")


def as_mask(column: Any) -> Mask:
    """A column of truth values that has no null."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
