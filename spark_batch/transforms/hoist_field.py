"""`HoistField`: wraps the key or value in a record of one field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from spark_batch.avro_types import Field, JsonValue, Record, Slot
from spark_batch.transforms.connect_schema import schema_document
from spark_batch.transforms.form import ExactRow, FormKey, KeyValues, Parts, Row, Side, Values, joined
from spark_batch.transforms.halves import Faults, JsonHalf, Origins, TypedHalf, typed
from spark_batch.transforms.shape import Shape, pinned, written

_HOISTED = {"type": "record", "name": "ConnectDefault", "namespace": "io.confluent.connect.avro"}
"""A record without a name, as Confluent's converter writes it."""


@dataclass(frozen=True)
class HoistField:
    """Wraps the whole in a record of one field."""

    side: Side
    field: str

    NAME: ClassVar[str] = "HoistField"
    ABOUT: ClassVar[str] = "Wraps the key or value in a record of one field."
    KEYS: ClassVar[tuple[FormKey, ...]] = (FormKey("field", "Name of that field.", is_required=True),)
    takes_nulls: ClassVar[bool] = True

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> HoistField:
        """The field's name; any text will do."""
        del is_sink
        return cls(side, values["field"])

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """Anything can be wrapped; the default and the text of a field that it was go with it."""
        del name
        origin = shape.origin
        default, doc = (origin.default, origin.doc) if origin else (None, None)
        field = Field(self.field, self.field, shape.slot, default=default, doc=doc)
        inner = pinned(json.loads(shape.avro), "")
        document = {**_HOISTED, "fields": [{"name": self.field, "type": inner}]}
        return Shape(Slot(Record("", (field,))), written(document))

    def column(self, shape: Shape, value: Values, row: Row) -> Values:
        """A null that came to be by another transformation is wrapped; a record that is not there is not."""
        del shape
        return Parts({self.field: joined(value)}, row.is_there)

    def proof(self, shape: Shape, value: Values) -> None:
        """Nothing is left to prove."""

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """An object of one field."""
        del name, topic
        return {self.field: value}

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """A null that came to be by another transformation is wrapped."""
        del shape, row
        return {self.field: value}

    def of_texts(self, half: JsonHalf, origins: Origins) -> tuple[JsonHalf, Faults]:
        """Text put around the whole column; nulls are wrapped, as in Connect."""
        del origins
        schema = None
        if half.schema is not None:
            field = {**schema_document(half.schema), "field": self.field}
            schema = json.dumps(
                {"type": "struct", "fields": [field], "optional": False}, ensure_ascii=False, separators=(",", ":")
            )
        begin = pa.scalar(f"{{{json.dumps(self.field, ensure_ascii=False)}:", pa.string())
        end, nothing = pa.scalar("}", pa.string()), pa.scalar("", pa.string())
        texts: Any = half.column.fill_null("null")
        wrapped = cast("Any", pc.binary_join_element_wise(begin, texts, end, nothing))
        return JsonHalf(wrapped, schema), {}

    def of_columns(self, half: TypedHalf, origins: Origins) -> tuple[TypedHalf, Faults]:
        """A struct around the whole column; nulls are wrapped, as in Connect."""
        del origins
        field = pa.field(self.field, half.column.type, nullable=half.shape.slot.is_nullable)
        return typed(pa.StructArray.from_arrays([half.column], fields=[field]), self.reshaped("", half.shape)), {}
