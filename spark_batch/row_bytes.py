"""Rows that have only to be written: their bytes by Arrow alone, without a job of Spark.

Rows have been fitted into their schema before. Where a plan neither transforms nor judges them, nor takes anything out
of them, all that a job would do is to write values and keys; and moving rows into Spark, writing them there and moving
the bytes back takes ten times as long as writing them here. It is no other form: the bytes are those of the job, which
is left what has no writer here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from spark_batch.avro_types import AvroType, Primitive
from spark_batch.outcome import ArrowColumn
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec
from spark_batch.plan_transforms import is_page_key_written
from spark_batch.serialize import avro_pieces, json_pieces

Write: TypeAlias = "Callable[[ArrowColumn], ArrowColumn]"
"""From fitted values to bytes; null stays null."""


@dataclass(frozen=True)
class RowWriter:
    """How a plan's rows are written."""

    value: Write
    key: Write | None
    """None: keys are bytes already, or there are none."""


def row_writer(plan: ConversionPlan) -> RowWriter | None:
    """Of a plan of rows; None where a job has to run."""
    is_judged = plan.contract is None or plan.contract.rules or plan.transformations
    if plan.record is None or is_judged or plan.key_fields or plan.dedupe_fields or plan.timestamp_field:
        return None
    value = _write(plan.record, plan.value_converter, plan.plain_value_schema())
    if not is_page_key_written(plan):
        return None if value is None else RowWriter(value, None)
    key = _write(plan.key_record or Primitive.STRING, plan.key_converter, plan.plain_key_schema())
    return None if value is None or key is None else RowWriter(value, key)


def _write(kind: AvroType, spec: ConverterSpec, schema: str) -> Write | None:
    if spec.kind is ConverterKind.AVRO and spec.schema_id is not None:
        frame = b"\x00" + spec.schema_id.to_bytes(4, "big")
        if avro_pieces.is_written_in_columns(kind, schema):
            return lambda values: avro_pieces.avro_bytes(kind, values, frame=frame)
    if spec.kind is ConverterKind.JSON and json_pieces.is_written_in_columns(kind):
        return lambda values: json_pieces.json_bytes(kind, values, spec=spec)
    return None
