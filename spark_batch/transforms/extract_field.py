"""`ExtractField`: puts one field in place of the whole key or value."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, cast

import msgspec
import pyarrow.compute as pc

from spark_batch.avro_documents import definitions, inlined, namespace_of, without_json_names
from spark_batch.avro_types import Field, JsonValue, Record, Slot
from spark_batch.outcome import Reason
from spark_batch.transforms.connect_schema import Document, has_fields, java_class_of_schema, schema_document
from spark_batch.transforms.form import (
    ExactRow,
    FormKey,
    Inapplicable,
    KeyKind,
    KeysRefused,
    KeyValues,
    Row,
    Side,
    Values,
)
from spark_batch.transforms.halves import (
    Fault,
    FaultReason,
    Faults,
    JsonHalf,
    NoObjectError,
    Origins,
    TypedHalf,
    Unfit,
    defaulted,
    java_class_of_type,
    json_half,
    no_object,
    object_of,
    only_structs,
    texts_of,
    typed,
)
from spark_batch.transforms.shape import (
    Misfit,
    Shape,
    demand_plain_null,
    demand_record,
    pinned,
    record_document,
    written,
)

_PURPOSE, _NESTED = "field extraction", "nested field access"
"""Connect's words for what it does, in its errors."""
_NAME = re.compile(r"`(?P<quoted>(?:[^`\\]|\\.)+?)`(?=\.|\Z)|(?P<plain>[^.`][^.]*)", re.DOTALL)


class FieldPathError(ValueError):
    """The text is no path."""


def field_path(text: str) -> tuple[str, ...]:
    """The names of a path in Connect's syntax V2 (KIP-821).

    Dots lead into records, back-ticks go around names that have dots themselves. Raises FieldPathError.
    """
    names = []
    at = 0
    while True:
        found = _NAME.match(text, at)
        if found is None:
            raise FieldPathError(f"no name at {at}")
        quoted = found["quoted"]
        names.append(found["plain"] if quoted is None else quoted.replace("\\`", "`"))
        at = found.end()
        if at == len(text):
            return tuple(names)
        if text[at] != ".":
            raise FieldPathError(f"expected a dot at {at}")
        at += 1


