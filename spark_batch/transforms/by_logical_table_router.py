"""`ByLogicalTableRouter`: one topic for the change events of several tables, as for the shards of one.

Behaviour: `io.debezium.transforms.ByLogicalTableRouter` 3.5, described at
https://debezium.io/documentation/reference/3.5/transformations/topic-routing.html. Unlike that class it leaves a null
that was written null, whatever default its column has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from spark_batch.avro_documents import definitions, inlined, namespace_of
from spark_batch.avro_types import ConnectMark, Field, JsonValue, Record
from spark_batch.outcome import Reason
from spark_batch.transforms.connect_schema import Document, schema_document
from spark_batch.transforms.envelope import AFTER, BEFORE, is_envelope, is_envelope_half, row_document
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
from spark_batch.transforms.halves import Fault, FaultReason, Faults, Half, JsonHalf, Origins, TypedHalf, Unfit
from spark_batch.transforms.insert_field import FieldName, InsertField
from spark_batch.transforms.records import Records, is_null
from spark_batch.transforms.regex_router import RegexRouter
from spark_batch.transforms.set_schema_metadata import SetSchemaMetadata
from spark_batch.transforms.shape import Shape, pinned, written


@dataclass(frozen=True)
class KeyOfTable:
    """The key's schema under the name of the topic, with a field that tells the tables apart.

    At a source a key that is no record, or none, stays as it is.
    """

    schema_name: str
    field: str | None
    identifier: str
    side: Side = Side.KEY

    @property
    def _insert(self) -> InsertField:
        field = FieldName(self.field or "", is_optional=False)
        return InsertField(Side.KEY, static=field, static_value=self.identifier, is_null_defaulted=False)

    @property
    def _rename(self) -> SetSchemaMetadata:
        return SetSchemaMetadata(Side.KEY, schema_name=self.schema_name)

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """With the field, under the other name; raises Misfit."""
        if shape.record is None:
            return shape
        return self._rename.reshaped(name, shape if self.field is None else self._insert.reshaped(name, shape))

    def column(self, shape: Shape, value: Values, row: Row) -> Values:
        """The key's columns, and that of the field."""
        return value if shape.record is None or self.field is None else self._insert.column(shape, value, row)

    def proof(self, shape: Shape, value: Values) -> None:
        """Nothing is left to prove."""

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """JSON without a contract is of no table."""
        del topic, value
        raise Inapplicable(Reason.WRONG_TYPE, f"transformation {name}: expected a change event")

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """One key with the field."""
        return value if shape.record is None or self.field is None else self._insert.canonical(shape, value, row)

    def of_half(self, half: Half, origins: Origins) -> tuple[Half, Faults]:
        """A sink's keys, none of which is null. Raises Unfit."""
        if isinstance(half, JsonHalf):
            if half.schema is None:
                raise Unfit(Fault(FaultReason.NO_SCHEMA, "Only Struct objects supported for [Updating schema]"))
            texts, faults = (half, {}) if self.field is None else self._insert.of_texts(half, origins)
            return self._rename.of_texts(texts, origins)[0], faults
        columns, faults = (half, {}) if self.field is None else self._insert.of_columns(half, origins)
        return self._rename.of_columns(columns, origins)[0], faults


@dataclass(frozen=True)
class EventOfTable:
    """The schemas of a change event and of its rows under the name of the topic; its values are the same."""

    event_name: str
    row_name: str
    side: Side = Side.VALUE

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """Under the other names, where it is a change event."""
        del name
        record = shape.record
        if record is None or not is_envelope(record):
            return shape
        fields = tuple(self._field(field) for field in record.fields)
        made = replace(_named(record, self.event_name), fields=fields)
        return replace(shape, slot=replace(shape.slot, type=made), avro=self._avro(shape.avro))

    def _field(self, field: Field) -> Field:
        if field.name not in {BEFORE, AFTER} or not isinstance(field.slot.type, Record):
            return field
        return replace(field, slot=replace(field.slot, type=_named(field.slot.type, self.row_name)))

    def _avro(self, text: str) -> str:
        event: JsonValue = json.loads(text)
        known, space, done = definitions(event, ""), namespace_of(event), set[str]()
        fields = [inlined(field, known, done, space) for field in event["fields"]]
        row = row_document({"fields": fields})
        before = ".".join(filter(None, (namespace_of(row) or space, row["name"].rpartition(".")[2])))
        fields = [{**field, "type": self._type(field["type"], before, space)} for field in fields]
        return written(_titled({**event, "fields": fields}, self.event_name))

    def _type(self, kind: JsonValue, before: str, space: str) -> JsonValue:
        """A field's type in the event, the row's record under its other name."""
        if isinstance(kind, list):
            return [self._type(item, before, space) for item in kind]
        if kind in (before, before.rpartition(".")[2]):
            return self.row_name
        if not isinstance(kind, dict):
            return kind
        own = pinned(kind, space)
        full = ".".join(filter(None, (namespace_of(own), own["name"].rpartition(".")[2]))) if "name" in own else ""
        if full != before:
            return own
        fields = [{**field, "type": pinned(field["type"], namespace_of(own))} for field in own["fields"]]
        return _titled({**own, "fields": fields}, self.row_name)

    def column(self, shape: Shape, value: Values, row: Row) -> Values:
        """The same."""
        del shape, row
        return value

    def proof(self, shape: Shape, value: Values) -> None:
        """Nothing is left to prove."""

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """JSON without a contract is of no table."""
        del topic, value
        raise Inapplicable(Reason.WRONG_TYPE, f"transformation {name}: expected a change event")

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """The same."""
        del shape, row
        return value

    def of_half(self, half: Half) -> Half:
        """A sink's change events under the other names."""
        if isinstance(half, TypedHalf):
            return replace(half, shape=self.reshaped("", half.shape))
        document = schema_document(half.schema or "")
        rows = {BEFORE, AFTER}
        fields = [{**field, "name": self.row_name} if field["field"] in rows else field for field in document["fields"]]
        whole = {**document, "fields": fields, "name": self.event_name}
        return replace(half, schema=json.dumps(whole, ensure_ascii=False, separators=(",", ":")))


