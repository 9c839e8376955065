"""The Avro schemas a plan writes with, to be registered before it runs."""

from __future__ import annotations

from spark_batch.plan import ConversionPlan, ConverterKind
from spark_batch.plan_transforms import key_shape, value_shape


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
