"""A sink's JSON texts through a transformation of fields: with Connect's schema, or without one.

A text is cut into slices of its fields. Only fields that are changed are read; all others stay as they were written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import msgspec

from spark_batch.avro_types import Field, JsonValue, Record, Slot
from spark_batch.literals.writing import json_text
from spark_batch.outcome import Reason
from spark_batch.transforms.change import (
    Change,
    Taken,
    Unchangeable,
    canonical_of_connect,
    changed_json,
    connect_text,
    connect_type,
    kind_of_document,
    opened,
)
from spark_batch.transforms.connect_schema import Document, java_class_of_schema, schema_document
from spark_batch.transforms.form import Inapplicable
from spark_batch.transforms.halves import (
    Fault,
    FaultReason,
    Faults,
    JsonHalf,
    NoObjectError,
    Unfit,
    json_half,
    no_object,
    object_of,
    only_structs,
    texts_of,
)
from spark_batch.transforms.shape import Misfit

_CACHED = 1024
_NULL = b"null"
_DEFAULTS = frozenset({"default", "headrace.default"})
"""The second is of a null that JsonConverter was told to keep: what is below reads the first alone."""
_REASONS = {
    Reason.MISSING_FIELD: FaultReason.MISSING_FIELD,
    Reason.OUT_OF_RANGE: FaultReason.OUT_OF_RANGE,
    Reason.NULL_NOT_ALLOWED: FaultReason.MISSING_FIELD,
}


class FieldsForm(Hashable, Protocol):
    """What texts ask of a transformation of fields (`fields.OfFields` says what each means)."""

    PURPOSE: ClassVar[str]
    refuses_nulls: ClassVar[bool]
    is_optional_kept: ClassVar[bool]

    @property
    def whole(self) -> Change | None:
        """What is done to the whole."""

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """The fields afterwards."""

    def loose(self, fields: Mapping[str, Any], value_of: Callable[[Any], JsonValue]) -> dict[str, Any]:
        """The fields of an object without a schema afterwards."""

    def renamed_document(self, document: Document) -> Document:
        """What is kept of a struct's Connect schema."""


def fault_of(error: Inapplicable) -> Fault:
    """The refusal of a sink's record."""
    return Fault(_REASONS.get(error.reason, FaultReason.WRONG_TYPE), error.message)


def texts_after(form: FieldsForm, half: JsonHalf) -> tuple[JsonHalf, Faults]:
    """The texts and their schema afterwards. Raises Unfit."""
    plan = None if half.schema is None else _plan(form, half.schema)
    faults: dict[int, Fault] = {}
    made: list[bytes | None] = []
    for row, text in enumerate(texts_of(half.column)):
        after = None
        try:
            after = _loose(form, text) if plan is None else _with_schema(form, plan, text)
        except NoObjectError:
            is_null = text is None and plan is not None
            faults[row] = only_structs(form.PURPOSE, "null") if is_null else no_object(half, text, form.PURPOSE)
        except Inapplicable as error:
            faults[row] = fault_of(error)
        made.append(after)
    return json_half(made, None if plan is None else plan.schema), faults


def _loose(form: FieldsForm, text: bytes | None) -> bytes | None:
    """A text without a schema; a text that is null has no value any more."""
    if form.whole is not None:
        changed = changed_json(form.whole, None if text is None else opened(text))
        return None if changed is None else json_text(changed, number=str).encode()
    if text is None:
        _demand_nulls_taken(form)
        return None
    found = form.loose(object_of(text), lambda raw: None if raw is None else opened(bytes(raw)))
    return msgspec.json.encode({name: _raw(item) for name, item in found.items()})


def _demand_nulls_taken(form: FieldsForm) -> None:
    """Some of Connect's classes refuse a value that is not there."""
    if form.refuses_nulls:
        raise NoObjectError


def _raw(item: Any) -> msgspec.Raw:
    return item if isinstance(item, msgspec.Raw) else msgspec.Raw(json_text(item, number=str).encode())


@dataclass(frozen=True)
class _Plan:
    """What becomes of texts with one Connect schema."""

    schema: str
    taken: tuple[tuple[Taken, Document], ...] = ()
    """With the Connect schema of what is taken."""
    whole: Change | None = None
    document: Document | None = None
    """That of the whole, before."""


