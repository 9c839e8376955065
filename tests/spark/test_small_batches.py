"""Small micro-batches by the exact path: the outcome of Spark's job, byte by byte, for every plan that is taken.

Columns, converters, keys and transformations are drawn, and rows with values that do not fit among them.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import Page, RowSchema
from fetchers.sdk import rows as forms
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import input_table, shares_of
from spark_batch.convert_exactly import convert_exactly
from spark_batch.outcome import OUTCOME_SCHEMA
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.plan_findings import plan_findings
from spark_batch.small import is_alike
from spark_batch.transforms.catalog import Filter, InsertHeader, RegexRouter, Step
from spark_batch.transforms.predicates import RecordIsTombstone
from tests.spark.engines import LocalEngine
from tests.spark.test_against_oracle import WITHOUT_SHRINKING
from tests.unit.pipeline.fakes import queued

AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=7)
JSON = ConverterSpec(ConverterKind.JSON)
VALUES = (AVRO, JSON, replace(JSON, is_decimal_numeric=True), replace(JSON, is_schema_enveloped=True))
KEYS = (*VALUES, ConverterSpec(ConverterKind.STRING))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def scaled(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Of so many digits, so many of them behind the point."""
    bound = 10**digits - 1
    return st.integers(-bound, bound).map(
        lambda whole: Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -scale))
    )


COLUMNS: dict[str, tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (forms.INT8, pa.int16(), st.integers(-200, 200)),
    "i16": (forms.INT16, pa.int32(), st.integers(-(2**15) - 1, 2**15)),
    "i32": (forms.INT32, pa.int64(), st.integers(-(2**31) - 1, 2**31)),
    "i64": (forms.INT64, pa.uint64(), st.integers(0, 2**64 - 1)),
    "text": (forms.STRING, pa.string(), TEXT),
    "bool": (forms.BOOLEAN, pa.bool_(), st.booleans()),
    "raw": (forms.BYTES, pa.binary(), st.binary(max_size=5)),
    "money": (forms.decimal(12, 3), pa.decimal128(14, 3), scaled(13, 3)),
    "whole": (forms.decimal(38, 0), pa.decimal128(38, 0), scaled(38, 0)),
    "wide": (forms.decimal(60, 5), pa.decimal256(62, 5), scaled(61, 5)),
    "day": (forms.DATE, pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    "at": (forms.TIMESTAMP, pa.timestamp("us"), st.integers(-(2**50), 2**50)),
    "micros": (forms.TIMESTAMP_MICROS, pa.timestamp("us"), st.integers(-(2**63), 2**63 - 1)),
    "time": (forms.TIME, pa.time64("us"), st.integers(0, 86_399_999).map(lambda millis: millis * 1_000)),
    "list": (forms.array(forms.optional(forms.STRING)), pa.list_(pa.string()), st.lists(st.none() | TEXT, max_size=3)),
    "inner": (
        forms.struct("in", {"a": forms.INT64, "b": forms.optional(forms.BYTES)}),
        pa.struct([("a", pa.int64()), ("b", pa.binary())]),
        st.fixed_dictionaries({"a": st.none() | st.integers(-(2**63), 2**63 - 1), "b": st.none() | st.binary()}),
    ),
}
CHAINS: tuple[tuple[Step, ...], ...] = (
    (),
    (Step("route", RegexRouter("t(.*)", "u$1")), Step("h", InsertHeader("h", "1"))),
    (Step("drop", Filter(), RecordIsTombstone()), Step("route", RegexRouter("t", "x"))),
)


@st.composite
def micro_batches(draw: st.DrawFn) -> tuple[ConversionPlan, MicroBatch]:
    """Pages of one table, with keys and tombstones, and the plan of its rows."""
    spec, key_spec = draw(st.sampled_from(VALUES)), draw(st.sampled_from(KEYS))
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=6, unique=True))
    own = {name: COLUMNS[name] for name in ["id", *names] if name in COLUMNS}
    columns = {name: forms.optional(form) if draw(st.booleans()) else form for name, (form, _, _) in own.items()}
    schema = RowSchema.of("db.table-1", {"id": forms.INT64, **columns})
    key_schema = RowSchema.of("db.table-1.Key", {"id": forms.INT64, "name": forms.optional(forms.STRING)})
    kind = pa.struct([("id", pa.int64()), *((name, column) for name, (_, column, _) in own.items())])
    rows = st.fixed_dictionaries(
        {"id": st.integers(-9, 9), **{name: st.none() | values for name, (_, _, values) in own.items()}}
    )
    keys = st.fixed_dictionaries({"id": st.integers(-9, 9), "name": st.none() | TEXT})
    key_kind = pa.struct([("id", pa.int64()), ("name", pa.string())])
    has_keys = draw(st.booleans())
    pages = []
    for _ in range(draw(st.integers(1, 3))):
        values = draw(st.lists(st.none() | rows, min_size=1, max_size=5))
        pages.append(
            Page(
                pa.array(values, kind),
                {},
                topic="t",
                schema=schema,
                keys=pa.array(draw(st.lists(keys, min_size=len(values), max_size=len(values))), key_kind)
                if has_keys
                else None,
                key_schema=key_schema if has_keys else None,
                timestamps_ms=pa.array(
                    draw(st.lists(st.none() | st.integers(0, 2**42), min_size=len(values), max_size=len(values))),
                    pa.int64(),
                ),
            )
        )
    wished = ConversionPlan(
        PayloadFormat.ROWS,
        key_converter=key_spec,
        value_converter=spec,
        transformations=draw(st.sampled_from(CHAINS)),
        record_bytes_max=draw(st.sampled_from([1 << 20, 24])),
    )
    wished = wished.for_rows(schema=schema.avro, key_schema=key_schema.avro if has_keys else None, topic="t")
    for choice in ({"key_fields": ("id",)}, {"dedupe_fields": ("id",)}, {"timestamp_field": "at"}):
        changed = replace(wished, **choice)
        if draw(st.booleans()) and not plan_findings(changed):
            wished = changed
    return wished, MicroBatch(tuple(map(queued, pages)), CloseReason.IDLE, 0.0)


