"""Reads a contract's Avro schema text into the types of `avro_types`, collecting every finding."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from spark_batch.avro_defaults import canonical_default
from spark_batch.avro_types import (
    DECIMAL_DIGITS_MAX,
    SCHEMAS_MAX,
    Array,
    AvroType,
    ConnectMark,
    Decimal,
    Enum,
    Field,
    Fixed,
    JsonValue,
    Map,
    Primitive,
    Record,
    Slot,
    Temporal,
    Uuid,
)
from spark_batch.coercion import COUNTED_FIELDS_MAX, Coerce, Coercion, InstantPattern, PatternError, instant_pattern

WIDE_DIGITS_MAX = 76
"""Of the decimals that rows may have; those of JSON are Spark's."""
FIXED_BYTES_MAX = 1 << 20
PARTS_MAX = 16_384
"""Records and fields that schemas may share; of more, those that no schema had for longest are not shared."""
_Part = TypeVar("_Part", Record, Field)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMED = {"record", "enum", "fixed"}
_NUMBERS = {Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE}


@dataclass(frozen=True)
class SchemaFinding:
    """Something about the schema that cannot be honoured: where, and what was expected there."""

    path: str
    seen: str
    expected: str


@dataclass(frozen=True)
class ParsedSchema:
    """The record of the contract (None when there are findings), and the findings."""

    record: Record | None
    findings: tuple[SchemaFinding, ...]
    coerced_fields: tuple[str, ...] = ()
    """Dotted Avro names of the fields that may be coerced; of a type that is used again, where it is defined."""


@lru_cache(maxsize=SCHEMAS_MAX)
def parse_schema(
    text: str, coerce: frozenset[Coerce] = frozenset(), *, decimal_digits_max: int = DECIMAL_DIGITS_MAX
) -> ParsedSchema:
    """Parse Avro schema text; never raises for bad text, it is a finding.

    `coerce`: what every field takes that does not say otherwise by its attribute `json.coerce`.
    """
    reader = _Reader(coerce, decimal_digits_max)
    try:
        document = json.loads(text)
        parsed = reader.type(document, "", namespace="")
    except (ValueError, RecursionError):
        return ParsedSchema(None, (SchemaFinding("", text[:80], "an Avro schema as JSON"),))
    if parsed is not None and not isinstance(parsed, Record):
        reader.find("", str(document)[:80], "a record at the top of the schema")
    record = parsed if isinstance(parsed, Record) and not reader.findings else None
    return ParsedSchema(record, tuple(reader.findings), tuple(reader.coerced))


@lru_cache(maxsize=PARTS_MAX)
def _shared(part: _Part) -> _Part:
    """The first of equal parts: schemas of many tables are mostly the same, such as ``source`` of change events."""
    return part


@dataclass(frozen=True)
class _Taken:
    """What the field that is being read takes for its value."""

    field: str = ""
    kinds: frozenset[Coerce] = frozenset()
    pattern: InstantPattern | None = None


