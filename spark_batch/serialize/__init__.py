"""Typed columns to the bytes of a key or a value, in the form of each converter; Connect's JSON has its own file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.avro.functions import to_avro

from spark_batch.avro_types import AvroType, Primitive, Record
from spark_batch.connect_documents import connect_schema, slot_schema
from spark_batch.number_forms import NumberForm
from spark_batch.plan import ConverterKind, ConverterSpec
from spark_batch.serialize.connect_json import (
    any_json_text,
    enveloped,
    json_payload,
    json_text,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_batch.transforms.shape import Shape

TEXT_SCHEMA = '{"type":"string","optional":false}'
"""Connect's schema of plain required text, as its JSON converter writes it."""


def record_bytes(record: Record, value: Column, *, spec: ConverterSpec, avro_schema: str | None) -> Column:
    """A record (null stays null) as Avro or JSON."""
    if spec.kind is ConverterKind.AVRO:
        return framed_avro(value, avro_schema=avro_schema, schema_id=spec.schema_id)
    payload = json_payload(record, value, is_decimal_numeric=spec.is_decimal_numeric)
    text = F.to_json(payload, {"ignoreNullFields": "false"})
    if spec.is_schema_enveloped:
        text = enveloped(connect_schema(record), text, is_decimal_numeric=spec.is_decimal_numeric)
    return F.when(value.isNotNull(), text).cast("binary")


def shaped_bytes(shape: Shape, value: Column, *, is_there: Column, spec: ConverterSpec) -> Column:
    """A transformed key or value in the form of the converter; null where `is_there` is not true.

    Of a value that has become null only JSON has a form, as in Connect.
    """
    slot = shape.slot
    if spec.kind is ConverterKind.AVRO:
        return F.when(is_there, framed_avro(value, avro_schema=shape.avro, schema_id=spec.schema_id))
    if spec.kind.number is not None:
        return F.when(is_there, number_bytes(spec.kind.number, value))
    if spec.kind is not ConverterKind.JSON:
        return F.when(is_there, struct_text(slot.type, value)).cast("binary")
    written = any_json_text(slot.type, value, is_decimal_numeric=spec.is_decimal_numeric)
    if spec.is_schema_enveloped:
        schema = slot_schema(slot, shape.origin)
        written = enveloped(schema, written, is_decimal_numeric=spec.is_decimal_numeric)
    return F.when(is_there, written).cast("binary")


def number_bytes(form: NumberForm, value: Column) -> Column:
    """A column of the form's type as Kafka's serializer writes it; null stays null."""
    if form.type is Primitive.BOOLEAN:
        return F.when(value.isNull(), None).when(value, F.lit(b"\x01")).otherwise(F.lit(b"\x00"))
    if form.type not in {Primitive.FLOAT, Primitive.DOUBLE}:
        return value.cast({2: "smallint", 4: "int", 8: "bigint"}[form.size_bytes]).cast("binary")
    # Spark gives the bits of a number of floating point in Avro alone, the lowest byte first.
    digits = F.hex(to_avro(value, f'"{form.connect_type}"'))
    bytes_at = (F.substring(digits, 2 * at + 1, 2) for at in reversed(range(form.size_bytes)))
    return F.when(value.isNotNull(), F.unhex(F.concat(*bytes_at)))


def text_bytes(text: Column, *, spec: ConverterSpec) -> Column:
    """Plain text (null stays null) in the form of the converter."""
    if spec.kind is ConverterKind.AVRO:
        return framed_avro(text, avro_schema='"string"', schema_id=spec.schema_id)
    if spec.kind is not ConverterKind.JSON:
        return text.cast("binary")
    written = json_text(text)
    if spec.is_schema_enveloped:
        written = F.concat(F.lit(f'{{"schema":{TEXT_SCHEMA},"payload":'), written, F.lit("}"))
    return F.when(text.isNotNull(), written).cast("binary")


def framed_avro(value: Column, *, avro_schema: str | None, schema_id: int | None) -> Column:
    """Avro in Confluent's wire format, encoded by spark-avro; null stays null.

    A zero byte, the registry's schema id as 4 bytes big-endian, the Avro binary body. Raises ValueError where the plan
    has no schema id yet.
    """
    if avro_schema is None or schema_id is None:
        message = "an Avro conversion needs the registry's schema id: ConversionPlan.with_schema_ids"
        raise ValueError(message)
    frame = F.lit(bytearray(b"\x00" + schema_id.to_bytes(4, "big")))
    return F.concat(frame, to_avro(value, avro_schema))


def struct_text(kind: AvroType, value: Column) -> Column:
    """The value as Connect's StringConverter writes it: Java's text of a Struct, null fields left out.

    Bytes stay bytes, null stays null.
    """
    if kind is Primitive.BYTES:
        return value
    if not isinstance(kind, Record):
        return value.cast("string")
    shown = [
        F.concat(F.lit(f"{field.name}="), struct_text(field.slot.type, value.getField(field.name)))
        for field in kind.fields
    ]
    return F.when(value.isNotNull(), F.concat(F.lit("Struct{"), F.concat_ws(",", *shown), F.lit("}")))