@settings(parent=WITHOUT_SHRINKING, max_examples=40)
@given(drawn=micro_batches())
def test_a_small_micro_batch_has_the_outcome_of_spark_s_job(
    local_engine: LocalEngine, drawn: tuple[ConversionPlan, MicroBatch]
) -> None:
    """Values, keys, times, hashes, topics, verdicts and their words: each column, each byte."""
    plan, batch = drawn
    if plan_findings(plan):
        return
    assert is_alike(plan)
    (share,) = shares_of(batch, plan, lambda _: plan)
    records = share.of(input_table(batch))
    exact, spark = convert_exactly(share.plan, records), local_engine.convert(share.plan, records)
    assert exact.schema == spark.schema == OUTCOME_SCHEMA
    unlike = [
        (name, *pair)
        for name in OUTCOME_SCHEMA.names
        for pair in zip(exact[name].to_pylist(), spark[name].to_pylist(), strict=True)
        if pair[0] != pair[1]
    ]
    assert not unlike, f"{plan}\n{records.to_pylist()}\n{unlike[:5]}"


def plan_of(columns: dict[str, Any], spec: ConverterSpec = JSON, **more: Any) -> ConversionPlan:
    """Of rows with these columns, without keys."""
    base = ConversionPlan(PayloadFormat.ROWS, value_converter=spec, **more)
    return base.for_rows(schema=RowSchema.of("t", columns).avro, key_schema=None, topic="t")


@pytest.mark.parametrize(
    "plan",
    [
        plan_of({"d": forms.FLOAT64}),
        plan_of({"d": forms.array(forms.FLOAT32)}),
        plan_of({"m": forms.map_of(forms.INT64)}, AVRO),
        plan_of({"s": forms.struct("s", {"m": forms.map_of(forms.INT64)})}, AVRO),
        plan_of({"d": forms.FLOAT64}, AVRO),
        plan_of({"i": forms.INT64}, rules_of_rows=(Rule("positive", "i > 0"),)),
        ConversionPlan(PayloadFormat.JSON),
        ConversionPlan(PayloadFormat.ROWS),
    ],
)
def test_what_is_not_known_to_be_alike_stays_with_spark(plan: ConversionPlan) -> None:
    """Floating numbers as text, maps, rules, and payloads that are no rows."""
    assert not is_alike(plan)