def _with_schema(form: FieldsForm, plan: _Plan, text: bytes | None) -> bytes | None:
    if text is None:
        _demand_nulls_taken(form)
        return None
    if plan.whole is not None and plan.document is not None:
        return _changed(plan.whole, plan.document, text)
    opened_objects: dict[tuple[str, ...], dict[str, msgspec.Raw] | None] = {(): object_of(text)}
    made: dict[str, msgspec.Raw] = {}
    for taken, document in plan.taken:
        inside = _object_at(opened_objects, taken.path[:-1])
        slice_ = None if inside is None else inside.get(taken.path[-1])
        raw = None if slice_ is None else bytes(slice_)
        if taken.change is not None:
            raw = _changed(taken.change, document, _NULL if raw is None else raw)
        if raw is not None:
            made[taken.name] = msgspec.Raw(raw)
    return msgspec.json.encode(made)


def _object_at(
    found: dict[tuple[str, ...], dict[str, msgspec.Raw] | None], path: tuple[str, ...]
) -> dict[str, msgspec.Raw] | None:
    """The object at a path; None where it, or one that it lies in, is null. Raises NoObjectError."""
    if path not in found:
        outer = _object_at(found, path[:-1])
        raw = None if outer is None else outer.get(path[-1])
        found[path] = None if raw is None or bytes(raw) == _NULL else object_of(bytes(raw))
    return found[path]


def _changed(change: Change, document: Document, raw: bytes) -> bytes | None:
    """A field that is null or not there is its default, as JsonConverter reads it; None where there is none either."""
    if raw == _NULL:
        if document.get("default") is None:
            return None
        raw = msgspec.json.encode(document["default"])
    kind = kind_of_document(document)
    return connect_text(change.kind(kind), change.canonical(kind, canonical_of_connect(kind, raw)))


def _changed_document(change: Change, document: Document) -> Document:
    """A Connect schema afterwards, without what belongs to a field of it; raises Unfit."""
    kind = kind_of_document(document)
    try:
        after = change.kind(kind)
        if after == kind:
            return document
        defaults = {}
        for key in _DEFAULTS & {key for key, item in document.items() if item is not None}:
            value = change.canonical(kind, canonical_of_connect(kind, msgspec.json.encode(document[key])))
            defaults[key] = json.loads(json_text(value, number=str))
    except Unchangeable as error:
        raise Unfit(Fault(FaultReason.WRONG_TYPE, f"expected {error}")) from error
    except Inapplicable as error:
        raise Unfit(fault_of(error)) from error
    return {**connect_type(after), "optional": document.get("optional", False), **defaults}


def record_of(document: Document) -> Record:
    """A struct's fields and their types, as far as a Connect schema tells them."""
    fields = (Field(field["field"], field["field"], _slot_of(field)) for field in document["fields"])
    return Record(document.get("name") or "", tuple(fields))


def _slot_of(document: Document) -> Slot:
    is_nullable = bool(document.get("optional", False))
    return Slot(record_of(document) if document["type"] == "struct" else kind_of_document(document), is_nullable)


@lru_cache(maxsize=_CACHED)
def _plan(form: FieldsForm, text: str) -> _Plan:
    """Once for each schema; raises Unfit."""
    document = schema_document(text)
    if form.whole is not None:
        return _Plan(_written(_changed_document(form.whole, document)), whole=form.whole, document=document)
    if document["type"] != "struct":
        raise Unfit(only_structs(form.PURPOSE, java_class_of_schema(document)))
    try:
        taken = form.taken("", record_of(document))
    except Misfit as misfit:
        raise Unfit(Fault(FaultReason.WRONG_TYPE, f"{misfit.value}: expected {misfit.expected}")) from misfit
    found, fields = [], []
    for each in taken:
        source, is_optional = document, False
        for step in each.path:
            source = next(field for field in source["fields"] if field["field"] == step)
            is_optional = is_optional or bool(source.get("optional", False))
        field = source if each.change is None else _changed_document(each.change, source)
        is_optional = is_optional if each.is_optional is None else each.is_optional
        kept = {key: item for key, item in field.items() if each.has_default or key not in _DEFAULTS}
        fields.append({**kept, "optional": is_optional, "field": each.name})
        found.append((each, source))
    names = [field["field"] for field in fields]
    for name in names:
        if names.count(name) > 1:
            message = f"Cannot create field because of field name duplication {name}"
            exception = "org.apache.kafka.connect.errors.SchemaBuilderException"
            raise Unfit(Fault(FaultReason.DUPLICATE_FIELD, message, exception))
    is_optional = form.is_optional_kept and bool(document.get("optional", False))
    whole = {"type": "struct", "fields": fields, "optional": is_optional, **form.renamed_document(document)}
    return _Plan(_written(whole), tuple(found))


def _written(document: JsonValue) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
