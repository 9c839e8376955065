"""The transformations of a plan: shapes before and after, and the schemas that it writes with."""

from __future__ import annotations

import json

from spark_batch.avro_documents import definitions, inlined, namespace_of, without_json_names
from spark_batch.avro_types import Record, Slot
from spark_batch.plan import ConversionPlan, ConverterKind, PayloadFormat, UnknownFields
from spark_batch.transforms.applied import shape_after
from spark_batch.transforms.catalog import (
    HeaderFrom,
    InsertField,
    Side,
    Sql,
)
from spark_batch.transforms.fields import OfFields
from spark_batch.transforms.shape import Shape, text_shape


def is_reshaped(plan: ConversionPlan, side: Side) -> bool:
    """Whether keys or values are transformed; quick where nothing is."""
    return bool(plan.transformations) and bool(plan.applied_steps().of(side))


def is_changed_exactly(plan: ConversionPlan) -> bool:
    """Whether a transformation's columns may leave records to the exact path, which then writes them too."""
    steps = plan.applied_steps().steps if plan.transformations else ()
    return any(isinstance(step.reshaping, (HeaderFrom, OfFields)) for step in steps) and not is_selecting(plan)


def is_selecting(plan: ConversionPlan) -> bool:
    """Whether records of the plan go through what is Spark's alone to carry out, so that there is no exact path."""
    return has_sql(plan) and any(isinstance(step.reshaping, Sql) for step in plan.applied_steps().steps)


def has_sql(plan: ConversionPlan) -> bool:
    """Whether records of its connector may, whatever its predicates say of these."""
    return any(isinstance(step.transformation, Sql) for step in plan.transformations)


def is_timestamp_inserted(plan: ConversionPlan) -> bool:
    """Whether a transformation asks for the record's timestamp."""
    applied = plan.applied_steps().steps if plan.transformations else ()
    return any(isinstance(step.reshaping, InsertField) and step.reshaping.timestamp is not None for step in applied)


def is_loose(plan: ConversionPlan) -> bool:
    """Whether values are JSON without a contract, of which nothing is known before they are read."""
    return plan.contract is None and plan.payload_format == "json"


def is_value_written(plan: ConversionPlan) -> bool:
    """Whether the job writes values; otherwise the payload itself is the value."""
    kind = plan.value_converter
    if plan.is_of_rows:
        return True
    if is_reshaped(plan, Side.VALUE):
        return not is_loose(plan)
    if kind.kind in {ConverterKind.STRING, ConverterKind.BYTES}:
        return False
    if plan.contract is not None:
        return plan.contract.unknown_fields is not UnknownFields.KEEP
    return plan.payload_format is not PayloadFormat.JSON or kind.is_schema_enveloped


def is_page_key_written(plan: ConversionPlan) -> bool:
    """Whether keys that come with the page must be converted (they are text) rather than passed on."""
    is_formed = plan.key_converter.kind in {ConverterKind.JSON, ConverterKind.AVRO}
    is_formed = is_formed or plan.key_schema is not None
    return not plan.key_fields and not plan.has_key_of_value and (is_formed or is_reshaped(plan, Side.KEY))


def plain_value_shape(plan: ConversionPlan) -> Shape | None:
    """Values before their transformations; None where they are loose."""
    if is_loose(plan):
        return None
    if plan.record is not None:
        return Shape(Slot(plan.record), plan.plain_value_schema())
    return text_shape(is_binary=plan.payload_format == "bytes")


def plain_key_shape(plan: ConversionPlan) -> Shape | None:
    """Keys before their transformations; None where they are loose. Those made of the value begin as the value."""
    if plan.has_key_of_value:
        return plain_value_shape(plan)
    if not plan.key_fields:
        return text_shape() if plan.key_record is None else Shape(Slot(plan.key_record), plan.plain_key_schema())
    record = plan.record
    if record is None or plan.contract is None:
        return None
    fields = tuple(field for field in map(record.field, plan.key_fields) if field is not None)
    if not plan.key_converter.kind.is_single:
        return Shape(Slot(Record(f"{record.name}Key", fields)), plan.plain_key_schema())
    document = json.loads(plan.contract.schema)
    kind = next(item["type"] for item in document["fields"] if item["name"] == fields[0].name)
    known = definitions(document, document.get("namespace", ""))
    avro = inlined(without_json_names(kind), known, set(), namespace_of(document))
    return Shape(fields[0].slot, json.dumps(avro), fields[0])


def value_shape(plan: ConversionPlan) -> Shape | None:
    """Values after their transformations; None where they are loose. Raises Misfit."""
    shape = plain_value_shape(plan)
    return None if shape is None else shape_after(plan.applied_steps().of(Side.VALUE), shape)


def key_shape(plan: ConversionPlan) -> Shape | None:
    """Keys after their transformations; None where they are loose. Raises Misfit."""
    shape = plain_key_shape(plan)
    return None if shape is None else shape_after(plan.applied_steps().of(Side.KEY), shape)


def value_schema(plan: ConversionPlan) -> str | None:
    """Avro schema text of values, or None where their converter is not Avro."""
    if plan.value_converter.kind is not ConverterKind.AVRO:
        return None
    if plan.transformations:
        shape = value_shape(plan)
        return None if shape is None else shape.avro
    return plan.plain_value_schema()


def key_schema(plan: ConversionPlan) -> str | None:
    """Avro schema text of keys, or None where their converter is not Avro."""
    if plan.key_converter.kind is not ConverterKind.AVRO:
        return None
    if plan.transformations:
        shape = key_shape(plan)
        return None if shape is None else shape.avro
    return plan.plain_key_schema()