@dataclass(frozen=True)
class ExtractField:
    """Puts one field in place of the whole; `path` has several names where fields lie in records in records."""

    side: Side
    path: tuple[str, ...]
    is_null_defaulted: bool = True
    """Connect's `replace.null.with.default`."""

    NAME: ClassVar[str] = "ExtractField"
    ABOUT: ClassVar[str] = "Puts one field in place of the whole key or value."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("field", "Name of the field; with ``field.syntax.version=V2`` a dotted path.", is_required=True),
        FormKey(
            "field.syntax.version",
            "``V2``: dots lead into records in records; back-ticks go around names that have dots themselves.",
            KeyKind.CHOICE,
            default="V1",
            is_important=True,
            choices=("V1", "V2"),
        ),
        FormKey(
            "replace.null.with.default",
            "Whether a field that is null is read as its default.",
            KeyKind.BOOLEAN,
            default=True,
        ),
    )
    takes_nulls: ClassVar[bool] = True
    """A field is taken from a null as well: its schema must have it."""

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> ExtractField:
        """The path, which the syntax says how to read."""
        del is_sink
        text = values["field"]
        try:
            path = field_path(text) if values["field.syntax.version"] == "V2" else (text,)
        except FieldPathError as error:
            raise KeysRefused(("field", f"a path of the syntax V2 ({error})")) from error
        return cls(side, path, is_null_defaulted=values["replace.null.with.default"])

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """The field's type, nullable where a record on the way to it is; its default and text go with it."""
        demand_record(self, name, shape)
        whole = json.loads(shape.avro)
        known = definitions(whole, "")
        slot, document, namespace = shape.slot, whole, ""
        field: Field | None = None
        is_nullable = slot.is_nullable
        for step in self.path:
            field = slot.type.field(step) if isinstance(slot.type, Record) else None
            if field is None:
                raise Misfit(f"transforms.{name}.field", ".".join(self.path), f"a field of the {self.side}")
            branch = record_document(document, known, namespace)
            namespace = namespace_of(branch) or namespace
            document = next(item["type"] for item in branch["fields"] if item["name"] == step)
            slot, is_nullable = field.slot, is_nullable or field.slot.is_nullable
        if field is not None and self.is_null_defaulted:
            demand_plain_null(name, field)
        avro = pinned(inlined(without_json_names(document), known, set(), namespace), namespace)
        if is_nullable and not slot.is_nullable:
            avro = ["null", avro]
        return Shape(Slot(slot.type, is_nullable, connect=slot.connect), written(avro), field)

    def column(self, shape: Shape, value: Values, row: Row) -> Values:
        """The field of the struct."""
        del shape, row
        found = value.getField(self.path[0])
        for name in self.path[1:]:
            found = found.getField(name)
        return found

    def proof(self, shape: Shape, value: Values) -> None:
        """Nothing is left to prove."""

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """A field that is missing is not null: Connect would make a tombstone of the record."""
        del topic
        for step in self.path:
            if not isinstance(value, dict):
                raise Inapplicable(Reason.WRONG_TYPE, f"transformation {name}: expected an object")
            if step not in value:
                raise Inapplicable(Reason.MISSING_FIELD, f"transformation {name}: expected field {step[:100]}")
            value = value[step]
        return value

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """The field; null where a record on the way to it is."""
        del shape, row
        for step in self.path:
            value = None if value is None else value[step]
        return value

    def of_texts(self, half: JsonHalf, origins: Origins) -> tuple[JsonHalf, Faults]:
        """Slices of the texts; without a schema a field that is not there is null, as in Connect."""
        del origins
        fields = None if half.schema is None else _fields_on(half.schema, self.path)
        schema = None
        if fields is not None:
            kept = {key: value for key, value in fields[-1].items() if key != "field"}
            schema = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
        faults: dict[int, Fault] = {}
        made: list[bytes | None] = []
        for row, text in enumerate(texts_of(half.column)):
            value = text
            for index, name in enumerate(self.path):
                try:
                    value = None if value is None else _field(value, name, None if fields is None else fields[index])
                except NoObjectError:
                    faults[row] = no_object(half, value, _NESTED if index else _PURPOSE)
                    value = None
                except _MissingError as error:
                    faults[row] = Fault(FaultReason.MISSING_FIELD, str(error))
                    value = None
            made.append(value)
        return json_half(made, schema), faults

    def of_columns(self, half: TypedHalf, origins: Origins) -> tuple[TypedHalf, Faults]:
        """One column of the struct."""
        del origins
        slot, column, is_there = half.shape.slot, half.column, half.column.is_valid()
        field: Field | None = None
        for name in self.path:
            if not isinstance(slot.type, Record):
                raise _no_struct(java_class_of_type(slot.connect_type), is_nested=field is not None)
            field = slot.type.field(name)
            if field is None:
                raise Unfit(_unknown(self.path))
            is_there = column.is_valid()
            column = pc.struct_field(cast("Any", column), [slot.type.fields.index(field)])
            slot = field.slot
        faults: dict[int, Fault] = {}
        if field is not None and self.is_null_defaulted:
            column = defaulted(field, column, is_there, faults)
        # Nulls are filled in here, so that no default is in the way of the shape.
        return typed(column, _shape_after(replace(self, is_null_defaulted=False), half.shape)), faults


@lru_cache(maxsize=1024)
def _shape_after(extract: ExtractField, shape: Shape) -> Shape:
    """Once for each schema."""
    return extract.reshaped("", shape)


class _MissingError(Exception):
    """A required field is not there."""


@lru_cache(maxsize=1024)
def _fields_on(text: str, path: tuple[str, ...]) -> tuple[Document, ...]:
    """The fields that a path goes through, the one it leads to last. Raises Unfit."""
    document = schema_document(text)
    found: list[Document] = []
    for name in path:
        if document["type"] != "struct" or not has_fields(document):
            raise _no_struct(java_class_of_schema(document), is_nested=bool(found))
        field = next((field for field in document["fields"] if field["field"] == name), None)
        if field is None:
            raise Unfit(_unknown(path))
        found.append(field)
        document = field
    return tuple(found)


def _field(text: bytes, name: str, field: Document | None) -> bytes | None:
    """One field's text; None for a null and, without a schema, for a field that is not there."""
    found = object_of(text).get(name)
    raw = None if found is None else bytes(found)
    if raw is not None and raw != b"null":
        return raw
    if field is None:
        return None
    if field.get("default") is not None:
        return msgspec.json.encode(field["default"])
    if not field.get("optional", False):
        raise _MissingError(f"Invalid null value for required {field['type'].upper()} field")
    return None


def _no_struct(found: str, *, is_nested: bool) -> Unfit:
    """A field is asked for where the schema has none; of a value that is there its class is told."""
    lookup = Fault(FaultReason.WRONG_TYPE, "Cannot look up fields on non-struct type")
    return Unfit(lookup if is_nested else only_structs(_PURPOSE, found), lookup)


def _unknown(path: tuple[str, ...]) -> Fault:
    """The schema has no such field."""
    exception = "java.lang.IllegalArgumentException"
    return Fault(FaultReason.MISSING_FIELD, f"Unknown field: {'.'.join(path)[:200]}", exception)
