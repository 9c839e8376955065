"""`HeaderFrom`: copies or moves fields of the key or value into headers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_batch.avro_types import Primitive
from spark_batch.transforms.cast import Cast, To
from spark_batch.transforms.form import FormKey, KeyKind, KeysRefused, KeyValues, Side
from spark_batch.transforms.halves import ArrowColumn, Fault, FaultReason, Faults, Half, JsonHalf, Origins, only_structs
from spark_batch.transforms.records import Records, is_null, with_header
from spark_batch.transforms.replace_field import ReplaceField

_TEXTS: msgspec.json.Decoder[dict[str, str | None]] = msgspec.json.Decoder(dict[str, str | None])


@dataclass(frozen=True)
class HeaderFrom:
    """A header for each field, with its text as SimpleHeaderConverter writes it."""

    side: Side
    fields: tuple[str, ...]
    headers: tuple[str, ...]
    """Name of the header for each field."""
    is_moved: bool
    is_null_defaulted: bool = True

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
        """Refuses lists of different lengths, and at a source everything: its records become bytes before headers."""
        if not is_sink:
            raise KeysRefused(("type", "a sink: fields of a source's records cannot become headers in this version"))
        if len(values["fields"]) != len(values["headers"]):
            raise KeysRefused(("headers", "as many names as 'fields' has"))
        is_moved = values["operation"] == "move"
        return cls(side, values["fields"], values["headers"], is_moved, values["replace.null.with.default"])

    @property
    def _purpose(self) -> str:
        return f"header {'move' if self.is_moved else 'copy'}"

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """With a header for each field. Raises Unfit."""
        half = records.halves[self.side]
        nulls = np.flatnonzero(is_null(half))
        faults = {int(row): only_structs(self._purpose, "null") for row in nulls}
        kept = ReplaceField(self.side, self.is_null_defaulted, include=frozenset(self.fields))
        chosen, found = _of_half(kept, half, origins)
        faults |= found
        casts = tuple((field, To(Primitive.STRING)) for field in dict.fromkeys(self.fields))
        texts, found = _of_half(Cast(self.side, self.is_null_defaulted, casts), chosen, origins)
        faults |= found
        columns = texts_of_fields(texts, self.fields)
        headers = records.headers
        for field, header in zip(self.fields, self.headers, strict=True):
            column = columns.get(field)
            if column is None:
                fault = Fault(FaultReason.MISSING_FIELD, f"Field does not exist: {field[:200]}")
                return (), dict.fromkeys(range(len(records.rows)), fault)
            headers = with_header(headers, header, column)
        records = replace(records, headers=headers)
        if self.is_moved:
            rest = ReplaceField(self.side, self.is_null_defaulted, exclude=frozenset(self.fields))
            half, found = _of_half(rest, half, origins)
            faults |= found
            records = records.with_half(self.side, half)
        return (records,), faults


def _of_half(form: Cast | ReplaceField, half: Half, origins: Origins) -> tuple[Half, Faults]:
    if isinstance(half, JsonHalf):
        return form.of_texts(half, origins)
    return form.of_columns(half, origins)


def texts_of_fields(half: Half, fields: Sequence[str]) -> dict[str, ArrowColumn]:
    """For each field its texts in bytes; a field that a schema does not have is not there."""
    if isinstance(half, JsonHalf):
        objects = [{} if text is None else _TEXTS.decode(text) for text in half.column.cast(pa.binary()).to_pylist()]
        known = fields if half.schema is None else _fields_of(half.schema)
        return {
            field: pa.array([each.get(field) for each in objects], pa.string()).cast(pa.binary())
            for field in fields
            if field in known
        }
    record = half.shape.record
    names = [] if record is None else [field.name for field in record.fields]
    column: Any = half.column
    return {name: cast("ArrowColumn", pc.struct_field(column, [at]).cast(pa.binary())) for at, name in enumerate(names)}


def _fields_of(schema: str) -> list[str]:
    return [field["field"] for field in msgspec.json.decode(schema)["fields"]]