@dataclass
class _Reader:
    """Walks the schema document once; named types may be used again by name, but not inside themselves."""

    coerce: frozenset[Coerce] = frozenset()
    decimal_digits_max: int = DECIMAL_DIGITS_MAX
    findings: list[SchemaFinding] = field(default_factory=list)
    named: dict[str, AvroType | None] = field(default_factory=dict)
    coerced: list[str] = field(default_factory=list)
    taken: _Taken = _Taken()

    def find(self, path: str, seen: object, expected: str) -> None:
        self.findings.append(SchemaFinding(path, "nothing" if seen is None else str(seen)[:80], expected))

    def slot(self, document: JsonValue, path: str, *, namespace: str) -> Slot | None:
        if not isinstance(document, list):
            parsed = self.type(document, path, namespace=namespace)
            if parsed is None:
                return None
            return self._slot(parsed, is_nullable=parsed is Primitive.NULL, connect=_mark(document))
        others = [branch for branch in document if branch != "null"]
        if len(document) != 2 or len(others) != 1:  # noqa: PLR2004 - "T or null" has two branches
            self.find(path, json.dumps(document), 'a union of "null" and one other type')
            return None
        parsed = self.type(others[0], path, namespace=namespace)
        return None if parsed is None else self._slot(parsed, is_nullable=True, connect=_mark(others[0]))

    def _slot(self, kind: AvroType, *, is_nullable: bool, connect: ConnectMark | None) -> Slot:
        connect = None if isinstance(kind, Record) else connect
        taken = self.taken
        is_taken = _coerced_by(kind) in taken.kinds or (taken.pattern is not None and isinstance(kind, Temporal))
        is_empty_null = Coerce.EMPTY in taken.kinds and is_nullable and not _is_empty_a_value(kind)
        if not is_taken and not is_empty_null:
            return Slot(kind, is_nullable, connect=connect)
        if taken.field not in self.coerced:
            self.coerced.append(taken.field)
        bit = min(self.coerced.index(taken.field), COUNTED_FIELDS_MAX)
        pattern = taken.pattern if isinstance(kind, Temporal) else None
        return Slot(kind, is_nullable, Coercion(bit, is_taken, is_empty_null, pattern), connect)

    def type(self, document: JsonValue, path: str, *, namespace: str) -> AvroType | None:  # noqa: PLR0911 - one a form
        if isinstance(document, str):
            return self._by_name(document, path, namespace=namespace)
        if isinstance(document, list):
            self.find(path, json.dumps(document), "one type (a union may stand only for a field, an item or a value)")
            return None
        if not isinstance(document, dict):
            self.find(path, document, "an Avro type")
            return None
        kind = document.get("type")
        if isinstance(kind, (dict, list)):
            return self.type(kind, path, namespace=namespace)
        if kind in _NAMED:
            return self._named_type(document, path, namespace=namespace)
        if kind == "array":
            items = self.slot(document.get("items"), f"{path}[]", namespace=namespace)
            return None if items is None else Array(items)
        if kind == "map":
            values = self.slot(document.get("values"), f"{path}{{}}", namespace=namespace)
            return None if values is None else Map(values)
        return self._by_name(kind, path, namespace=namespace, document=document)

    def _by_name(
        self,
        name: JsonValue,
        path: str,
        *,
        namespace: str,
        document: JsonValue = None,
    ) -> AvroType | None:
        if name in set(Primitive):
            return self._primitive(Primitive(name), document or {}, path)
        full = _full_name(name, namespace) if isinstance(name, str) else None
        if full not in self.named:
            self.find(path, name, _known_type(name, self.named))
            return None
        known = self.named[full]
        if known is None:
            self.find(path, name, "a schema without recursion (this type contains itself)")
        return known

    def _primitive(self, kind: Primitive, document: JsonValue, path: str) -> AvroType | None:
        logical = document.get("logicalType")
        if logical is None:
            return kind
        if logical == "decimal" and kind is Primitive.BYTES:
            return self._decimal(document, path, size=None)
        if logical == "uuid" and kind is Primitive.STRING:
            return Uuid()
        if isinstance(logical, str) and logical in set(Temporal) and Temporal(logical).base is kind:
            return Temporal(logical)
        self.find(path, f"{kind} {logical}", "a logical type that this base type carries and that is supported")
        return None

    def _decimal(self, document: JsonValue, path: str, *, size: int | None) -> Decimal | None:
        precision, scale = document.get("precision"), document.get("scale", 0)
        if not _is_whole(precision) or not 1 <= precision <= self.decimal_digits_max:
            self.find(path, precision, f"a precision from 1 to {self.decimal_digits_max}")
            return None
        if not _is_whole(scale) or not 0 <= scale <= precision:
            self.find(path, scale, "a scale from 0 to the precision")
            return None
        if size is not None and 10**precision - 1 > (1 << (8 * size - 1)) - 1:
            self.find(path, precision, f"a precision that {size} bytes can hold")
            return None
        return Decimal(precision, scale, size)

    def _named_type(self, document: JsonValue, path: str, *, namespace: str) -> AvroType | None:
        name, own = document.get("name"), document.get("namespace", namespace)
        if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split(".")):
            self.find(path, name, "a name by Avro's rules")
            return None
        full = _full_name(name, own if isinstance(own, str) else "")
        if full in self.named:
            self.find(path, full, "a name that is not yet defined")
            return None
        self.named[full] = None
        parsed = self._named_body(document, path, full)
        if parsed is None:
            del self.named[full]
        else:
            self.named[full] = parsed
        return parsed

    def _named_body(self, document: JsonValue, path: str, full: str) -> AvroType | None:
        if document["type"] == "enum":
            return self._enum(document, path, full)
        if document["type"] == "fixed":
            return self._fixed(document, path, full)
        return self._record(document, path, full)

    def _enum(self, document: JsonValue, path: str, full: str) -> Enum | None:
        symbols = document.get("symbols")
        is_good = (
            isinstance(symbols, list)
            and symbols
            and all(isinstance(symbol, str) and _NAME.fullmatch(symbol) for symbol in symbols)
        )
        if not is_good or len(set(symbols)) != len(symbols):
            self.find(path, symbols, "a list of different symbols by Avro's rules")
            return None
        return Enum(full, tuple(symbols))

    def _fixed(self, document: JsonValue, path: str, full: str) -> AvroType | None:
        size = document.get("size")
        if not _is_whole(size) or not 1 <= size <= FIXED_BYTES_MAX:
            self.find(path, size, f"a size from 1 to {FIXED_BYTES_MAX}")
            return None
        logical = document.get("logicalType")
        if logical == "decimal":
            return self._decimal(document, path, size=size)
        if logical is not None:
            self.find(path, f"fixed {logical}", "decimal, or no logical type")
            return None
        return Fixed(full, size)

    def _record(self, document: JsonValue, path: str, full: str) -> Record | None:
        entries = document.get("fields")
        if not isinstance(entries, list) or not entries:
            self.find(path, entries, "at least one field")
            return None
        namespace = full.rpartition(".")[0]
        fields = [self._field(entry, path, namespace=namespace) for entry in entries]
        good = [entry for entry in fields if entry is not None]
        for attribute in ("name", "json_name"):
            # Fields of one name have one in the payload too, unless it is given: that is told once.
            given = good if attribute == "name" else [entry for entry in good if entry.json_name != entry.name]
            names = [getattr(entry, attribute) for entry in good]
            twice = {getattr(entry, attribute) for entry in given if names.count(getattr(entry, attribute)) > 1}
            for name in sorted(twice):
                self.find(f"{path}.{name}".lstrip("."), name, f"a {attribute.replace('_', '.')} used once")
        if len(good) < len(entries):
            return None
        made: Record = _shared(Record(full, tuple(good), doc=_text(document.get("doc")), connect=_mark(document)))
        return made

    def _field(self, document: JsonValue, path: str, *, namespace: str) -> Field | None:
        name = document.get("name") if isinstance(document, dict) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self.find(path, name, "a field name by Avro's rules (map other names by json.name)")
            return None
        own = f"{path}.{name}".lstrip(".")
        json_name = document.get("json.name", name)
        if not isinstance(json_name, str):
            self.find(own, json_name, "json.name as text")
            return None
        outer, self.taken = self.taken, self._taken(document, own)
        slot = self.slot(document.get("type"), own, namespace=namespace)
        self.taken = outer
        if slot is None:
            return None
        default = None
        if "default" in document:
            default = canonical_default(slot, document["default"], is_null_first=_is_null_first(document["type"]))
            if default is None:
                self.find(own, json.dumps(document["default"]), "a default of the (first) type")
        made: Field = _shared(Field(name, json_name, slot, default, doc=_text(document.get("doc"))))
        return made

    def _taken(self, document: dict[str, JsonValue], path: str) -> _Taken:
        wanted = document.get("json.coerce", sorted(self.coerce))
        if isinstance(wanted, bool):
            wanted = list(Coerce) if wanted else []
        if not isinstance(wanted, list) or not all(word in set(Coerce) for word in wanted):
            self.find(path, json.dumps(wanted), f"json.coerce as true, false or a list of {', '.join(Coerce)}")
            return _Taken()
        return _Taken(path, frozenset(map(Coerce, wanted)), self._pattern(document, path))

    def _pattern(self, document: dict[str, JsonValue], path: str) -> InstantPattern | None:
        pattern, zone = document.get("json.pattern"), document.get("json.zone")
        if pattern is None and zone is None:
            return None
        logical = next(_logical_types(document.get("type")), None)
        if not isinstance(pattern, str) or not isinstance(zone, str | None) or logical not in set(Temporal):
            self.find(path, f"json.pattern {pattern}", "a pattern as text, for a date or time")
            return None
        try:
            return instant_pattern(pattern, logical, zone)
        except PatternError as error:
            self.find(path, f"json.pattern {pattern}", str(error))
        return None


