"""Transformations of JSON texts: what is not asked for stays as it was written, digits, order and escapes.

Hoisting puts text around a whole column. To add or to take a field the object must be found out, so these two look at
each record, but only at the objects on the way: everything else is a slice of the text that is never parsed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import Form, ValueType
from service.sinks.readings import Column
from service.sinks.reasons import RefusalReason
from service.sinks.transforms.connect_schema import (
    Document,
    extracted_schema,
    fields_on,
    hoisted_schema,
    inserted_schema,
)
from service.sinks.transforms.halves import (
    EXTRACTION,
    INSERTION,
    NESTED,
    Fault,
    Faults,
    Mask,
    Origins,
    additions,
    missing_faults,
    only_maps,
)
from spark_batch.transforms.kinds import ExtractField, HoistField, InsertField

_NULL = b"null"
_OBJECT: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LOOSE = ValueType(Form.JSON)
Text: TypeAlias = "bytes | None"


class _NoObjectError(Exception):
    """The text is something else."""


@dataclass(frozen=True, slots=True)
class JsonHalf:
    """A column of texts, with Connect's schema in ``kind`` or without one."""

    column: Column
    kind: ValueType | None

    @property
    def schema(self) -> str | None:
        """Connect's schema."""
        return None if self.kind is None else self.kind.schema

    def taken(self, rows: Mask) -> JsonHalf:
        """See ``Half``."""
        return replace(self, column=self.column.filter(pa.array(rows)))

    def hoisted(self, hoist: HoistField) -> JsonHalf:
        """See ``Half``."""
        schema = None if self.schema is None else hoisted_schema(self.schema, hoist.field)
        begin = pa.scalar(f"{{{json.dumps(hoist.field, ensure_ascii=False)}:", pa.string())
        end, nothing = pa.scalar("}", pa.string()), pa.scalar("", pa.string())
        texts: Any = self.column.fill_null("null")
        return JsonHalf(
            cast("Any", pc.binary_join_element_wise(begin, texts, end, nothing)), ValueType(Form.JSON, schema)
        )

    def inserted(self, insert: InsertField, origins: Origins) -> tuple[JsonHalf, Faults]:
        """See ``Half``."""
        schema = None if self.schema is None else inserted_schema(self.schema, insert)
        added = additions(insert, origins)
        columns = [(field.name, column.to_pylist()) for field, column in added]
        faults = {} if schema is None else missing_faults(added)
        made: list[Text] = []
        for row, text in enumerate(_texts(self.column)):
            news = {name: values[row] for name, values in columns if values[row] is not None}
            try:
                made.append(msgspec.json.encode({**_object(text or _NULL), **news}))
            except _NoObjectError:
                faults[row] = self._no_object(text, INSERTION)
                made.append(None)
        return self._made(made, schema), faults

    def extracted(self, extract: ExtractField) -> tuple[JsonHalf, Faults]:
        """See ``Half``."""
        schema = None if self.schema is None else extracted_schema(self.schema, extract.path)
        fields = None if self.schema is None else fields_on(self.schema, extract.path)
        faults: dict[int, Fault] = {}
        made: list[Text] = []
        for row, text in enumerate(_texts(self.column)):
            value: Text = text
            for index, name in enumerate(extract.path):
                try:
                    value = None if value is None else _field(value, name, None if fields is None else fields[index])
                except _NoObjectError:
                    faults[row] = self._no_object(value, NESTED if index else EXTRACTION)
                    value = None
                except _MissingError as error:
                    faults[row] = Fault(RefusalReason.MISSING_FIELD, str(error))
                    value = None
            made.append(value)
        return self._made(made, schema), faults

    def _made(self, texts: list[Text], schema: str | None) -> JsonHalf:
        return JsonHalf(pa.array(texts, pa.binary()).cast(pa.string()), replace(_LOOSE, schema=schema))

    def _no_object(self, text: Text, purpose: str) -> Fault:
        if self.schema is not None:
            return Fault(RefusalReason.WRONG_TYPE, f"expected an object where the schema has a struct [{purpose}]")
        return only_maps(purpose, _java_class(text or _NULL))


class _MissingError(Exception):
    """A required field is not there."""


def without_null_texts(column: Column) -> Column:
    """A JSON text that says null is no value, as in Connect."""
    # The comparison is for texts of four letters and blanks: most columns have none and stay as they are.
    is_null: Any = pc.equal(cast("Any", pc.utf8_trim_whitespace(column)), pa.scalar("null"))
    if not pc.any(is_null).as_py():
        return column
    return cast("Column", pc.if_else(is_null, pa.scalar(None, pa.string()), column))


def _texts(column: Column) -> list[Text]:
    return column.cast(pa.binary()).to_pylist()


def _object(text: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _OBJECT.decode(text)
    except msgspec.DecodeError as error:
        raise _NoObjectError from error


def _field(text: bytes, name: str, field: Document | None) -> Text:
    """One field's text; None for a null and, without a schema, for a field that is not there."""
    found = _object(text).get(name)
    raw = None if found is None else bytes(found)
    if raw is not None and raw != _NULL:
        return raw
    if field is None:
        return None
    if field.get("default") is not None:
        return msgspec.json.encode(field["default"])
    if not field.get("optional", False):
        raise _MissingError(f"Invalid null value for required {field['type'].upper()} field")
    return None


def _java_class(text: bytes) -> str:
    """What Connect would have made of it."""
    first = text.lstrip()[:1]
    if first in {b"-", *(b"%d" % digit for digit in range(10))}:
        return "java.lang.Double" if any(sign in text for sign in b".eE") else "java.lang.Long"
    classes = {b'"': "java.lang.String", b"[": "java.util.ArrayList", b"t": "java.lang.Boolean"}
    return {**classes, b"f": "java.lang.Boolean", b"{": "java.util.HashMap"}.get(first, "null")
