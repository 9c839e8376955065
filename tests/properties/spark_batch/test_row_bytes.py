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
from spark_batch.errors import ConversionFatal
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.row_bytes import row_writer
from spark_batch.serialize.pieces import joined, piece
from tests.spark.typed_rows import Rows, batches

MEBIBYTE = 1 << 20
AVRO, JSON = ConverterSpec(ConverterKind.AVRO, schema_id=7), ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)


def by_arrow(plan: ConversionPlan, table: pa.Table) -> Any:
    """The outcome without Spark, which a plan without a writer would ask for."""
    compiled = CompiledPlan(plan, None, None, None, is_all_exact=False, writer=row_writer(plan))
    assert compiled.writer is not None
    return convert_rows(cast("Any", None), compiled, table)


@settings(max_examples=60, deadline=None)
@given(rows=batches())
def test_rows_are_written_as_the_exact_path_writes_them(rows: Rows) -> None:
    """Every type, nulls and tombstones; a row with a bad value is rejected alone, with the same words."""
    for key in (AVRO, JSON):
        base = ConversionPlan(PayloadFormat.ROWS, key_converter=key, value_converter=AVRO)
        plan = base.for_rows(schema=rows.schema.avro, key_schema=rows.key_schema.avro, topic="t")
        assert plan_findings(plan) == []
        assert by_arrow(plan, rows.table).to_pydict() == convert_exactly(plan, rows.table).to_pydict()


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


def of_one_column(form: Any, column: Any, spec: ConverterSpec = AVRO) -> tuple[ConversionPlan, pa.Table]:
    """Rows with this column alone."""
    plan = ConversionPlan(PayloadFormat.ROWS, value_converter=spec)
    plan = plan.for_rows(schema=RowSchema.of("t", {"a": form}).avro, key_schema=None, topic="t")
    count = len(column)
    rows = pa.StructArray.from_arrays([column], names=["a"])
    return plan, pa.table(
        {"key": pa.nulls(count, pa.binary()), "value": rows, "timestamp": pa.nulls(count, pa.int64())}
    )


ITEMS: Any = pa.array([1, 2, 3, 4, 5, 600])
NO_SECOND: Any = pa.array([False, True, False])


@pytest.mark.parametrize(
    "lists",
    [
        pa.FixedSizeListArray.from_arrays(ITEMS, 2, mask=NO_SECOND),
        pa.ListArray.from_arrays(pa.array([0, 2, 4, 6], pa.int32()), ITEMS, mask=NO_SECOND),
        pa.LargeListArray.from_arrays(pa.array([0, 2, 4, 6], pa.int64()), ITEMS, mask=NO_SECOND),
    ],
    ids=["fixed", "list", "large"],
)
def test_items_in_memory_below_a_null_are_nobodys(lists: Any) -> None:
    """A list of fixed size has them always: the row whose item is wrong is the one that is rejected."""
    plan, table = of_one_column(forms.optional(forms.array(forms.INT8)), lists)
    found = by_arrow(plan, table)
    assert found["reason"].to_pylist() == [None, None, "out_of_range"]
    assert found["value"].to_pylist() == [b"\0\0\0\0\x07\x02\x04\x02\x04\0", b"\0\0\0\0\x07\0", None]
    assert convert_exactly(plan, table).to_pydict() == found.to_pydict()


@pytest.mark.parametrize(
    ("form", "column"),
    [
        (forms.DATE, pa.array([86_400_000, 1], pa.date64())),
        (forms.TIMESTAMP_MICROS, pa.array([1, 2**63], pa.uint64())),
    ],
    ids=["date64", "uint64"],
)
def test_an_instant_that_its_type_has_no_number_for_is_rejected_alone(form: Any, column: Any) -> None:
    """A date with a time in it, a number of more than 63 bits: the others of the micro-batch are written."""
    plan, table = of_one_column(form, column)
    found = by_arrow(plan, table)
    assert found["reason"].to_pylist() == [None, "out_of_range"]
    assert found["value"].to_pylist() == [b"\0\0\0\0\x07\x02", None]
    assert convert_exactly(plan, table).to_pydict() == found.to_pydict()


def test_a_micro_batch_that_is_too_large_as_it_is_written_says_what_to_lower() -> None:
    """Schemas within JSON can be many times as large as the rows are."""
    names = {f"name_{number}_{'x' * 3_000}": forms.optional(forms.BOOLEAN) for number in range(15)}
    count = 50_000
    plan = ConversionPlan(PayloadFormat.ROWS, value_converter=JSON)
    plan = plan.for_rows(schema=RowSchema.of("t", names).avro, key_schema=None, topic="t")
    rows = pa.StructArray.from_arrays([pa.nulls(count, pa.bool_())] * len(names), names=list(names))
    table = pa.table({"key": pa.nulls(count, pa.binary()), "value": rows, "timestamp": pa.nulls(count, pa.int64())})
    assert table.nbytes < 4 * MEBIBYTE
    with pytest.raises(ConversionFatal, match=r"50000 records .* lower batch.records.max"):
        by_arrow(plan, table)
