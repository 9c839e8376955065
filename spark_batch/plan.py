"""What a conversion has to do, as pure data: hashable, so that what is built for it can be kept.

No Spark here: a plan can be made, validated and compared in a process that never starts a JVM.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from spark_batch.avro_documents import definitions, inlined, namespace_of, without_json_names
from spark_batch.avro_schema import WIDE_DIGITS_MAX, ParsedSchema, SchemaFinding, parse_schema
from spark_batch.coercion import Coerce, counted_fields
from spark_batch.number_forms import NUMBER_FORMS, NumberForm
from spark_batch.transforms.applied import AppliedSteps, applied_steps

if TYPE_CHECKING:
    from spark_batch.avro_types import JsonValue, Record
    from spark_batch.transforms.catalog import Step

__all__ = [
    "Contract",
    "ConversionPlan",
    "ConverterKind",
    "ConverterSpec",
    "PayloadFormat",
    "PlanFinding",
    "Rule",
    "UnknownFields",
]

RECORD_BYTES_MAX_DEFAULT = 1 << 20


class PayloadFormat(StrEnum):
    """What the fetcher says its payloads are. With a contract every payload is read as JSON."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"
    ROWS = "rows"
    """Arrow structs; what they are is told by a schema that comes with them (`ConversionPlan.for_rows`)."""


class ConverterKind(StrEnum):
    """Output form of a key or a value."""

    JSON = "json"
    AVRO = "avro"
    STRING = "string"
    BYTES = "bytes"
    INTEGER = "integer"
    LONG = "long"
    SHORT = "short"
    FLOAT = "float"
    DOUBLE = "double"
    BOOLEAN = "boolean"

    @property
    def number(self) -> NumberForm | None:
        """Of a converter of single numbers or booleans: what it writes."""
        return NUMBER_FORMS.get(self.value)

    @property
    def is_single(self) -> bool:
        """Whether a key of one field is that field itself, and not a record of it."""
        return self not in {ConverterKind.JSON, ConverterKind.AVRO}


class UnknownFields(StrEnum):
    """What becomes of fields that the contract does not name."""

    IGNORE = "ignore"
    REJECT = "reject"
    KEEP = "keep"


@dataclass(frozen=True)
class Rule:
    """A Spark SQL boolean expression over the contract's fields; a record passes only where it is true (not null)."""

    name: str
    expression: str


@dataclass(frozen=True)
class Contract:
    """Schema (Avro JSON text) and rules that a record must meet."""

    schema: str
    rules: tuple[Rule, ...] = ()
    unknown_fields: UnknownFields = UnknownFields.IGNORE
    coerce: frozenset[Coerce] = frozenset()
    """What texts every field takes for its value, where the schema does not say it of the field."""
    is_of_rows: bool = False
    """Whether it is the schema that came with rows."""

    @property
    def parsed(self) -> ParsedSchema:
        """The schema, read."""
        if self.is_of_rows:
            return parse_schema(self.schema, decimal_digits_max=WIDE_DIGITS_MAX)
        return parse_schema(self.schema, self.coerce)


@dataclass(frozen=True)
class ConverterSpec:
    """How keys or values are written.

    `is_schema_enveloped` is the JSON converter's `schemas.enable`, `is_decimal_numeric` its `decimal.format=NUMERIC`: a
    decimal is a number with the digits of its scale, else base64 of its unscaled value. `schema_id` is the registry's
    id, needed before an Avro conversion runs (Confluent framing: zero byte, id as 4 bytes big-endian, body).
    """

    kind: ConverterKind
    is_schema_enveloped: bool = False
    schema_id: int | None = None
    is_decimal_numeric: bool = False
    is_by_spark: bool = False
    """Whether Spark itself has to write the JSON, where Arrow could write the same."""


@dataclass(frozen=True)
class PlanFinding:
    """One thing to mend in a plan: the configuration key, the value seen, and what was expected instead.

    Not the ``Finding`` of fetchers' configs, since this package ships without them (the import rules say so);
    ``service.config.definition`` turns the one into the other.
    """

    key: str
    value: str
    expected: str