def _mark(document: JsonValue) -> ConnectMark | None:
    """What Connect says of a type; None where it says nothing, or not in its forms."""
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("type"), dict):
        return _mark(document["type"])
    parameters, version = document.get("connect.parameters"), document.get("connect.version")
    mark = ConnectMark(
        _text(document.get("connect.name")),
        version if _is_whole(version) else None,
        _text(document.get("connect.doc")),
        tuple((name, str(value)) for name, value in parameters.items()) if isinstance(parameters, dict) else (),
        document.get("connect.type") if document.get("connect.type") in {"int8", "int16"} else None,
    )
    return None if mark == ConnectMark() else mark


def _is_empty_a_value(kind: AvroType) -> bool:
    """Whether an empty text is a value of the type, or no text ever is."""
    return isinstance(kind, (Record, Array, Map)) or kind in {Primitive.STRING, Primitive.BYTES, Primitive.NULL}


def _coerced_by(kind: AvroType) -> Coerce | None:
    """The word of `contract.coerce` that concerns values of the type."""
    if isinstance(kind, Temporal):
        return Coerce.INSTANTS
    if isinstance(kind, Enum):
        return Coerce.ENUMS
    if kind is Primitive.BOOLEAN:
        return Coerce.BOOLEANS
    is_number = isinstance(kind, Decimal) or kind in _NUMBERS
    return Coerce.NUMBERS if is_number else None


