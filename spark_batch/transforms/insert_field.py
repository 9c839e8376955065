"""`InsertField`: adds what is known of a record, or a fixed text, to its key or value."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, cast

import msgspec
import numpy as np
import pyarrow as pa

from spark_batch.avro_types import Field, JsonValue, Primitive, Slot, Temporal
from spark_batch.outcome import Reason
from spark_batch.transforms.connect_schema import TIMESTAMP, Document, java_class_of_schema, schema_document
from spark_batch.transforms.form import (
    ExactRow,
    FormKey,
    Inapplicable,
    KeyKind,
    KeysRefused,
    KeyValues,
    Parts,
    Row,
    Side,
    Values,
)
from spark_batch.transforms.halves import (
    ArrowColumn,
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
from spark_batch.transforms.shape import Misfit, Shape, demand_plain_null, demand_record, written

_PURPOSE = "field insertion"
"""Connect's words for what it does, in its errors."""
_AVRO_TIMESTAMP = {
    "type": "long",
    "connect.version": 1,
    "connect.name": TIMESTAMP,
    "logicalType": "timestamp-millis",
}


@dataclass(frozen=True)
class FieldName:
    """A field to be added; optional fields may be null."""

    name: str
    is_optional: bool = True

    @classmethod
    def of(cls, text: str | None) -> FieldName | None:
        """``name!`` is required, ``name?`` and ``name`` are optional."""
        if not text:
            return None
        return cls(text[:-1], is_optional=text[-1] == "?") if text[-1] in "!?" else cls(text)


