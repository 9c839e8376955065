"""Spark types of a contract: how its payloads are read, and the typed values that rules and serializers see.

Only `spark_batch` imports pyspark; nothing here needs a running session.
"""

from __future__ import annotations

from pyspark.sql import types as spark

from spark_batch.avro_types import Array, AvroType, Decimal, Fixed, Map, Narrow, Primitive, Record, Slot, Temporal
from spark_batch.coerced_columns import is_read_as_variant

CORRUPT = "__headrace_corrupt"
"""Column of the parsed struct that holds the text of a payload which does not fit the types."""

_PRIMITIVES: dict[AvroType, spark.DataType] = {
    Primitive.NULL: spark.StringType(),
    Primitive.BOOLEAN: spark.BooleanType(),
    Primitive.INT: spark.IntegerType(),
    Primitive.LONG: spark.LongType(),
    Primitive.FLOAT: spark.FloatType(),
    Primitive.DOUBLE: spark.DoubleType(),
    Narrow(8): spark.IntegerType(),
    Narrow(16): spark.IntegerType(),
}


def payload_shape(record: Record) -> spark.StructType:
    """How payloads are read: payload names; types whose reading is not exact as text or variant."""
    return _with_corrupt(_record(record, is_canonical=False))


def canonical_shape(record: Record) -> spark.StructType:
    """How canonical texts are read: Avro names, every type as itself."""
    return _with_corrupt(_record(record, is_canonical=True))


def canonical_type(kind: AvroType) -> spark.DataType:
    """How one canonical value is read."""
    return _type(kind, is_canonical=True)


def _with_corrupt(shape: spark.StructType) -> spark.StructType:
    return spark.StructType([*shape.fields, spark.StructField(CORRUPT, spark.StringType())])


def _record(record: Record, *, is_canonical: bool) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField(
                field.name if is_canonical else field.json_name,
                _slot(field.slot, is_canonical=is_canonical),
            )
            for field in record.fields
        ],
    )


def _slot(slot: Slot, *, is_canonical: bool) -> spark.DataType:
    if not is_canonical and is_read_as_variant(slot):
        return spark.VariantType()
    return _type(slot.type, is_canonical=is_canonical)


def _type(kind: AvroType, *, is_canonical: bool) -> spark.DataType:  # noqa: PLR0911 - one line a type
    if isinstance(kind, Record):
        return _record(kind, is_canonical=is_canonical)
    if isinstance(kind, Array):
        return spark.ArrayType(_slot(kind.items, is_canonical=is_canonical))
    if isinstance(kind, Map):
        return spark.MapType(spark.StringType(), _slot(kind.values, is_canonical=is_canonical))
    if isinstance(kind, Decimal) and kind.is_wide:
        return spark.BinaryType()
    if isinstance(kind, Decimal):
        return spark.DecimalType(kind.precision, kind.scale) if is_canonical else spark.VariantType()
    if isinstance(kind, Temporal):
        return _PRIMITIVES[kind.base] if is_canonical else spark.VariantType()
    if (isinstance(kind, Fixed) or kind is Primitive.BYTES) and is_canonical:
        return spark.BinaryType()
    return _PRIMITIVES.get(kind, spark.StringType())
