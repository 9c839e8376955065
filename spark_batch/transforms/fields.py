"""Transformations of the fields of a record: which fields there are afterwards, and what is done to the value of each.

`OfFields` makes all forms of such a transformation from two sayings: `taken` for records whose fields have types, and
`loose` for JSON objects that no schema describes. So what a transformation does stands in its own file once, and this
file knows how it is done to types, Avro schemas, Spark's columns, single records, a sink's texts and a sink's columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_batch.avro_documents import definitions, inlined, namespace_of, without_json_names
from spark_batch.avro_types import AvroType, Field, JsonValue, Record, Slot
from spark_batch.literals.writing import json_text
from spark_batch.outcome import Reason
from spark_batch.transforms.change import (
    Change,
    Taken,
    Unchangeable,
    arrow_items,
    avro_type,
    canonical_items,
    changed_json,
    opened,
)
from spark_batch.transforms.connect_schema import Document
from spark_batch.transforms.field_texts import fault_of, texts_after
from spark_batch.transforms.form import ExactRow, FormKey, Inapplicable, KeyKind, Parts, Row, Side, Values, joined
from spark_batch.transforms.halves import (
    ArrowColumn,
    Fault,
    FaultReason,
    Faults,
    JsonHalf,
    Origins,
    TypedHalf,
    Unfit,
    defaulted,
    java_class_of_type,
    only_structs,
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

if TYPE_CHECKING:
    from pyspark.sql import Column

NULL_KEY = FormKey(
    "replace.null.with.default",
    "Whether a field that is null is read as its default.",
    KeyKind.BOOLEAN,
    default=True,
)
Opened = Callable[[Any], JsonValue]
"""Gives the value of a field that `loose` wants to look at; what it does not open stays as it was written."""
_CACHED = 1024


@dataclass(frozen=True)
class OfFields:
    """A transformation of fields, or of a whole that is none (`whole`)."""

    side: Side
    is_null_defaulted: bool = True
    """Connect's `replace.null.with.default`."""

    NAME: ClassVar[str] = ""
    PURPOSE: ClassVar[str] = ""
    """Connect's words for what it does, in its errors."""
    NAMING_KEY: ClassVar[str] = "type"
    """The key to mend where names do not fit."""
    takes_nulls: ClassVar[bool] = False
    refuses_nulls: ClassVar[bool] = False
    """Whether a null of a sink is refused, as some of Connect's classes do."""
    is_optional_kept: ClassVar[bool] = False
    """Whether a struct that was optional is so afterwards: Connect's classes differ in it."""

    @property
    def whole(self) -> Change | None:
        """What is done to a key or value as a whole, where its fields are of no account."""
        return None

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """The fields afterwards; `name` is the alias. Raises Misfit."""
        raise NotImplementedError

    def loose(self, fields: Mapping[str, Any], value_of: Opened) -> dict[str, Any]:
        """The fields of an object without a schema afterwards. Raises Inapplicable."""
        raise NotImplementedError

    def renamed(self, record: Record, document: Document) -> tuple[str, Document]:
        """The record's name afterwards, and the attributes of its Avro schema without fields."""
        return record.name, {key: item for key, item in document.items() if key != "fields"}

    def renamed_document(self, document: Document) -> Document:
        """What is kept of a struct's Connect schema."""
        return {key: document[key] for key in ("name", "version", "doc", "parameters") if key in document}

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """The record of the fields afterwards."""
        if self.whole is not None:
            return _whole_shape(self, self.whole, name, shape)
        record = demand_record(self, name, shape)
        taken = self.taken(name, record)
        names = [each.name for each in taken]
        for own in names:
            if names.count(own) > 1:
                raise Misfit(f"transforms.{name}.{self.NAMING_KEY}", own, "a name that no other field has")
        document = json.loads(shape.avro)
        branch = record_document(document, definitions(document, ""), "")
        writer = FieldWriter(document, branch, record)
        fields, documents = [], []
        for each in taken:
            for old in _on(record, each.path):
                if self.is_null_defaulted and each.has_default:
                    demand_plain_null(name, old)
            try:
                field, its_document = writer.field(each)
            except Unchangeable as error:
                raise Misfit(f"transforms.{name}.{self.NAMING_KEY}", ".".join(each.path), str(error)) from error
            fields.append(field)
            documents.append(its_document)
        full, kept = self.renamed(record, branch)
        avro: JsonValue = {**kept, "fields": documents}
        if isinstance(document, list):
            avro = [avro if item is branch or isinstance(item, dict) else item for item in document]
        return replace(
            shape, slot=replace(shape.slot, type=replace(record, name=full, fields=tuple(fields))), avro=written(avro)
        )

    def column(self, shape: Shape, value: Values, row: Row) -> Values:
        """The columns of the fields afterwards."""
        del row
        if self.whole is not None:
            return self.whole.column(shape.slot.connect_type, joined(value)).value
        columns = {}
        for each, kind in _typed_fields(self, demand_record(self, "", shape)):
            leaf = _leaf(value, each.path)
            column = leaf if each.change is None else each.change.column(kind, leaf).value
            columns[each.name] = column
        return Parts(columns, value.isNotNull())

    def proof(self, shape: Shape, value: Values) -> Column | None:
        """Where every change is sure."""
        if self.whole is not None:
            whole = joined(value)
            found = self.whole.column(shape.slot.connect_type, whole).proof
            return None if found is None else whole.isNull() | found
        proofs = []
        for each, kind in _typed_fields(self, demand_record(self, "", shape)):
            leaf = _leaf(value, each.path)
            proof = None if each.change is None else each.change.column(kind, leaf).proof
            if proof is not None:
                proofs.append(leaf.isNull() | proof)
        return reduce(lambda left, right: left & right, proofs) if proofs else None

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """A JSON value afterwards; raises Inapplicable."""
        del topic
        try:
            if self.whole is not None:
                return changed_json(self.whole, value)
            if isinstance(value, dict):
                return self.loose(value, lambda found: found)
        except Inapplicable as error:
            raise Inapplicable(error.reason, f"transformation {name}: {error.message}") from error
        raise Inapplicable(Reason.WRONG_TYPE, f"transformation {name}: expected an object")

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """The object of the fields afterwards; raises Inapplicable."""
        del row
        if value is None:
            return None
        if self.whole is not None:
            return self.whole.canonical(shape.slot.connect_type, value)
        found = {}
        for each, kind in _typed_fields(self, cast("Record", shape.slot.type)):
            leaf = value
            for step in each.path:
                leaf = None if leaf is None else leaf[step]
            found[each.name] = leaf if leaf is None or each.change is None else each.change.canonical(kind, leaf)
        return found

    def of_texts(self, half: JsonHalf, origins: Origins) -> tuple[JsonHalf, Faults]:
        """Slices of the texts; what is not changed stays as it was written."""
        del origins
        return texts_after(self, half)

    def of_columns(self, half: TypedHalf, origins: Origins) -> tuple[TypedHalf, Faults]:
        """The columns of the struct, those that are changed value by value."""
        del origins
        faults: dict[int, Fault] = {}
        # Nulls are filled in here, so that no default is in the way of the shape.
        shape = _shape_after(replace(self, is_null_defaulted=False), half.shape)
        if self.whole is not None:
            column = _changed_column(
                self.whole, (half.shape.slot.connect_type, shape.slot.connect_type), half.column, faults
            )
            return typed(column, shape), faults
        record = half.shape.record
        if self.refuses_nulls:
            nulls = np.flatnonzero(half.column.is_null().to_numpy(zero_copy_only=False))
            faults |= {int(row): only_structs(self.PURPOSE, "null") for row in nulls}
        if record is None:
            raise Unfit(only_structs(self.PURPOSE, java_class_of_type(half.shape.slot.connect_type)))
        children = []
        after = cast("Record", shape.slot.type)
        for (each, kind), field in zip(_typed_fields(self, record), after.fields, strict=True):
            column, is_there, slot = half.column, half.column.is_valid(), half.shape.slot
            for old in _on(record, each.path):
                is_there = column.is_valid()
                column = pc.struct_field(cast("Any", column), [cast("Record", slot.type).fields.index(old)])
                slot = old.slot
                if self.is_null_defaulted and each.has_default:
                    column = defaulted(old, column, is_there, faults)
            if each.change is not None:
                column = _changed_column(each.change, (kind, field.slot.connect_type), column, faults)
            children.append(column)
        arrow = [
            pa.field(field.name, column.type, nullable=field.slot.is_nullable)
            for field, column in zip(after.fields, children, strict=True)
        ]
        mask: Any = half.column.is_null()
        return typed(pa.StructArray.from_arrays(children, fields=arrow, mask=mask), shape), faults