@dataclass(frozen=True)
class InsertField:
    """Adds what is known of a record: topic, partition, offset, timestamp, then the text of `static`.

    Only records of sinks have a partition and an offset.
    """

    side: Side
    topic: FieldName | None = None
    timestamp: FieldName | None = None
    static: FieldName | None = None
    static_value: str = ""
    is_null_defaulted: bool = True
    """Connect's `replace.null.with.default`."""
    partition: FieldName | None = None
    offset: FieldName | None = None

    NAME: ClassVar[str] = "InsertField"
    ABOUT: ClassVar[str] = "Adds what is known of a record to its key or value."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey(
            "topic.field", "Field for the topic; with ``!`` at its end required, with ``?`` (or nothing) optional."
        ),
        FormKey("partition.field", "Field for the partition; records of sinks only."),
        FormKey("offset.field", "Field for the offset; records of sinks only."),
        FormKey("timestamp.field", "Field for the record's timestamp."),
        FormKey("static.field", "Field for ``static.value``."),
        FormKey("static.value", "Text for ``static.field``."),
        FormKey(
            "replace.null.with.default",
            "Whether a field that is null is read as its default.",
            KeyKind.BOOLEAN,
            default=True,
        ),
    )
    takes_nulls: ClassVar[bool] = False
    """Nothing is added to a null, and the schema that comes with it stays as it was."""

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> InsertField:
        """Refuses what would do nothing, and in sources what only records of sinks have."""
        of_sinks = () if is_sink else ("partition.field", "offset.field")
        why = "none: records of sources have no partition and no offset yet"
        refused = [(key, why) for key in of_sinks if values[key]]
        topic, partition, offset, timestamp, static = (
            FieldName.of(values[f"{name}.field"]) for name in ("topic", "partition", "offset", "timestamp", "static")
        )
        if not any((topic, partition, offset, timestamp, static)):
            refused.append(("type", "at least one field to insert (topic.field, timestamp.field or static.field)"))
        if static is not None and values["static.value"] is None:
            refused.append(("static.value", f"a value for static.field {static.name}"))
        if refused:
            raise KeysRefused(*refused)
        return cls(
            side,
            topic,
            timestamp,
            static,
            values["static.value"] or "",
            is_null_defaulted=values["replace.null.with.default"],
            partition=partition,
            offset=offset,
        )

    @property
    def named(self) -> list[tuple[str, FieldName, AvroKind]]:
        """The fields that are added, in Connect's order: the key that names each, its name, its type."""
        fields: tuple[tuple[str, FieldName | None, AvroKind], ...] = (
            ("topic.field", self.topic, Primitive.STRING),
            ("partition.field", self.partition, Primitive.INT),
            ("offset.field", self.offset, Primitive.LONG),
            ("timestamp.field", self.timestamp, Temporal.TIMESTAMP_MILLIS),
            ("static.field", self.static, Primitive.STRING),
        )
        return [(key, field, kind) for key, field, kind in fields if field is not None]

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """The record with the fields; a name that is there already does not fit."""
        record = demand_record(self, name, shape)
        names = [field.name for field in record.fields] + [field.name for _, field, _ in self.named]
        for _, field, _ in self.named:
            if names.count(field.name) > 1:
                key = next(key for key, other, _ in reversed(self.named) if other.name == field.name)
                raise Misfit(f"transforms.{name}.{key}", field.name, "a name that no other field has")
        if self.is_null_defaulted:
            for old in record.fields:
                demand_plain_null(name, old)
        document = json.loads(shape.avro)
        branch = document if isinstance(document, dict) else next(item for item in document if item != "null")
        branch["fields"] = [*branch["fields"], *(_avro_field(field, kind) for _, field, kind in self.named)]
        kind = replace(record, fields=(*record.fields, *self._fields()))
        return replace(shape, slot=replace(shape.slot, type=kind), avro=written(document))

    def _fields(self) -> list[Field]:
        return [
            Field(field.name, field.name, Slot(kind, field.is_optional), default="null" if field.is_optional else None)
            for _, field, kind in self.named
        ]

    def column(self, shape: Shape, value: Values, row: Row) -> Values:
        """A struct of the fields that were there and the new ones."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        record = demand_record(self, "", shape)
        columns = {field.name: value.getField(field.name) for field in record.fields}
        if self.topic is not None:
            columns[self.topic.name] = F.lit(row.topic)
        if self.timestamp is not None:
            columns[self.timestamp.name] = F.timestamp_millis(row.timestamp)
        if self.static is not None:
            columns[self.static.name] = F.lit(self.static_value)
        return Parts(columns, value.isNotNull())

    def proof(self, shape: Shape, value: Values) -> None:
        """Nothing is left to prove."""

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """As in Connect, what is added takes the place of a field that has its name."""
        if not isinstance(value, dict):
            raise Inapplicable(Reason.WRONG_TYPE, f"transformation {name}: expected an object")
        topics = {} if self.topic is None else {self.topic.name: topic}
        static = {} if self.static is None else {self.static.name: self.static_value}
        return {**value, **topics, **static}

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """Nothing is added to a null."""
        del shape
        if value is None:
            return None
        known = {"topic.field": row.topic, "timestamp.field": row.timestamp, "static.field": self.static_value}
        return {**value, **{field.name: known[key] for key, field, _ in self.named}}

    def of_texts(self, half: JsonHalf, origins: Origins) -> tuple[JsonHalf, Faults]:
        """Slices of the texts with the new fields behind them; what was there is not parsed."""
        schema = None if half.schema is None else _inserted_schema(half.schema, self)
        columns = self._columns(origins)
        values = [(field.name, column.to_pylist()) for field, column in columns]
        faults = {} if schema is None else _missing(columns)
        made: list[bytes | None] = []
        for row, text in enumerate(texts_of(half.column)):
            news = {name: items[row] for name, items in values if items[row] is not None}
            try:
                made.append(msgspec.json.encode({**object_of(text or b"null"), **news}))
            except NoObjectError:
                faults[row] = no_object(half, text, _PURPOSE)
                made.append(None)
        return json_half(made, schema), faults

    def of_columns(self, half: TypedHalf, origins: Origins) -> tuple[TypedHalf, Faults]:
        """The columns of the struct with the new ones behind them."""
        record = half.shape.record
        if record is None:
            raise Unfit(only_structs(_PURPOSE, java_class_of_type(half.shape.slot.connect_type)))
        fields = self._fields()
        names = [field.name for field in (*record.fields, *fields)]
        for field in fields:
            if names.count(field.name) > 1:
                raise Unfit(_duplicate(field.name))
        added = self._columns(origins)
        faults = _missing(added)
        children = cast("Any", half.column).flatten()
        if self.is_null_defaulted:
            is_there = half.column.is_valid()
            children = [
                defaulted(field, child, is_there, faults) for field, child in zip(record.fields, children, strict=True)
            ]
        columns = [_timed(column, field) for (_, column), field in zip(added, fields, strict=True)]
        new = [
            pa.field(field.name, column.type, nullable=field.slot.is_nullable)
            for field, column in zip(fields, columns, strict=True)
        ]
        whole = pa.StructArray.from_arrays([*children, *columns], fields=[*half.column.type, *new])
        # Nulls are filled in here, so that no default is in the way of the shape.
        return typed(whole, _shape_after(replace(self, is_null_defaulted=False), half.shape)), faults

    def _columns(self, origins: Origins) -> list[tuple[FieldName, ArrowColumn]]:
        """The fields that are added, in Connect's order, with a column for each."""
        count = len(origins.offsets)
        columns = {
            "topic.field": _repeated(origins.topic, count),
            "partition.field": origins.partitions,
            "offset.field": origins.offsets,
            "timestamp.field": origins.timestamps,
            "static.field": _repeated(self.static_value, count),
        }
        return [(field, columns[key]) for key, field, _ in self.named]


