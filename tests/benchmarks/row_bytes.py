"""Processor time of a typed row in its conversion, by Arrow alone and by Spark's job: plain rows and change events.

``python -m tests.benchmarks.row_bytes``. Each figure is that of this process and of Spark's JVM, once both are warm.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click
import numpy as np
import psutil
import pyarrow as pa

from fetchers.sdk import RowSchema, rows
from fetchers.toolkit.change_events import Changes, ChangeTable
from fetchers.toolkit.change_form import CREATE, READ, UPDATE, ChangeForm
from spark_batch.compiled import CompiledPlan, compile_plan
from spark_batch.convert import convert_table
from spark_batch.job import rows_job
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.session import end_jvm, jvm_pid, start_session
from tests.spark.engines import local_settings

ROWS, ROUNDS = 20_000, 20
NOW_MICROS = 1_790_000_000_000_000
JSON, AVRO = ConverterSpec(ConverterKind.JSON), ConverterSpec(ConverterKind.AVRO, schema_id=1)
PLAN = ConversionPlan(PayloadFormat.ROWS, key_converter=JSON, value_converter=AVRO)
COLUMNS = {
    "id": rows.INT64,
    "a": rows.optional(rows.INT32),
    "b": rows.optional(rows.FLOAT64),
    "c": rows.optional(rows.STRING),
    "d": rows.optional(rows.named("io.debezium.time.ZonedTimestamp", rows.STRING)),
    "e": rows.optional(rows.BOOLEAN),
    "f": rows.optional(rows.decimal(12, 2)),
    "g": rows.optional(rows.STRING),
    "h": rows.optional(rows.named("io.debezium.time.Date", rows.INT32)),
    "k": rows.optional(rows.INT16),
}
OWN = {
    "schema": rows.STRING,
    "table": rows.STRING,
    **{name: rows.optional(rows.INT64) for name in ("txId", "lsn", "xmin")},
    "origin": rows.optional(rows.STRING),
    "origin_lsn": rows.optional(rows.INT64),
}
TABLE = ChangeTable(ChangeForm("bench", "postgresql", "postgres", OWN), ("public", "items"), COLUMNS, ["id"])


def _rows() -> Any:
    """Those of the tables that ``bench databases`` reads."""
    numbers = np.arange(ROWS)
    columns = [
        pa.array(numbers),
        pa.array(numbers.astype(np.int32)),
        pa.array(numbers * 1.5),
        pa.array([f"name {number}" for number in numbers]),
        pa.array([f"2026-11-24T18:{number % 60:02d}:00.123456Z" for number in numbers]),
        pa.array(numbers % 2 == 0),
        pa.array([f"{number / 100:.2f}" for number in numbers]).cast(pa.decimal128(12, 2)),
        pa.array([f"{number:032x}" for number in numbers]),
        pa.array((numbers % 1000).astype(np.int32)),
        pa.array((numbers % 100).astype(np.int16)),
    ]
    return pa.StructArray.from_arrays(columns, names=list(COLUMNS))


def batches() -> Mapping[str, tuple[ConversionPlan, pa.Table]]:
    """Micro-batches with their plans."""
    made, own = _rows(), {"schema": "public", "table": "items"}
    lsn = pa.array(np.arange(ROWS) * 100 + 10**10)
    of_log = {**own, "lsn": lsn, "txId": pa.array(np.arange(ROWS) + 700), "sequence": lsn.cast(pa.string())}
    committed: Any = pa.array(np.arange(ROWS) * 10 + NOW_MICROS)
    changes = {
        "a snapshot's": Changes(np.full(ROWS, READ, np.uint8), None, made, NOW_MICROS, {**own, "lsn": 10**10}),
        "an insert's": Changes(np.full(ROWS, CREATE, np.uint8), None, made, committed, of_log),
        "an update's": Changes(np.full(ROWS, UPDATE, np.uint8), made, made, committed, of_log),
    }
    plain = PLAN.for_rows(schema=RowSchema.of("items", COLUMNS).avro, key_schema=None, topic="t")
    found = {"a plain row": (plain, _batch(made, None))}
    key_schema = None if TABLE.key_schema is None else TABLE.key_schema.avro
    plan = PLAN.for_rows(schema=TABLE.schema.avro, key_schema=key_schema, topic="t")
    for name, each in changes.items():
        page = TABLE.page(each, handled_us=NOW_MICROS, offset={}, partition={})
        found[f"{name} envelope"] = (plan, _batch(page.payload_column, page.keys))
    return found


def _batch(values: Any, keys: Any) -> pa.Table:
    empty = {"key": pa.nulls(ROWS, pa.binary()) if keys is None else keys, "timestamp": pa.nulls(ROWS, pa.int64())}
    return pa.table({**empty, "value": values})


def _micros(session: Any, compiled: CompiledPlan, batch: pa.Table) -> float:
    jvm = psutil.Process(jvm_pid())

    def used() -> float:
        times = jvm.cpu_times()
        return time.process_time() + times.user + times.system

    for _ in range(ROUNDS):
        convert_table(session, compiled, batch)
    began = used()
    for _ in range(ROUNDS):
        convert_table(session, compiled, batch)
    return (used() - began) / ROUNDS / ROWS * 1e6


def main() -> None:
    """Print a line for each kind of row."""
    session = start_session(local_settings())
    for name, (plan, batch) in batches().items():
        compiled = compile_plan(session, plan)
        job = CompiledPlan(plan, None, None, None, is_all_exact=False, rows=_job(plan))
        own, by_job = _micros(session, compiled, batch), _micros(session, job, batch)
        bytes_a_row = convert_table(session, compiled, batch)["value"].nbytes / ROWS
        click.echo(f"{name} ({bytes_a_row:.0f} bytes): {own:.2f} µs by Arrow alone, {by_job:.2f} µs by Spark's job")
    end_jvm(session, seconds_max=30)


def _job(plan: ConversionPlan) -> Any:
    assert plan.record is not None
    return rows_job(plan, plan.record, (), has_key=True)


if __name__ == "__main__":
    main()
