"""`HeaderFrom`: copies or moves fields of the key or value into headers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_batch.avro_types import AvroType, Decimal, Fixed, JsonValue, Primitive, Record, Temporal
from spark_batch.literals.writing import json_text
from spark_batch.number_forms import NUMBER_FORMS
from spark_batch.outcome import Reason
from spark_batch.transforms.cast import Cast, To, connect_kind
from spark_batch.transforms.change import (
    Changed,
    Unchangeable,
    canonical_items,
    changed_json,
    connect_text,
    connect_type,
    kind_of_json,
)
from spark_batch.transforms.connect_schema import DECIMAL, Document, schema_document
from spark_batch.transforms.form import (
    ExactRow,
    FormKey,
    HeaderForm,
    Inapplicable,
    KeyKind,
    KeysRefused,
    KeyValues,
    Side,
    Values,
)
from spark_batch.transforms.halves import ArrowColumn, Fault, FaultReason, Faults, Half, JsonHalf, Origins, only_structs
from spark_batch.transforms.records import SINK_HEADERS, Records, is_null, with_header
from spark_batch.transforms.replace_field import ReplaceField
from spark_batch.transforms.shape import Misfit, Shape, demand_plain_null, demand_record

_TEXT = To(Primitive.STRING)
"""Fields become the texts that Connect's SimpleHeaderConverter writes, which are those of `Cast`."""
_SLICES: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXTS: msgspec.json.Decoder[dict[str, str | None]] = msgspec.json.Decoder(dict[str, str | None])


@dataclass(frozen=True)
class HeaderFrom:
    """A header for each field, with its text as SimpleHeaderConverter writes it."""

    side: Side
    fields: tuple[str, ...]
    headers: tuple[str, ...]
    """Name of the header for each field."""
    is_moved: bool
    is_null_defaulted: bool = True
    form: HeaderForm | None = None
    """How a source's headers are written; None: as SimpleHeaderConverter writes them."""

    NAME: ClassVar[str] = "HeaderFrom"
    ABOUT: ClassVar[str] = "Copies or moves fields of the key or value into headers."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("fields", "Names of the fields.", KeyKind.NAMES, is_required=True, is_important=True),
        FormKey("headers", "Name of the header for each field.", KeyKind.NAMES, is_required=True, is_important=True),
        FormKey(
            "operation",
            "``move`` takes the fields out of the record, ``copy`` leaves them there.",
            KeyKind.CHOICE,
            is_required=True,
            is_important=True,
            choices=("move", "copy"),
        ),
        FormKey(
            "replace.null.with.default",
            "Whether a field that is null is read as its default.",
            KeyKind.BOOLEAN,
            default=True,
        ),
    )

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> HeaderFrom:
        """Refuses lists of different lengths."""
        del is_sink
        if len(values["fields"]) != len(values["headers"]):
            raise KeysRefused(("headers", "as many names as 'fields' has"))
        is_moved = values["operation"] == "move"
        return cls(side, values["fields"], values["headers"], is_moved, values["replace.null.with.default"])

    @property
    def _purpose(self) -> str:
        return f"header {'move' if self.is_moved else 'copy'}"

    @property
    def rest(self) -> ReplaceField:
        """What is left of the record where the fields are moved."""
        return ReplaceField(self.side, self.is_null_defaulted, exclude=frozenset(self.fields))

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """The same; raises Misfit where a field is not there, or has no text."""
        record = demand_record(self, name, shape)
        for own in self.fields:
            field = record.field(own)
            if field is None:
                raise Misfit(f"transforms.{name}.fields", own, f"a field of the {self.side}")
            if self.is_null_defaulted:
                demand_plain_null(name, field)
            try:
                _demand_form(self.form, field.slot.connect_type)
            except Unchangeable as error:
                raise Misfit(f"transforms.{name}.fields", own, str(error)) from error
        return shape

    @property
    def is_text(self) -> bool:
        """Whether headers are texts; else they are written as values are, of `field_shapes`."""
        return self.form is None or self.form.kind == "string"

    def field_shapes(self, shape: Shape) -> list[tuple[str, Shape]]:
        """The fields with what each is."""
        record = demand_record(self, "", shape)
        return [(field.name, Shape(field.slot, "", field)) for field in filter(None, map(record.field, self.fields))]

    def text_columns(self, shape: Shape, value: Values) -> list[Changed]:
        """The text of each field in Spark, as bytes."""
        record = demand_record(self, "", shape)
        found = []
        for field in filter(None, map(record.field, self.fields)):
            column = value.getField(field.name)
            changed = _TEXT.column(field.slot.connect_type, column)
            proof = None if changed.proof is None else column.isNull() | changed.proof
            found.append(Changed(changed.value.cast("binary"), proof))
        return found

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """The same."""
        del name, topic
        return value

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """The same."""
        del shape, row
        return value

    def exact_texts(self, value: JsonValue) -> list[bytes | None]:
        """The text of each field of an object without a schema, null where there is none. Raises Inapplicable."""
        if not isinstance(value, dict):
            raise Inapplicable(Reason.WRONG_TYPE, f"expected an object for a {self._purpose}")
        return [self._exact_text(value.get(field)) for field in self.fields]

    def _exact_text(self, value: JsonValue) -> bytes | None:
        if self.form is None or self.is_text or value is None:
            return _bytes(changed_json(_TEXT, value))
        number = NUMBER_FORMS.get(self.form.kind)
        if number is not None and kind_of_json(value) is number.type:
            return number.written(value)
        if self.form.kind != "json":
            expected = "bytes" if number is None else number.connect_type
            raise Inapplicable(Reason.WRONG_TYPE, f"expected {expected}, as the header converter does")
        text = json_text(value, number=str)
        return (f'{{"schema":null,"payload":{text}}}' if self.form.is_schema_enveloped else text).encode()

    def canonical_texts(self, shape: Shape, value: JsonValue) -> list[bytes | None]:
        """The text of each field of a canonical record. Raises Inapplicable."""
        if value is None:
            raise Inapplicable(Reason.NULL_NOT_ALLOWED, f"expected a record for a {self._purpose}")
        record = demand_record(self, "", shape)
        fields = filter(None, map(record.field, self.fields))
        return [
            None if value[each.name] is None else _bytes(_TEXT.canonical(each.slot.connect_type, value[each.name]))
            for each in fields
        ]

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """With a header for each field. Raises Unfit."""
        half = records.halves[self.side]
        nulls = np.flatnonzero(is_null(half))
        faults = {int(row): only_structs(self._purpose, "null") for row in nulls}
        kept = ReplaceField(self.side, self.is_null_defaulted, include=frozenset(self.fields))
        chosen, found = _of_half(kept, half, origins)
        faults |= found
        casts = tuple((field, _TEXT) for field in dict.fromkeys(self.fields))
        texts, found = _of_half(Cast(self.side, self.is_null_defaulted, casts), chosen, origins)
        faults |= found
        columns = texts_of_fields(texts, self.fields)
        headers = records.headers
        for field, header in zip(self.fields, self.headers, strict=True):
            column = columns.get(field)
            if column is None:
                fault = Fault(FaultReason.MISSING_FIELD, f"Field does not exist: {field[:200]}")
                return (), dict.fromkeys(range(len(records.rows)), fault)
            made = envelopes_of_field(chosen, field) if headers.type == SINK_HEADERS else None
            headers = with_header(headers, header, column, made)
        records = replace(records, headers=headers)
        if self.is_moved:
            half, found = _of_half(self.rest, half, origins)
            faults |= found
            records = records.with_half(self.side, half)
        return (records,), faults


