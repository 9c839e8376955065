"""What a conversion has to do, as pure data: hashable, comparable, cacheable by its fingerprint.

No Spark here: a plan can be made, validated and compared in a process that never starts a JVM.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from spark_batch.avro_schema import parse_schema
from spark_batch.plan_findings import Finding, plan_findings

if TYPE_CHECKING:
    from spark_batch.avro_types import JsonValue, Record

__all__ = [
    "Contract",
    "ConversionPlan",
    "ConverterKind",
    "ConverterSpec",
    "Finding",
    "PayloadFormat",
    "Rule",
    "UnknownFields",
]

RECORD_BYTES_MAX_DEFAULT = 1 << 20


class PayloadFormat(StrEnum):
    """What the fetcher says its payloads are. With a contract every payload is read as JSON."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


class ConverterKind(StrEnum):
    """Output form of a key or a value."""

    JSON = "json"
    AVRO = "avro"
    STRING = "string"
    BYTES = "bytes"


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


@dataclass(frozen=True)
class ConverterSpec:
    """How keys or values are written.

    `is_schema_enveloped` is the JSON converter's `schemas.enable`; `schema_id` is the registry's id, needed before an
    Avro conversion runs (Confluent framing: zero byte, id as 4 bytes big-endian, body).
    """

    kind: ConverterKind
    is_schema_enveloped: bool = False
    schema_id: int | None = None


@dataclass(frozen=True)
class ConversionPlan:
    """Everything that decides what becomes of a payload.

    `key_fields` are top-level fields by their Avro names (payload names where there is no contract); `timestamp_field`
    and `dedupe_fields` are dotted paths of payload names, e.g. `properties.$insert_id`.
    """

    payload_format: PayloadFormat
    contract: Contract | None = None
    key_fields: tuple[str, ...] = ()
    timestamp_field: str | None = None
    dedupe_fields: tuple[str, ...] = ()
    key_converter: ConverterSpec = ConverterSpec(ConverterKind.STRING)
    value_converter: ConverterSpec = ConverterSpec(ConverterKind.JSON)
    record_bytes_max: int = RECORD_BYTES_MAX_DEFAULT

    @property
    def is_json(self) -> bool:
        """Whether payloads are parsed as JSON."""
        return self.payload_format is PayloadFormat.JSON or self.contract is not None

    @property
    def record(self) -> Record | None:
        """The contract's record; None without contract or with a schema that has findings."""
        return None if self.contract is None else parse_schema(self.contract.schema).record

    @property
    def fingerprint(self) -> str:
        """Equal for equal plans, in any process."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def validate(self) -> list[Finding]:
        """Everything that is wrong with the plan as far as it can be told without Spark, all at once."""
        return plan_findings(self)

    def value_schema(self) -> str | None:
        """Avro schema text to register for values, or None where the value converter is not Avro."""
        if self.value_converter.kind is not ConverterKind.AVRO:
            return None
        if self.contract is not None:
            return json.dumps(_without_json_names(json.loads(self.contract.schema)), separators=(",", ":"))
        return '"bytes"' if self.payload_format is PayloadFormat.BYTES else '"string"'

    def key_schema(self) -> str | None:
        """Avro schema text to register for keys, or None where the key converter is not Avro."""
        if self.key_converter.kind is not ConverterKind.AVRO:
            return None
        if not self.key_fields or self.contract is None:
            return '"string"'
        return json.dumps(self._key_record(json.loads(self.contract.schema)), separators=(",", ":"))

    def with_schema_ids(self, *, key: int | None = None, value: int | None = None) -> ConversionPlan:
        """The same plan, ready to frame Avro with these registry ids."""
        return replace(
            self,
            key_converter=replace(self.key_converter, schema_id=key),
            value_converter=replace(self.value_converter, schema_id=value),
        )

    def _key_record(self, document: JsonValue) -> JsonValue:
        """A record of the key's fields; a type named elsewhere in the schema is written out where first used."""
        fields = {field["name"]: field for field in document["fields"]}
        definitions = _definitions(document, document.get("namespace", ""))
        written: set[str] = set()
        chosen = [
            _inlined(_without_json_names(fields[name]), definitions, written, _namespace(document))
            for name in self.key_fields
        ]
        key = {"type": "record", "name": document["name"].rpartition(".")[2] + "Key", "fields": chosen}
        namespace = _namespace(document)
        return {**key, "namespace": namespace} if namespace else key


def _namespace(document: JsonValue) -> str:
    name: str = document["name"]
    return name.rpartition(".")[0] or document.get("namespace", "")


def _without_json_names(document: JsonValue) -> JsonValue:
    """The schema without `json.name`: it speaks of the payload, and registered schemas should not change with it."""
    if isinstance(document, list):
        return [_without_json_names(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        key: item if key == "default" else _without_json_names(item)
        for key, item in document.items()
        if key != "json.name"
    }


def _is_named(document: dict[str, JsonValue]) -> bool:
    kind = document.get("type")
    return isinstance(kind, str) and kind in {"record", "enum", "fixed"} and "name" in document


def _definitions(document: JsonValue, namespace: str) -> dict[str, JsonValue]:
    """Every named type of the schema by full name."""
    if isinstance(document, list):
        return {name: found for item in document for name, found in _definitions(item, namespace).items()}
    if not isinstance(document, dict):
        return {}
    found: dict[str, JsonValue] = {}
    if _is_named(document):
        name = document["name"]
        namespace = name.rpartition(".")[0] or document.get("namespace", namespace)
        short = name.rpartition(".")[2]
        full = f"{namespace}.{short}" if namespace else short
        found[full] = {**document, "namespace": namespace} if namespace else document
    for key in ("type", "items", "values", "fields"):
        found.update(_definitions(document.get(key), namespace))
    return found


def _inlined(document: JsonValue, definitions: dict[str, JsonValue], written: set[str], namespace: str) -> JsonValue:
    """The schema with the first use of each named type written out in full."""
    if isinstance(document, str):
        full = document if "." in document or not namespace else f"{namespace}.{document}"
        if full not in definitions or full in written:
            return document
        return _inlined(_without_json_names(definitions[full]), definitions, written, namespace)
    if isinstance(document, list):
        return [_inlined(item, definitions, written, namespace) for item in document]
    if not isinstance(document, dict):
        return document
    if _is_named(document):
        namespace = document["name"].rpartition(".")[0] or document.get("namespace", namespace)
        short = document["name"].rpartition(".")[2]
        written.add(f"{namespace}.{short}" if namespace else short)
    return {
        key: _inlined(item, definitions, written, namespace) if key in {"type", "items", "values", "fields"} else item
        for key, item in document.items()
    }
