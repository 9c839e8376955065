"""Rows written by Arrow alone: the same outcome as by the exact path, whose Avro is fastavro's, for any rows."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings

from fetchers.sdk import RowSchema
from fetchers.sdk import rows as forms
from spark_batch.compiled import CompiledPlan
from spark_batch.convert import convert_rows
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.row_bytes import row_writer
from spark_batch.serialize.pieces import joined, piece
from tests.spark.typed_rows import Rows, batches

MEBIBYTE = 1 << 20
AVRO, JSON = ConverterSpec(ConverterKind.AVRO, schema_id=7), ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)


def written(plan: ConversionPlan, rows: Rows) -> Any:
    """The outcome without Spark, which a plan without a writer would ask for."""
    compiled = CompiledPlan(plan, None, None, None, is_all_exact=False, writer=row_writer(plan))
    assert compiled.writer is not None
    return convert_rows(cast("Any", None), compiled, rows.table)


@settings(max_examples=60, deadline=None)
@given(rows=batches())
def test_rows_are_written_as_the_exact_path_writes_them(rows: Rows) -> None:
    """Every type, nulls and tombstones; a row with a bad value is rejected alone, with the same words."""
    for key in (AVRO, JSON):
        base = ConversionPlan(PayloadFormat.ROWS, key_converter=key, value_converter=AVRO)
        plan = base.for_rows(schema=rows.schema.avro, key_schema=rows.key_schema.avro, topic="t")
        assert plan_findings(plan) == []
        assert written(plan, rows).to_pydict() == convert_exactly(plan, rows.table).to_pydict()


@pytest.mark.parametrize("bits", [0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0000, 0x7FF0_0000_0000_0001])
def test_a_nan_keeps_its_bits(bits: int) -> None:
    """As in Spark's job. The exact path, by which records go that are looked at singly, writes the plain one."""
    schema = RowSchema.of("t", {"a": forms.FLOAT64})
    plan = ConversionPlan(PayloadFormat.ROWS, value_converter=AVRO).for_rows(
        schema=schema.avro, key_schema=None, topic="t"
    )
    writer = row_writer(plan)
    assert writer is not None
    data = bits.to_bytes(8, "little")
    numbers = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(data)])
    assert writer.value(pa.StructArray.from_arrays([numbers], names=["a"])).to_pylist() == [b"\x00\0\0\0\x07" + data]


def test_more_bytes_than_a_column_holds_are_refused() -> None:
    """Offsets have 32 bits, and Arrow's ``repeat`` would let them run over without a word."""
    assert len(joined([piece(b"x" * MEBIBYTE)], 2)) == 2
    with pytest.raises(pa.ArrowCapacityError, match="cannot contain more"):
        joined([piece(b"x" * MEBIBYTE)], 2 * 1024)
