"""Rows written by Arrow alone: the bytes that Spark's job writes, for any rows and for every envelope of changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import RowSchema, rows
from fetchers.toolkit.change_events import Changes, ChangeTable
from fetchers.toolkit.change_form import ChangeForm
from spark_batch.compiled import CompiledPlan, compile_plan
from spark_batch.driver_run import ALWAYS, JOBS_KEY
from spark_batch.outcome import Reason
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.row_bytes import row_writer
from tests.spark.engines import LocalEngine
from tests.spark.typed_rows import Made, Rows, batches, named_types, plain_types, texts

AVRO, JSON = ConverterSpec(ConverterKind.AVRO, schema_id=7), ConverterSpec(ConverterKind.JSON)
ENVELOPED = replace(JSON, is_schema_enveloped=True)
BASE = ConversionPlan(PayloadFormat.ROWS, key_converter=AVRO, value_converter=AVRO)
COLUMNS = {"id": rows.INT64, "name": rows.optional(rows.STRING), "yes": rows.optional(rows.BOOLEAN)}
KINDS = pa.struct([("id", pa.int64()), ("name", pa.string()), ("yes", pa.bool_())])
FORM = ChangeForm("app", "postgresql", "db", {"lsn": rows.optional(rows.INT64), "xmin": rows.optional(rows.INT64)})
TABLE = ChangeTable(FORM, ("public", "items"), COLUMNS, ["id"])


JOBS: dict[ConversionPlan, CompiledPlan] = {}


def job_of(engine: LocalEngine, plan: ConversionPlan) -> CompiledPlan:
    """The plan as a worker has it that wants jobs."""
    if plan not in JOBS:
        engine.session.conf.set(JOBS_KEY, ALWAYS)
        try:
            JOBS[plan] = compile_plan(engine.session, plan)
        finally:
            engine.session.conf.unset(JOBS_KEY)
    return JOBS[plan]


def both_ways(engine: LocalEngine, plan: ConversionPlan, table: pa.Table) -> pa.Table:
    """The outcome, which is that of a job."""
    compiled = engine.compiled(plan)
    assert compiled.writer is not None
    found = engine.convert_by(compiled, table)
    assert found.to_pydict() == engine.convert_by(job_of(engine, plan), table).to_pydict()
    return found


@settings(max_examples=8, deadline=None)
@given(made=batches())
def test_rows_of_any_schema_are_written_as_by_spark(local_engine: LocalEngine, made: Rows) -> None:
    """Avro by spark-avro, keys as JSON by Spark; rejections, too, are the same."""
    base = replace(BASE, key_converter=ENVELOPED)
    both_ways(
        local_engine, base.for_rows(schema=made.schema.avro, key_schema=made.key_schema.avro, topic="t"), made.table
    )


PLAIN = [Made(each.form, each.arrow, each.values) for each in (*plain_types(), *named_types())]
EVERY = {
    f"f{at}": made for at, made in enumerate([*PLAIN, *(made.optional for made in PLAIN if "name" not in made.form)])
}


@settings(max_examples=25, deadline=None)
@given(
    made=st.lists(st.fixed_dictionaries({name: each.values for name, each in EVERY.items()}), min_size=1, max_size=6)
)
def test_values_of_every_type_are_written_as_by_spark(local_engine: LocalEngine, made: list[dict[str, Any]]) -> None:
    """Of one schema, so that there are many of them."""
    schema = RowSchema.of("every", {name: each.form for name, each in EVERY.items()})
    value = pa.array(made, pa.struct([(name, each.arrow) for name, each in EVERY.items()]))
    count = len(made)
    table = pa.table({"key": pa.nulls(count, pa.binary()), "value": value, "timestamp": pa.nulls(count, pa.int64())})
    plan = BASE.for_rows(schema=schema.avro, key_schema=None, topic="t")
    assert both_ways(local_engine, plan, table)["reason"].null_count == count


made_rows = st.fixed_dictionaries(
    {"id": st.integers(0, 3), "name": st.none() | texts, "yes": st.none() | st.booleans()}
)
made_changes = st.lists(
    st.tuples(st.sampled_from(b"rcud"), made_rows, st.none() | made_rows, st.integers(0, 2**62)), min_size=1, max_size=9
)


def change_page(changes: list[tuple[int, Any, Any, int]], snapshot: str, lsn: int | None) -> pa.Table:
    """Envelopes with the tombstones and the events of changed keys that belong to them, as a micro-batch."""
    codes = np.array([code for code, *_ in changes], np.uint8)
    before = [
        {"id": after["id"], "name": None, "yes": None} if code == ord("d") else old for code, after, old, _ in changes
    ]
    before = [None if code in b"rc" else row for code, row in zip(codes, before, strict=True)]
    after = [None if code == ord("d") else row for code, row, *_ in changes]
    told: Any = pa.array([number for *_, number in changes]) if lsn is None else lsn
    made = Changes(codes, pa.array(before, KINDS), pa.array(after, KINDS), 5, {"lsn": told, "snapshot": snapshot})
    page = TABLE.page(made, handled_us=7, offset={}, partition={})
    return pa.table({"key": page.keys, "value": page.payload_column, "timestamp": pa.nulls(len(page), pa.int64())})


@settings(max_examples=40, deadline=None)
@given(changes=made_changes, snapshot=st.sampled_from(["true", "false"]), lsn=st.none() | st.integers(0, 2**62))
def test_envelopes_of_changes_are_written_as_by_spark(
    local_engine: LocalEngine, changes: list[tuple[int, Any, Any, int]], snapshot: str, lsn: int | None
) -> None:
    """Whatever is null, constant or neither: rows before and after, the source, tombstones; as Avro and as JSON."""
    table = change_page(changes, snapshot, lsn)
    assert TABLE.key_schema is not None
    for base in (BASE, ConversionPlan(PayloadFormat.ROWS, key_converter=JSON, value_converter=ENVELOPED)):
        plan = base.for_rows(schema=TABLE.schema.avro, key_schema=TABLE.key_schema.avro, topic="t")
        assert both_ways(local_engine, plan, table)["reason"].null_count == len(table)


def test_keys_that_are_texts_are_written_as_by_spark(local_engine: LocalEngine) -> None:
    """Also where there are none, and where one is no text."""
    schema = RowSchema.of("users", {"id": rows.INT64})
    keys = [b"a", None, 'é"'.encode(), b"\xff"]
    table = pa.table({"key": pa.array(keys), "value": pa.table({"id": range(4)}).to_struct_array()})
    for spec in (AVRO, JSON, ENVELOPED, ConverterSpec(ConverterKind.STRING)):
        plan = replace(BASE, key_converter=spec).for_rows(schema=schema.avro, key_schema=None, topic="t")
        for count in (4, 2):
            part = table.append_column("timestamp", pa.nulls(4, pa.int64())).slice(4 - count)
            both_ways(local_engine, plan, part)


def test_a_row_that_is_too_large_is_rejected_alone(local_engine: LocalEngine) -> None:
    """By what is written of it."""
    schema = RowSchema.of("users", {"text": rows.STRING})
    plan = replace(BASE, record_bytes_max=20).for_rows(schema=schema.avro, key_schema=None, topic="t")
    value = pa.table({"text": ["x" * 14, "x" * 15]}).to_struct_array()
    table = pa.table({"key": pa.nulls(2, pa.binary()), "value": value, "timestamp": pa.nulls(2, pa.int64())})
    assert both_ways(local_engine, plan, table)["reason"].to_pylist() == [None, Reason.TOO_LARGE.value]


@pytest.mark.parametrize(
    ("base", "schema"),
    [
        (replace(BASE, rules_of_rows=(Rule("named", "id > 0"),)), {"id": rows.INT64}),
        (replace(BASE, key_fields=("id",)), {"id": rows.INT64}),
        (replace(BASE, timestamp_field="id"), {"id": rows.INT64}),
        (replace(BASE, dedupe_fields=("id",)), {"id": rows.INT64}),
        (BASE, {"id": ["long", "null"]}),
        (BASE, {"id": rows.array(rows.map_of(rows.INT64))}),
        (replace(BASE, value_converter=JSON), {"id": rows.FLOAT64}),
    ],
)
def test_more_than_writing_is_left_to_a_job(base: ConversionPlan, schema: dict[str, Any]) -> None:
    """What is judged, or taken out of rows; other unions, maps, and numbers as Java writes them."""
    plan = base.for_rows(schema=RowSchema.of("users", schema).avro, key_schema=None, topic="t")
    assert row_writer(plan) is None


def test_a_worker_that_wants_jobs_has_them(local_engine: LocalEngine) -> None:
    """As for every other conversion, to see them in Spark's listeners."""
    plan = BASE.for_rows(schema=RowSchema.of("seen", {"id": rows.INT64}).avro, key_schema=None, topic="t")
    assert local_engine.compiled(plan).rows is None
    assert job_of(local_engine, plan).rows is not None
    assert job_of(local_engine, plan).writer is None