@dataclass(frozen=True)
class ConversionPlan:
    """Everything that decides what becomes of a payload.

    `key_fields` are top-level fields by their Avro names (payload names where there is no contract); `timestamp_field`
    and `dedupe_fields` are dotted paths of payload names, e.g. `properties.$insert_id`. All of these, and the contract,
    speak of records before their transformations.
    """

    payload_format: PayloadFormat
    contract: Contract | None = None
    key_fields: tuple[str, ...] = ()
    timestamp_field: str | None = None
    dedupe_fields: tuple[str, ...] = ()
    key_converter: ConverterSpec = ConverterSpec(ConverterKind.STRING)
    value_converter: ConverterSpec = ConverterSpec(ConverterKind.JSON)
    record_bytes_max: int = RECORD_BYTES_MAX_DEFAULT
    transformations: tuple[Step, ...] = ()
    topic: str = ""
    """Topic of the records before their transformations; not asked for where there are none, so that plans of several
    topics are the same plan."""
    headers: frozenset[str] = frozenset()
    """Of the names of headers that predicates ask for, those that the records have."""
    rules_of_rows: tuple[Rule, ...] = ()
    """Rules of a connector whose rows bring their schema, and so their contract, with them."""
    key_schema: str | None = None
    """Avro schema text of keys that come with rows as structs."""

    def for_rows(self, *, schema: str, key_schema: str | None, topic: str) -> ConversionPlan:
        """The plan of rows of a schema; their schema is their contract where none is configured."""
        contract = self.contract or Contract(schema, self.rules_of_rows, is_of_rows=True)
        topic = topic if self.transformations else ""
        return replace(self, contract=contract, rules_of_rows=(), key_schema=key_schema, topic=topic)

    @property
    def is_of_rows(self) -> bool:
        """Whether what comes in is typed already."""
        return self.payload_format is PayloadFormat.ROWS

    def applied_steps(self, *, is_tombstone: bool = False) -> AppliedSteps:
        """What records, or tombstones, go through; raises JavaPatternError."""
        return applied_steps(self.transformations, self.topic, is_tombstone=is_tombstone, headers=self.headers)

    @property
    def has_key_of_value(self) -> bool:
        """Whether a transformation makes keys of fields of the value."""
        return bool(self.transformations) and self.applied_steps().has_key_of_value

    @property
    def has_header_edits(self) -> bool:
        """Whether transformations add headers to its records, or take some away."""
        tracks = [self.applied_steps(is_tombstone=is_tombstone) for is_tombstone in (False, True)]
        return any(track.edits or track.header_events is not None for track in tracks)

    @property
    def is_json(self) -> bool:
        """Whether payloads are parsed as JSON."""
        is_described = self.contract is not None and not self.is_of_rows
        return self.payload_format is PayloadFormat.JSON or is_described

    @property
    def record(self) -> Record | None:
        """The contract's record; None without contract or with a schema that has findings."""
        return None if self.contract is None else self.contract.parsed.record

    @property
    def coerced_fields(self) -> tuple[str, ...]:
        """The fields whose coercions are counted, by the bit that stands for each in an outcome."""
        return () if self.contract is None else counted_fields(self.contract.parsed.coerced_fields)

    def plain_value_schema(self) -> str:
        """Avro schema text of values before their transformations."""
        if self.contract is not None:
            return _without_json_names(self.contract.schema)
        return '"bytes"' if self.payload_format is PayloadFormat.BYTES else '"string"'

    def plain_key_schema(self) -> str:
        """Avro schema text of keys before their transformations."""
        if not self.key_fields and self.key_schema is not None:
            return _without_json_names(self.key_schema)
        if not self.key_fields or self.contract is None:
            return '"string"'
        return json.dumps(self._key_record(json.loads(self.contract.schema)), separators=(",", ":"))

    @property
    def key_record(self) -> Record | None:
        """The record of keys that come with rows as structs."""
        return None if self.key_schema is None else self._parsed_key(self.key_schema).record

    @property
    def has_keys_of_fields(self) -> bool:
        """Whether the keys that come with rows have the key's fields too, so that tombstones have the same keys."""
        own, keys = self.record, self.key_record
        return own is not None and keys is not None and all(_is_same(own, keys, name) for name in self.key_fields)

    @property
    def key_findings(self) -> tuple[SchemaFinding, ...]:
        """What is wrong with their schema."""
        return () if self.key_schema is None else self._parsed_key(self.key_schema).findings

    def _parsed_key(self, schema: str) -> ParsedSchema:
        return parse_schema(schema, decimal_digits_max=WIDE_DIGITS_MAX)

    def with_schema_ids(self, *, key: int | None = None, value: int | None = None) -> ConversionPlan:
        """The same plan, ready to frame Avro with these registry ids."""
        return replace(
            self,
            key_converter=replace(self.key_converter, schema_id=key),
            value_converter=replace(self.value_converter, schema_id=value),
        )

    def by_spark(self) -> ConversionPlan:
        """The same plan, with nothing left to Arrow that Spark can write: to compare, and as the way back."""
        return replace(
            self,
            key_converter=replace(self.key_converter, is_by_spark=True),
            value_converter=replace(self.value_converter, is_by_spark=True),
        )

    def _key_record(self, document: JsonValue) -> JsonValue:
        """A record of the key's fields; a type named elsewhere in the schema is written out where first used."""
        fields = {field["name"]: field for field in document["fields"]}
        known = definitions(document, document.get("namespace", ""))
        written: set[str] = set()
        chosen = [
            inlined(without_json_names(fields[name]), known, written, namespace_of(document))
            for name in self.key_fields
        ]
        key = {"type": "record", "name": document["name"].rpartition(".")[2] + "Key", "fields": chosen}
        namespace = namespace_of(document)
        return {**key, "namespace": namespace} if namespace else key


def _without_json_names(schema: str) -> str:
    """The text itself where nothing is to be left out: it is what schemas are known by, and held for each table."""
    text = json.dumps(without_json_names(json.loads(schema)), separators=(",", ":"))
    return schema if text == schema else text


def _is_same(record: Record, keys: Record, name: str) -> bool:
    field, key = record.field(name), keys.field(name)
    return field is not None and key is not None and field.slot.type == key.slot.type