@dataclass(frozen=True)
class ByLogicalTableRouter:
    """Another topic for records whose topic the expression matches, and keys that tell their tables apart."""

    topics: RegexRouter
    key_field: str | None = "__dbz__physicalTableIdentifier"
    """None: keys are not told apart."""
    keys: RegexRouter | None = None
    """Makes the identifier of a table of its topic; else it is the topic."""
    is_adjusted: bool = False
    """Whether the names of schemas are made such as Avro allows."""

    NAME: ClassVar[str] = "ByLogicalTableRouter"
    PACKAGE: ClassVar[str] = "io.debezium.transforms"
    ABOUT: ClassVar[str] = "One topic for the change events of several tables, with keys that tell the tables apart."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey(
            "topic.regex",
            "Expression that the whole name of the topic must match; other topics stay.",
            KeyKind.PATTERN,
            is_required=True,
            is_slight=True,
        ),
        FormKey(
            "topic.replacement",
            "Name of the new topic; ``$1`` stands for the first group.",
            KeyKind.NAME,
            is_required=True,
            is_slight=True,
        ),
        FormKey(
            "key.enforce.uniqueness",
            "Whether the key gets a field that says which table it is of.",
            KeyKind.BOOLEAN,
            default=True,
            is_slight=True,
        ),
        FormKey("key.field.name", "Name of that field.", default="__dbz__physicalTableIdentifier", is_slight=True),
        FormKey(
            "key.field.regex",
            "Expression that the whole name of the topic must match for ``key.field.replacement`` to apply.",
            is_slight=True,
        ),
        FormKey(
            "key.field.replacement",
            "What stands in that field, ``$1`` for the first group; the first topic when not given.",
            is_slight=True,
        ),
        FormKey(
            "schema.name.adjustment.mode",
            "``avro``: letters of the topic that Avro does not allow in names of schemas become underscores there.",
            KeyKind.CHOICE,
            default="none",
            choices=("none", "avro"),
            is_slight=True,
        ),
    )

    @classmethod
    def configured(cls, values: KeyValues) -> ByLogicalTableRouter:
        """Refuses half of a pair of expression and replacement, and a field without a name."""
        field, is_unique = values["key.field.name"], values["key.enforce.uniqueness"]
        regex, replacement = ((values[f"key.field.{name}"] or "").strip() for name in ("regex", "replacement"))
        if regex and not replacement:
            raise KeysRefused(("key.field.replacement", "a text beside key.field.regex"))
        if is_unique and not field:
            raise KeysRefused(("key.field.name", "the name of a field"))
        return cls(
            RegexRouter(values["topic.regex"], values["topic.replacement"]),
            field if is_unique else None,
            RegexRouter(values["key.field.regex"], values["key.field.replacement"]) if regex and is_unique else None,
            values["schema.name.adjustment.mode"] == "avro",
        )

    def routed(self, topic: str) -> str:
        """The topic for records of that topic; raises JavaPatternError."""
        return self.topics.routed(topic) or topic

    def forms(self, topic: str) -> tuple[KeyOfTable, EventOfTable] | None:
        """What is done to keys and values of that topic; None where it is not matched. Raises JavaPatternError."""
        if not self.topics.is_match(topic) or not self.topics.routed(topic):
            return None
        key, event, row = (self._name(f"{self.routed(topic)}.{part}") for part in ("Key", "Envelope", "Value"))
        identifier = topic if self.keys is None else self.keys.routed(topic)
        return KeyOfTable(key, self.key_field, identifier), EventOfTable(event, row)

    def _name(self, name: str) -> str:
        if not self.is_adjusted:
            return name
        return re.sub(r"(^|\.)(?=\d)", r"\1_", re.sub(r"[^A-Za-z0-9_.]", "_", name))

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """Under the other topic, those without a key as one part. Raises Unfit."""
        forms = self.forms(records.topic)
        if forms is None:
            return (records,), {}
        of_keys, of_events = forms
        value = records.halves[Side.VALUE]
        whole = replace(records, topic=self.routed(records.topic))
        if is_envelope_half(value):
            whole = whole.with_half(Side.VALUE, of_events.of_half(value))
        nulls = is_null(records.halves[Side.KEY])
        parts = [whole.taken(nulls)] if nulls.any() else []
        if nulls.all():
            return parts, {}
        keyed = whole.taken(~nulls)
        keys, faults = of_keys.of_half(keyed.halves[Side.KEY], origins)
        rows = np.flatnonzero(~nulls)
        parts.append(keyed.with_half(Side.KEY, keys))
        return parts, {int(rows[row]): fault for row, fault in faults.items()}


def _named(record: Record, name: str) -> Record:
    mark = record.connect
    if mark is not None and mark.name is not None:
        mark = replace(mark, name=name)
    return replace(record, name=name, connect=None if mark == ConnectMark() else mark)


def _titled(document: Document, name: str) -> Document:
    """An Avro record under another name."""
    space, _, short = name.rpartition(".")
    kept = {key: item for key, item in document.items() if key != "namespace"}
    named = {**kept, "name": short, **({"namespace": space} if space else {})}
    return cast("Document", {**named, "connect.name": name} if "connect.name" in kept else named)