class FieldWriter:
    """Writes Avro's schemas of single fields; a type named elsewhere is written out where it is first used."""

    def __init__(self, document: JsonValue, branch: Document, record: Record) -> None:
        self._known = definitions(document, "")
        self._written: set[str] = set()
        self._branch, self._record = branch, record

    def field(self, taken: Taken) -> tuple[Field, Document]:
        """The field and its document; raises Unchangeable."""
        branch, namespace = self._branch, namespace_of(self._branch)
        on = list(_on(self._record, taken.path))
        document: Document = {}
        for at, step in enumerate(taken.path):
            document = next(item for item in branch["fields"] if item["name"] == step)
            if at + 1 < len(taken.path):
                branch = record_document(document["type"], self._known, namespace)
                namespace = namespace_of(branch) or namespace
        last = on[-1]
        is_nullable = any(field.slot.is_nullable for field in on) if taken.is_optional is None else taken.is_optional
        before = last.slot.connect_type
        kind = before if taken.change is None else taken.change.kind(before)
        has_value_default = last.has_value_default and taken.has_default
        default = last.default if taken.has_default else None
        if taken.change is not None and has_value_default and default is not None:
            value = opened(default.encode())
            try:
                default = json_text(taken.change.canonical(before, value), number=str)
            except Inapplicable as error:
                raise Unchangeable(f"a default that can be changed so ({error.message})") from error
        if kind == before:
            inner = inlined(without_json_names(document["type"]), self._known, self._written, namespace)
            inner = pinned(inner, namespace) if len(taken.path) > 1 else inner
            branches = inner if isinstance(inner, list) else [inner]
        else:
            branches = [avro_type(kind)]
        avro: list[JsonValue] = [item for item in branches if item != "null"]
        if is_nullable:
            avro.insert(len(avro) if has_value_default else 0, "null")
        kept = {key: item for key, item in without_json_names(document).items() if key != "default"}
        whole = {**kept, "name": taken.name, "type": avro if len(avro) > 1 else avro[0]}
        if default is not None and (has_value_default or is_nullable):
            whole["default"] = document["default"] if kind == before and "default" in document else json.loads(default)
        slot = (
            Slot(last.slot.type, is_nullable, connect=last.slot.connect) if kind == before else Slot(kind, is_nullable)
        )
        field = Field(taken.name, taken.name, slot, default=default, doc=last.doc)
        return field, whole


