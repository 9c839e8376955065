"""`Sql`: a record is made of expressions of Spark SQL over its fields, and `WHERE` says which records are kept.

Our own; Kafka Connect has none. What a text may say is what rules of contracts may say (`rules.allowed`). Spark is the
only judge of it: it is carried out in columns alone, a record on which an expression fails is rejected there and then,
and there is no exact path (`rules.select`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from spark_batch.avro_documents import definitions
from spark_batch.avro_types import Array, AvroType, Decimal, Field, JsonValue, Map, Primitive, Record, Slot, Temporal
from spark_batch.outcome import Reason
from spark_batch.transforms.change import Taken, avro_type
from spark_batch.transforms.fields import FieldWriter
from spark_batch.transforms.form import ExactRow, FormKey, Inapplicable, KeyKind, KeyValues, Parts, Side
from spark_batch.transforms.selection import SelectedField, Selection, SelectRefused, selection
from spark_batch.transforms.shape import Misfit, Shape, demand_record, record_document, written

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Sql:
    """`SELECT … FROM record`, with `WHERE` or without."""

    side: Side
    sql: str

    NAME: ClassVar[str] = "Sql"
    PACKAGE: ClassVar[str] = "headrace.transforms"
    ABOUT: ClassVar[str] = (
        "Makes records of expressions of Spark SQL, and drops those that a condition does not hold for."
    )
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey(
            "sql",
            "``SELECT`` expressions ``FROM record``, with ``WHERE`` or without.",
            KeyKind.NAME,
            is_required=True,
            is_important=True,
        ),
    )

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> Sql:
        """What its text says wrong is told with the plan (`plan_findings`)."""
        del is_sink
        return cls(side, values["sql"])

    def of(self, record: Record) -> Selection:
        """What it makes of such records; raises NotAnalysed, and SelectRefused."""
        found = selection(self.sql, record)
        if isinstance(found, SelectRefused):
            raise found
        return found

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """The record of the fields that are selected. Raises Misfit, and NotAnalysed where Spark was not asked yet."""
        record = demand_record(self, name, shape)
        try:
            selected = self.of(record)
        except SelectRefused as refusal:
            raise Misfit(f"transforms.{name}.sql", self.sql, _told(refusal)) from refusal
        document = json.loads(shape.avro)
        branch = record_document(document, definitions(document, ""), "")
        writer = FieldWriter(document, branch, record)
        made = [
            writer.field(Taken(each.name, each.path)) if each.path is not None else _made(each)
            for each in selected.fields
        ]
        avro: JsonValue = {**branch, "fields": [its_document for _, its_document in made]}
        if isinstance(document, list):
            avro = [avro if item is branch or isinstance(item, dict) else item for item in document]
        after = replace(record, fields=tuple(field for field, _ in made))
        return replace(shape, slot=replace(shape.slot, type=after), avro=written(avro))

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """JSON of which no contract tells the types has none for SQL either; a finding of the config says so."""
        del name, topic, value
        raise Inapplicable(Reason.WRONG_TYPE, "expected a contract.schema")

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """There is no exact path for Spark's expressions."""
        del shape, value, row
        raise Inapplicable(Reason.UNREPRESENTABLE, "expected a record that Spark can read")

    def parts(self, shape: Shape, row: Column) -> Parts:
        """The fields of the struct that `rules.select` has made."""
        selected = self.of(demand_record(self, "", shape))
        return Parts({each.name: row.getField(each.name) for each in selected.fields}, row.isNotNull())

    def made(self, shape: Shape, row: Column) -> list[tuple[AvroType, Column]]:
        """Types and columns of the fields that expressions have made."""
        selected = self.of(demand_record(self, "", shape))
        return [(each.type, row.getField(each.name)) for each in selected.fields if each.type is not None]


def _told(refusal: SelectRefused) -> str:
    return f"{refusal.expected}; {refusal.found} is not allowed"


def _made(selected: SelectedField) -> tuple[Field, JsonValue]:
    """A field that an expression has made; one that may be null is null where a reader finds none."""
    assert selected.type is not None  # noqa: S101 - told to the type checker
    avro = _avro(selected.type)
    field = Field(selected.name, selected.name, Slot(selected.type, selected.is_nullable))
    if not selected.is_nullable:
        return field, {"name": selected.name, "type": avro}
    return replace(field, default="null"), {"name": selected.name, "type": ["null", avro], "default": None}


def _avro(kind: AvroType) -> JsonValue:
    if isinstance(kind, Decimal):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, Temporal):
        return {"type": kind.base.value, "logicalType": kind.value}
    if isinstance(kind, Array):
        return {"type": "array", "items": _avro_of_slot(kind.items)}
    if isinstance(kind, Map):
        return {"type": "map", "values": _avro_of_slot(kind.values)}
    return kind.value if isinstance(kind, Primitive) else avro_type(kind)


def _avro_of_slot(slot: Slot) -> JsonValue:
    return ["null", _avro(slot.type)] if slot.is_nullable else _avro(slot.type)
