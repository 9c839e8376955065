"""Transformed keys and values of a plan, written by its converters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_batch.plan_transforms import plain_key_shape, plain_value_shape
from spark_batch.serialize import shaped_bytes
from spark_batch.transforms.columns import Row, transformed
from spark_batch.transforms.kinds import Side

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_batch.plan import ConversionPlan


def transformed_value(plan: ConversionPlan, value: Column, timestamp: Column) -> Column:
    """Bytes of a value whose type is known."""
    shape = plain_value_shape(plan)
    assert shape is not None  # noqa: S101 - told to the type checker; loose values take the exact path
    row = Row(value.isNotNull(), timestamp)
    shape, column = transformed(plan.track().of(Side.VALUE), shape, value, row)
    return shaped_bytes(shape, column, is_there=row.is_there, spec=plan.value_converter)


def transformed_key(plan: ConversionPlan, key: Column, is_there: Column, timestamp: Column) -> Column:
    """Bytes of a key whose type is known."""
    shape = plain_key_shape(plan)
    assert shape is not None  # noqa: S101 - told to the type checker; a finding refuses other keys
    shape, column = transformed(plan.track().of(Side.KEY), shape, key, Row(is_there, timestamp))
    return shaped_bytes(shape, column, is_there=is_there, spec=plan.key_converter)