def _whole_shape(form: OfFields, change: Change, name: str, shape: Shape) -> Shape:
    """Of a key or value that is changed as a whole."""
    try:
        kind = change.kind(shape.slot.connect_type)
    except Unchangeable as error:
        raise Misfit(f"transforms.{name}.{form.NAMING_KEY}", form.NAME, str(error)) from error
    if kind == shape.slot.connect_type:
        return shape
    avro = avro_type(kind)
    return Shape(Slot(kind, shape.slot.is_nullable), written(["null", avro] if shape.slot.is_nullable else avro))


def _on(record: Record, path: tuple[str, ...]) -> Iterator[Field]:
    """The fields that a path goes through."""
    kind: AvroType = record
    for name in path:
        field = cast("Record", kind).field(name)
        assert field is not None  # noqa: S101 - told to the type checker: paths are made from the record
        yield field
        kind = field.slot.type


@lru_cache(maxsize=_CACHED)
def _typed_fields(form: OfFields, record: Record) -> tuple[tuple[Taken, AvroType], ...]:
    """What is taken, with the type of each before its change; worked out once for each record's type."""
    return tuple((each, list(_on(record, each.path))[-1].slot.connect_type) for each in form.taken("", record))


@lru_cache(maxsize=_CACHED)
def _shape_after(form: OfFields, shape: Shape) -> Shape:
    """Once for each schema; raises Unfit."""
    if form.whole is None and shape.record is None:
        raise Unfit(only_structs(form.PURPOSE, java_class_of_type(shape.slot.connect_type)))
    try:
        return form.reshaped("", shape)
    except Misfit as misfit:
        raise Unfit(Fault(FaultReason.WRONG_TYPE, f"{misfit.value}: expected {misfit.expected}")) from misfit


def _leaf(value: Values, path: tuple[str, ...]) -> Column:
    leaf = value.getField(path[0])
    for name in path[1:]:
        leaf = leaf.getField(name)
    return leaf


def _changed_column(
    change: Change, kinds: tuple[AvroType, AvroType], column: ArrowColumn, faults: dict[int, Fault]
) -> ArrowColumn:
    """A sink's column, changed value by value; what cannot be is null and a fault. `kinds`: before and after."""
    before, after = kinds
    items = canonical_items(before, column)
    made: list[JsonValue] = []
    for row, item in enumerate(items):
        try:
            made.append(None if item is None else change.canonical(before, item))
        except Inapplicable as error:
            faults[row] = fault_of(error)
            made.append(None)
    changed: ArrowColumn = arrow_items(after, made, column, is_same=before == after)
    return changed
