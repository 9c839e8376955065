"""Values as Connect's StringConverter writes them: Java's text of a Struct, null fields left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.avro_types import AvroType, Primitive, Record

if TYPE_CHECKING:
    from pyspark.sql import Column


def struct_text(kind: AvroType, value: Column) -> Column:
    """The text (bytes stay bytes); null stays null."""
    if kind is Primitive.BYTES:
        return value
    if not isinstance(kind, Record):
        return value.cast("string")
    shown = [
        F.concat(F.lit(f"{field.name}="), struct_text(field.slot.type, value.getField(field.name)))
        for field in kind.fields
    ]
    return F.when(value.isNotNull(), F.concat(F.lit("Struct{"), F.concat_ws(",", *shown), F.lit("}")))
