"""JSON of which Spark gives the single values, and Arrow writes the text.

Spark's ``to_json`` makes a Java text of each value, has Jackson escape it character by character, and makes bytes of it
again, which is most of what a job of short steps takes. Here a job ends in one column for each value in the record, and
Arrow escapes and joins them, whole columns at a time. The bytes are those of ``to_json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from spark_batch.avro_types import AvroType, Field, Record, Slot
from spark_batch.errors import ConversionFatal
from spark_batch.outcome import ArrowColumn
from spark_batch.plan import ConverterKind, ConverterSpec
from spark_batch.prepass import pc
from spark_batch.serialize.connect_json import json_payload
from spark_batch.serialize.json_pieces import is_written_in_columns, json_documents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column

    from spark_batch.transforms.form import Values


@dataclass(frozen=True)
class JsonColumns:
    """A key or value as columns of a job: whether it is written, then its values, depth first.

    A record's own column stands before those of its fields and says whether it is there.
    """

    columns: tuple[Column, ...]
    slot: Slot
    origin: Field | None
    """The field that the whole was taken from: its default and text go with its type's schema."""
    spec: ConverterSpec

    def named(self, name: str) -> list[Column]:
        """The columns under the names by which `put_together` knows them."""
        return [column.alias(f"{name}_{at}") for at, column in enumerate(self.columns)]

    def put_together(self, rows: pa.Table, name: str) -> pa.Table:
        """The job's rows with one column of bytes in their place; raises ConversionFatal where they are too many."""
        names = [f"{name}_{at}" for at in range(len(self.columns))]
        try:
            written = [self._written([batch.column(each) for each in names]) for batch in rows.to_batches()]
        except pa.ArrowCapacityError as error:
            raise ConversionFatal.of_size(rows.num_rows) from error
        return rows.drop_columns(names).append_column(name, pa.chunked_array(written, pa.binary()))

    def _written(self, columns: list[ArrowColumn]) -> ArrowColumn:
        left = iter(columns)
        is_there = next(left)
        return json_documents(self.slot, _values(self.slot.type, left), is_there, spec=self.spec, origin=self.origin)


def json_columns(
    slot: Slot, value: Values, *, is_there: Column, spec: ConverterSpec, origin: Field | None = None
) -> JsonColumns | None:
    """A key or value whose text is left to Arrow; None where Spark has to write it.

    That is so of other forms than JSON, and of values whose text in JSON Arrow does not write as Java does.
    """
    if spec.kind is not ConverterKind.JSON or spec.is_by_spark or not is_written_in_columns(slot.type):
        return None
    return JsonColumns((is_there, *_columns(slot.type, value)), slot, origin, spec)


def _columns(kind: AvroType, value: Values) -> Iterator[Column]:
    if not isinstance(kind, Record):
        yield json_payload(kind, cast("Column", value), is_decimal_numeric=False)
        return
    yield value.isNotNull()
    for field in kind.fields:
        yield from _columns(field.slot.type, value.getField(field.name))


def _values(kind: AvroType, columns: Iterator[ArrowColumn]) -> ArrowColumn:
    """The columns as one, of structs where the type is a record."""
    if not isinstance(kind, Record):
        return next(columns)
    is_there = pc.fill_null(next(columns), False)  # noqa: FBT003 - a literal
    children = [_values(field.slot.type, columns) for field in kind.fields]
    if not children:
        # There is none whose length it could have.
        return pa.Array.from_buffers(pa.struct([]), len(is_there), [is_there.buffers()[1]], offset=is_there.offset)
    names = [field.name for field in kind.fields]
    return pa.StructArray.from_arrays(children, names=names, mask=pc.invert(is_there))