def _demand_form(form: HeaderForm | None, kind: AvroType) -> None:
    """Raises Unchangeable where the header converter has no form for a type."""
    if form is None or form.kind == "string":
        _TEXT.kind(kind)
    own = connect_kind(kind)
    is_binary = own is Primitive.BYTES or isinstance(own, Fixed)
    if form is not None and form.kind == "string" and (is_binary or isinstance(own, Temporal)):
        raise Unchangeable("a field of numbers, text or booleans, of which StringConverter writes what people read")
    number = None if form is None else NUMBER_FORMS.get(form.kind)
    if number is not None and kind != number.type:
        raise Unchangeable(f"a field of {number.connect_type}, as the header converter does")
    if form is not None and form.kind == "bytes" and not is_binary:
        raise Unchangeable("a field of bytes, as ByteArrayConverter does")


def _bytes(text: JsonValue) -> bytes | None:
    return None if text is None else str(text).encode()


def _of_half(form: Cast | ReplaceField, half: Half, origins: Origins) -> tuple[Half, Faults]:
    if isinstance(half, JsonHalf):
        return form.of_texts(half, origins)
    return form.of_columns(half, origins)


def texts_of_fields(half: Half, fields: Sequence[str]) -> dict[str, ArrowColumn]:
    """For each field its texts in bytes; a field that a schema does not have is not there."""
    if isinstance(half, JsonHalf):
        objects = [{} if text is None else _TEXTS.decode(text) for text in half.column.cast(pa.binary()).to_pylist()]
        known = fields if half.schema is None else _fields_of(half.schema)
        return {
            field: pa.array([each.get(field) for each in objects], pa.string()).cast(pa.binary())
            for field in fields
            if field in known
        }
    record = half.shape.record
    names = [] if record is None else [field.name for field in record.fields]
    column: Any = half.column
    return {name: cast("ArrowColumn", pc.struct_field(column, [at]).cast(pa.binary())) for at, name in enumerate(names)}


def envelopes_of_field(half: Half, name: str) -> ArrowColumn:
    """For each record what a field is to Connect, with its schema, as JsonConverter writes it."""
    if isinstance(half, JsonHalf):
        schema: Document | None = None
        if half.schema is not None:
            found = next(each for each in schema_document(half.schema)["fields"] if each["field"] == name)
            schema = {key: item for key, item in found.items() if key != "field"}
        objects = [{} if text is None else _SLICES.decode(text) for text in half.column.cast(pa.binary()).to_pylist()]
        payloads = [bytes(each[name]).decode() if name in each else "null" for each in objects]
    else:
        fields = cast("Record", half.shape.record).fields
        at = [field.name for field in fields].index(name)
        kind = connect_kind(fields[at].slot.connect_type)
        schema = {**connect_document(kind), "optional": fields[at].slot.is_nullable}
        column: Any = pc.struct_field(cast("Any", half.column), [at])
        payloads = [connect_text(kind, item).decode() for item in canonical_items(kind, column)]
    begin = f'{{"schema":{json.dumps(schema, ensure_ascii=False, separators=(",", ":"))},"payload":'
    return cast("ArrowColumn", pa.array([f"{begin}{payload}}}" for payload in payloads], pa.string()))


def connect_document(kind: AvroType) -> Document:
    """Connect's schema of a field that has a text, but for whether it may be null."""
    if isinstance(kind, Decimal):
        return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": str(kind.scale)}}
    if isinstance(kind, Fixed) or kind is Primitive.BYTES:
        return {"type": "bytes"}
    return connect_type(kind)


def _fields_of(schema: str) -> list[str]:
    return [field["field"] for field in msgspec.json.decode(schema)["fields"]]