AvroKind = Primitive | Temporal


@lru_cache(maxsize=1024)
def _shape_after(insert: InsertField, shape: Shape) -> Shape:
    """Once for each schema."""
    return insert.reshaped("", shape)


def _avro_field(field: FieldName, kind: AvroKind) -> JsonValue:
    avro: JsonValue = _AVRO_TIMESTAMP if isinstance(kind, Temporal) else kind.value
    if not field.is_optional:
        return {"name": field.name, "type": avro}
    return {"name": field.name, "type": ["null", avro], "default": None}


@lru_cache(maxsize=1024)
def _inserted_schema(text: str, insert: InsertField) -> str:
    """With the fields that are added; as in Connect the struct itself is required from then on. Raises Unfit."""
    document = schema_document(text)
    if document["type"] != "struct":
        raise Unfit(only_structs(_PURPOSE, java_class_of_schema(document)))
    kinds: dict[AvroKind, Document] = {
        Primitive.STRING: {"type": "string"},
        Primitive.INT: {"type": "int32"},
        Primitive.LONG: {"type": "int64"},
        Temporal.TIMESTAMP_MILLIS: {"type": "int64", "name": TIMESTAMP, "version": 1},
    }
    added = [{**kinds[kind], "optional": field.is_optional, "field": field.name} for _, field, kind in insert.named]
    fields = [*document["fields"], *added]
    names = [field["field"] for field in fields]
    for name in names[len(document["fields"]) :]:
        if names.count(name) > 1:
            raise Unfit(_duplicate(name))
    kept: Document = {key: document[key] for key in ("name", "version", "doc", "parameters") if key in document}
    whole = {"type": "struct", "fields": fields, "optional": False, **kept}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def _duplicate(name: str) -> Fault:
    """The schema has a field of that name already."""
    exception = "org.apache.kafka.connect.errors.SchemaBuilderException"
    text = f"Cannot create field because of field name duplication {name}"
    return Fault(FaultReason.DUPLICATE_FIELD, text, exception)


def _missing(added: list[tuple[FieldName, ArrowColumn]]) -> dict[int, Fault]:
    """Rows that lack what a required field of a schema needs: the oldest records have no timestamp."""
    return {
        int(row): Fault(FaultReason.MISSING_TIMESTAMP, f'Invalid value: null used for required field: "{field.name}"')
        for field, column in added
        if not field.is_optional and column.null_count
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
    }


def _repeated(text: str, count: int) -> ArrowColumn:
    column: Any = pa.repeat(pa.scalar(text, pa.string()), count)
    return column  # type: ignore[no-any-return]


def _timed(column: ArrowColumn, field: Field) -> ArrowColumn:
    if field.slot.type is not Temporal.TIMESTAMP_MILLIS:
        return column
    return cast("ArrowColumn", column.cast(pa.timestamp("ms", "UTC")))
