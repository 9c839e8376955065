"""The text that a header converter writes of a field, whatever its type: in Spark's columns, and of one value.

SimpleHeaderConverter writes what `Values.convertToString` says (`{"a":1,"b":["x",null]}`, of structs as of maps),
StringConverter what Java's `toString` says (`Struct{a=1,b=[x, null]}`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from spark_batch.avro_types import (
    SCHEMAS_MAX,
    Array,
    AvroType,
    Decimal,
    Field,
    Fixed,
    JsonValue,
    Map,
    Primitive,
    Record,
    Slot,
    Temporal,
)
from spark_batch.connect_documents import document_text, slot_schema
from spark_batch.outcome import Reason
from spark_batch.transforms.cast import To, connect_kind
from spark_batch.transforms.change import CONNECT_TEMPORALS, Changed, Unchangeable
from spark_batch.transforms.connect_schema import Document
from spark_batch.transforms.connect_values import ConnectValue, connect_value, quoted
from spark_batch.transforms.form import Inapplicable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

_TO_TEXT = To(Primitive.STRING)
"""What `Cast` makes of values that have no parts is what both converters write of them."""


@dataclass(frozen=True)
class HeaderText:
    """How one of the two converters writes."""

    is_java: bool = False
    """Whether StringConverter writes it; else SimpleHeaderConverter does."""

    def demand(self, kind: AvroType) -> None:
        """Raises Unchangeable for a type whose text is not known."""
        for part in _parts(kind):
            self.demand(part.connect_type)
        if isinstance(kind, (Record, Array, Map)):
            return
        _TO_TEXT.kind(kind)
        if self.is_java and (_is_binary(kind) or isinstance(connect_kind(kind), Temporal)):
            raise Unchangeable("a field of numbers, text or booleans, of which StringConverter writes what people read")

    def columns(self, kind: AvroType, value: Column) -> Changed:
        """The texts of a column of values, null where these are."""
        return Changed(self._column(kind, value, is_inside=False), self._proof(kind, value))

    def of_canonical(self, slot: Slot, value: JsonValue) -> str:
        """The text of a canonical value that is not null. Raises Inapplicable."""
        if not isinstance(slot.type, (Record, Array, Map)):
            return str(_TO_TEXT.canonical(slot.connect_type, value))
        return self._text(connect_value(connect_document(slot, has_defaults=not self.is_java), value))

    def of_json(self, value: JsonValue) -> str | None:
        """The text of a JSON value that no schema describes. Raises Inapplicable."""
        found = connect_value(None, value)
        return None if found.value is None else self._text(found)

    def _text(self, value: ConnectValue) -> str:
        text = value.java_text if self.is_java else value.text
        if text is None:
            raise Inapplicable(Reason.WRONG_TYPE, "expected no dates and no bytes, of which Java has a text of its own")
        return text

    def _column(self, kind: AvroType, value: Column, *, is_inside: bool) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        if isinstance(kind, Record):
            return F.when(value.isNotNull(), self._record(kind, value))
        if isinstance(kind, Array):
            items = F.transform(value, lambda item: self._part(kind.items, item))
            return F.concat(F.lit("["), F.array_join(items, self._separator), F.lit("]"))
        if isinstance(kind, Map):
            items = F.transform(F.map_entries(value), lambda entry: self._entry(kind, entry))
            return F.concat(F.lit("{"), F.array_join(items, self._separator), F.lit("}"))
        text = _TO_TEXT.column(kind, value).value
        return self._quoted(kind, text) if is_inside and not self.is_java else text

    @property
    def _separator(self) -> str:
        return ", " if self.is_java else ","

    def _record(self, kind: Record, value: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        if self.is_java:
            parts = ((each, self._inside(each.slot, value.getField(each.name))) for each in kind.fields)
            shown = [F.concat(F.lit(f"{field.name}="), text) for field, text in parts]
            return F.concat(F.lit("Struct{"), F.concat_ws(",", *shown), F.lit("}"))
        pieces = []
        for at, field in enumerate(kind.fields):
            pieces.append(F.lit(f"{',' if at else ''}{quoted(field.name)}:"))
            pieces.append(self._part(field.slot, value.getField(field.name), _inner_default(field)))
        return F.concat(F.lit("{"), *pieces, F.lit("}"))

    def _entry(self, kind: Map, entry: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        key = self._column(Primitive.STRING, entry.getField("key"), is_inside=True)
        return F.concat(key, F.lit("=" if self.is_java else ":"), self._part(kind.values, entry.getField("value")))

    def _part(self, slot: Slot, value: Column, absent: str = "null") -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        return F.coalesce(self._inside(slot, value), F.lit(absent))

    def _inside(self, slot: Slot, value: Column) -> Column:
        return self._column(slot.connect_type, value, is_inside=True)

    @staticmethod
    def _quoted(kind: AvroType, text: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        if connect_kind(kind) is not Primitive.STRING:
            return F.concat(F.lit('"'), text, F.lit('"')) if _is_binary(kind) else text
        for letter in ("\\", '"'):
            text = F.replace(text, F.lit(letter), F.lit(f"\\{letter}"))
        return F.concat(F.lit('"'), text, F.lit('"'))

    def _proof(self, kind: AvroType, value: Column) -> Column | None:
        """Where all parts are sure to be right; None: everywhere."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        if not _is_sometimes_unsure(kind):
            return None
        if isinstance(kind, Record):
            own = [(field.slot, value.getField(field.name)) for field in kind.fields]
            return _all_of([self._proof_of_part(slot, part) for slot, part in own if _is_sometimes_unsure(slot.type)])
        if isinstance(kind, Array):
            return F.forall(value, lambda item: self._proof_of_part(kind.items, item))
        if isinstance(kind, Map):
            return F.forall(F.map_values(value), lambda item: self._proof_of_part(kind.values, item))
        return _TO_TEXT.column(kind, value).proof

    def _proof_of_part(self, slot: Slot, value: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        proof = self._proof(slot.connect_type, value)
        return F.lit(True) if proof is None else value.isNull() | proof  # noqa: FBT003 - a literal


@lru_cache(maxsize=SCHEMAS_MAX)
def connect_document(slot: Slot, origin: Field | None = None, *, has_defaults: bool = True) -> Document:
    """Connect's schema of a value, with what belongs to the field that it was taken from."""
    found: Document = json.loads(document_text(slot_schema(slot, origin), is_decimal_numeric=False))
    return found if has_defaults else _without_defaults(found)


def _without_defaults(document: Document) -> Document:
    """Java's text of a struct shows no defaults."""
    kept = {key: item for key, item in document.items() if key != "default"}
    inner: Document = {key: _without_defaults(kept[key]) for key in ("items", "keys", "values") if key in kept}
    fields = {"fields": [_without_defaults(each) for each in kept["fields"]]} if "fields" in kept else {}
    return {**kept, **inner, **fields}


@lru_cache(maxsize=SCHEMAS_MAX)
def _inner_default(field: Field) -> str:
    """What stands for a null of the field within a struct: `Struct.get` gives its default."""
    if not field.slot.is_nullable or not field.has_value_default:
        return "null"
    return connect_value(connect_document(field.slot, field), None).inner_text


def _parts(kind: AvroType) -> Sequence[Slot]:
    if isinstance(kind, Record):
        return [field.slot for field in kind.fields]
    if isinstance(kind, Array):
        return [kind.items]
    return [kind.values] if isinstance(kind, Map) else []


def _is_binary(kind: AvroType) -> bool:
    return kind is Primitive.BYTES or isinstance(kind, Fixed)


def _is_sometimes_unsure(kind: AvroType) -> bool:
    """Whether a text is not the same in columns for all values: those of dates, and of decimals beyond Spark's."""
    if isinstance(kind, Decimal):
        return kind.is_wide
    return kind in CONNECT_TEMPORALS or any(_is_sometimes_unsure(part.type) for part in _parts(kind))


def _all_of(proofs: Sequence[Column]) -> Column:
    return reduce(lambda left, right: left & right, proofs)