def _logical_types(document: JsonValue) -> Iterator[str]:
    """Logical types of a field's own value, or of the items and values in it."""
    for branch in document if isinstance(document, list) else [document]:
        if isinstance(branch, dict):
            if isinstance(branch.get("logicalType"), str):
                yield branch["logicalType"]
            for key in ("type", "items", "values"):
                yield from _logical_types(branch.get(key))


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_null_first(document: JsonValue) -> bool:
    return document == "null" or (isinstance(document, list) and document[0] == "null")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _known_type(name: JsonValue, named: Iterable[str]) -> str:
    """What a type could be, and what was probably meant by this one."""
    text = str(name)
    known = "one of Avro's types (" + ", ".join([*Primitive, *sorted(_NAMED), "array", "map"]) + ")"
    if text.lower() in {"object", "integer", "number"}:
        meant = {"object": "record", "integer": "long", "number": "double"}[text.lower()]
        return f"{known}; '{text}' is JSON Schema's word, Avro's is '{meant}'"
    if text.endswith("?") or text.lower() in {"optional", "nullable"}:
        inner = text.rstrip("?") or "int"
        return f'{known}; what may be null is ["null", "{inner}"]'
    close = difflib.get_close_matches(text.lower(), [*Primitive, *_NAMED, "array", "map", *named], n=1)
    return f"{known}; did you mean '{close[0]}'?" if close else f"{known}, or a type that the schema names before"
