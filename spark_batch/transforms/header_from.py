"""`HeaderFrom`: copies or moves fields of the key or value into headers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_batch.avro_types import AvroType, Fixed, JsonValue, Primitive
from spark_batch.literals.writing import json_text
from spark_batch.number_forms import NUMBER_FORMS
from spark_batch.outcome import Reason
from spark_batch.transforms.change import Changed, Unchangeable, canonical_items, kind_of_json, opened
from spark_batch.transforms.connect_schema import Document, schema_document
from spark_batch.transforms.connect_values import ConnectValue, connect_value
from spark_batch.transforms.field_texts import fault_of
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
from spark_batch.transforms.halves import (
    ArrowColumn,
    Fault,
    FaultReason,
    Faults,
    Half,
    JsonHalf,
    Origins,
    TypedHalf,
    only_structs,
)
from spark_batch.transforms.header_texts import HeaderText, connect_document
from spark_batch.transforms.records import SINK_HEADERS, Records, is_null, with_header
from spark_batch.transforms.replace_field import ReplaceField
from spark_batch.transforms.shape import Misfit, Shape, demand_plain_null, demand_record

_SLICES: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = b"null"


@dataclass(frozen=True)
class HeaderFrom:
    """A header for each field, of any type: with its text as SimpleHeaderConverter writes it, or as `form` says."""

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
        """The same; raises Misfit where a field is not there, or the header converter has no form for it."""
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

    @property
    def text(self) -> HeaderText:
        """How texts are written."""
        return HeaderText(is_java=self.form is not None and self.form.kind == "string")

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
            changed = self.text.columns(field.slot.connect_type, column)
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
            return _bytes(self.text.of_json(value))
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
            None if value[each.name] is None else self.text.of_canonical(each.slot, value[each.name]).encode()
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
        headers = records.headers
        columns = headers_of_fields(chosen, self.fields, faults, is_told=headers.type == SINK_HEADERS)
        for field, header in zip(self.fields, self.headers, strict=True):
            made = columns.get(field)
            if made is None:
                fault = Fault(FaultReason.MISSING_FIELD, f"Field does not exist: {field[:200]}")
                return (), dict.fromkeys(range(len(records.rows)), fault)
            headers = with_header(headers, header, made.texts, made.envelopes)
        records = replace(records, headers=headers)
        if self.is_moved:
            half, found = _of_half(self.rest, half, origins)
            faults |= found
            records = records.with_half(self.side, half)
        return (records,), faults


def _demand_form(form: HeaderForm | None, kind: AvroType) -> None:
    """Raises Unchangeable where the header converter has no form for a type."""
    if form is None or form.kind == "string":
        HeaderText(is_java=form is not None).demand(kind)
        return
    number = NUMBER_FORMS.get(form.kind)
    if number is not None and kind != number.type:
        raise Unchangeable(f"a field of {number.connect_type}, as the header converter does")
    if form.kind == "bytes" and not (kind is Primitive.BYTES or isinstance(kind, Fixed)):
        raise Unchangeable("a field of bytes, as ByteArrayConverter does")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _of_half(form: ReplaceField, half: Half, origins: Origins) -> tuple[Half, Faults]:
    if isinstance(half, JsonHalf):
        return form.of_texts(half, origins)
    return form.of_columns(half, origins)


@dataclass(frozen=True)
class MadeHeaders:
    """One header for each record."""

    texts: ArrowColumn
    """As SimpleHeaderConverter writes them, in bytes."""
    envelopes: ArrowColumn | None
    """What they are to Connect, as JsonConverter writes it; None where nobody asks."""


def headers_of_fields(
    half: Half, fields: Iterable[str], faults: dict[int, Fault], *, is_told: bool
) -> dict[str, MadeHeaders]:
    """For each field its headers; a field that a schema does not have is not there.

    `faults` gets the rows that are not what their schema says. `is_told`: with envelopes.
    """
    described = _of_texts if isinstance(half, JsonHalf) else _of_columns
    found = described(cast("Any", half), list(dict.fromkeys(fields)))
    return {name: _made(schema, values, faults, is_told=is_told) for name, (schema, values) in found.items()}


_Described: TypeAlias = "dict[str, tuple[Document | None, Iterable[JsonValue]]]"
"""By the name of a field its schema and its values, as `connect_value` takes them."""


def _of_texts(half: JsonHalf, names: Iterable[str]) -> _Described:
    texts = half.column.cast(pa.binary()).to_pylist()
    slices = [{} if text is None else _SLICES.decode(text) for text in texts]
    schemas: dict[str, Document | None] = dict.fromkeys(names)
    if half.schema is not None:
        fields = {field["field"]: field for field in schema_document(half.schema)["fields"]}
        schemas = {
            name: {key: item for key, item in fields[name].items() if key != "field"}
            for name in names
            if name in fields
        }
    return {
        name: (schema, [opened(bytes(each.get(name, _NULL))) for each in slices]) for name, schema in schemas.items()
    }


def _of_columns(half: TypedHalf, names: Iterable[str]) -> _Described:
    record = half.shape.record
    found: _Described = {}
    for at, field in enumerate(() if record is None else record.fields):
        if field.name in names:
            column: Any = pc.struct_field(cast("Any", half.column), [at])
            document = connect_document(field.slot, field)
            found[field.name] = (document, canonical_items(field.slot.connect_type, column))
    return found


def _made(
    schema: Document | None, values: Iterable[JsonValue], faults: dict[int, Fault], *, is_told: bool
) -> MadeHeaders:
    begin = f'{{"schema":{json.dumps(schema, ensure_ascii=False, separators=(",", ":"))},"payload":'
    texts: list[str | None] = []
    envelopes: list[str] = []
    for row, value in enumerate(values):
        text, payload = None, "null"
        try:
            own = connect_value(schema, value)
            text = own.text
            if is_told:
                # Without a schema numbers keep the digits that they came with.
                payload = json_text(value, number=str) if schema is None else _payload(own, text)
        except Inapplicable as error:
            faults.setdefault(row, fault_of(error))
        texts.append(text)
        envelopes.append(f"{begin}{payload}}}")
    column = cast("ArrowColumn", pa.array(texts, pa.string()).cast(pa.binary()))
    return MadeHeaders(column, cast("ArrowColumn", pa.array(envelopes, pa.string())) if is_told else None)


def _payload(value: ConnectValue, text: str | None) -> str:
    """Its JSON; of whole numbers, booleans and what is finite that is their text, which takes time to make."""
    is_same = isinstance(value.value, int) or (isinstance(value.value, float) and math.isfinite(value.value))
    return text if is_same and text is not None else value.payload
