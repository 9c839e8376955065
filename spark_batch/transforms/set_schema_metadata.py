"""`SetSchemaMetadata`: another name, or a version, for the schema of a record."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import ClassVar

from spark_batch.avro_documents import definitions, inlined, namespace_of
from spark_batch.avro_types import ConnectMark, JsonValue, Record
from spark_batch.outcome import Reason
from spark_batch.transforms.connect_schema import schema_document
from spark_batch.transforms.fields import NULL_KEY
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
from spark_batch.transforms.halves import Fault, FaultReason, Faults, JsonHalf, Origins, TypedHalf, Unfit
from spark_batch.transforms.shape import Misfit, Shape, demand_record, pinned, record_document, written

_PURPOSE = "updating schema metadata"


@dataclass(frozen=True)
class SetSchemaMetadata:
    """Another name, or a version, for the schema of a record; the values stay."""

    side: Side
    schema_name: str | None = None
    schema_version: int | None = None

    NAME: ClassVar[str] = "SetSchemaMetadata"
    ABOUT: ClassVar[str] = "Gives the schema of the key or value another name, a version, or both."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("schema.name", "Name of the schema.", is_important=True),
        FormKey("schema.version", "Version of the schema.", KeyKind.INTEGER, is_important=True),
        NULL_KEY,
    )
    takes_nulls: ClassVar[bool] = True

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> SetSchemaMetadata:
        """Refuses what would do nothing."""
        del is_sink
        if values["schema.name"] is None and values["schema.version"] is None:
            raise KeysRefused(("type", "a schema.name or a schema.version"))
        return cls(side, values["schema.name"], values["schema.version"])

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """The record under its new name; types that are named in it keep their names in full."""
        record = demand_record(self, name, shape)
        document = json.loads(shape.avro)
        branch = record_document(document, definitions(document, ""), "")
        kept = dict(branch)
        if self.schema_name is not None:
            short = self.schema_name.rpartition(".")[2]
            if not short:
                raise Misfit(f"transforms.{name}.schema.name", self.schema_name, "a name")
            before = namespace_of(branch)
            known = definitions(document, "")
            done: set[str] = set()
            fields = [inlined(field, known, done, before) for field in branch["fields"]]
            kept |= {"name": short, "namespace": self.schema_name.rpartition(".")[0]}
            kept["fields"] = [_told(field, before) for field in fields]
            if not kept["namespace"]:
                del kept["namespace"]
            if "connect.name" in kept:
                kept["connect.name"] = self.schema_name
        if self.schema_version is not None:
            kept["connect.version"] = self.schema_version
        avro = [kept if isinstance(item, dict) else item for item in document] if isinstance(document, list) else kept
        after = self._renamed(record)
        return replace(shape, slot=replace(shape.slot, type=after), avro=written(avro))

    def _renamed(self, record: Record) -> Record:
        mark = record.connect or ConnectMark()
        if self.schema_version is not None:
            mark = replace(mark, version=self.schema_version)
        if self.schema_name is not None and mark.name is not None:
            mark = replace(mark, name=self.schema_name)
        name = record.name if self.schema_name is None else self.schema_name
        return replace(record, name=name, connect=None if mark == ConnectMark() else mark)

    def column(self, shape: Shape, value: Values, row: Row) -> Values:
        """The same."""
        del shape, row
        return value

    def proof(self, shape: Shape, value: Values) -> None:
        """Nothing is left to prove."""

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """Refuses every value: none has a schema."""
        del topic, value
        raise Inapplicable(Reason.WRONG_TYPE, f"transformation {name}: expected a contract.schema")

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """The same."""
        del shape, row
        return value

    def of_texts(self, half: JsonHalf, origins: Origins) -> tuple[JsonHalf, Faults]:
        """The same texts with another schema; what has neither value nor schema passes."""
        del origins
        if half.schema is None:
            fault = Fault(FaultReason.NO_SCHEMA, f"Schema required for [{_PURPOSE}]")
            is_there = half.column.is_valid().to_pylist()
            return half, {row: fault for row, there in enumerate(is_there) if there}
        document = schema_document(half.schema)
        if document["type"] != "struct":
            raise Unfit(Fault(FaultReason.WRONG_TYPE, "Cannot list fields on non-struct type"))
        news = {"name": self.schema_name, "version": self.schema_version}
        whole = {**document, **{key: value for key, value in news.items() if value is not None}}
        return replace(half, schema=json.dumps(whole, ensure_ascii=False, separators=(",", ":"))), {}

    def of_columns(self, half: TypedHalf, origins: Origins) -> tuple[TypedHalf, Faults]:
        """The same columns with another schema."""
        del origins
        try:
            return replace(half, shape=self.reshaped("", half.shape)), {}
        except Misfit as misfit:
            raise Unfit(Fault(FaultReason.NO_SCHEMA, f"{misfit.value}: expected {misfit.expected}")) from misfit


def _told(field: JsonValue, namespace: str) -> JsonValue:
    """A field whose types keep the namespace that they had inside the record."""
    return {**field, "type": pinned(field["type"], namespace)}
