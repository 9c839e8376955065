"""Change events beside Debezium's own classes: `ExtractNewRecordState` at sinks and at sources of rows.

Without broker, database and Spark. The events are those of our own sources, written by the JSON converter with
schemas, which Java reads back.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fetchers.sdk import Page
from fetchers.sdk import rows as forms
from fetchers.toolkit.change_events import CREATE, DELETE, READ, TRUNCATE, UPDATE, ChangeForm, Changes, ChangeTable
from service.config.transformations import read_transformations
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.differential.java_transforms import JavaRecord, JavaStep, JavaTransforms, needs_compiler
from tests.differential.test_records_in_java import as_java_says, decoded_at_a_sink, shown

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(300)]

NAME = "io.debezium.transforms.ExtractNewRecordState"
ENVELOPED = ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)
MODE = "delete.tombstone.handling.mode"
MODES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
CONFIGS: dict[str, Mapping[str, str]] = {
    "plain": {},
    "fields": {"add.fields": "op,source.ts_ms,lsn:position, snapshot,transaction.id,none,ts_ms"},
    "prefix": {"add.fields": "op,source.lsn", "add.fields.prefix": ""},
    "headers": {"add.headers": "op,source.lsn,snapshot:taken,transaction.id", "add.headers.prefix": "h_"},
    "route": {"route.by.field": "place"},
    "all": {"add.fields": "op", "add.headers": "op", "route.by.field": "place", "replace.null.with.default": "false"},
}
COLUMNS = {
    "id": forms.INT64,
    "place": forms.optional(forms.STRING),
    "price": forms.optional(forms.FLOAT64),
    "note": forms.STRING,
}
ROW = pa.struct([("id", pa.int64()), ("place", pa.string()), ("price", pa.float64()), ("note", pa.string())])
ROWS: list[Mapping[str, Any] | None] = [
    {"id": 1, "place": "here", "price": 1.5, "note": "a"},
    {"id": 2, "place": None, "price": None, "note": ""},
    {"id": 3, "place": " ", "price": -0.25, "note": 'é "x"'},
    None,
]
EVENTS = [
    (READ, 3, 0),
    (CREATE, 3, 1),
    (UPDATE, 0, 2),
    (UPDATE, 3, 2),
    (DELETE, 0, 3),
    (DELETE, 1, 3),
    (TRUNCATE, 3, 3),
]
"""Operation, row before and row after."""


def page_of_events() -> Page:
    """Every operation, deletes with their tombstones."""
    form = ChangeForm("shop", "postgresql", "db", {"lsn": forms.optional(forms.INT64)}, skipped=frozenset())
    table = ChangeTable(form, ("public", "orders"), COLUMNS, ("id",))
    before, after = (pa.array([ROWS[event[at]] for event in EVENTS], ROW) for at in (1, 2))
    operations = np.array([event[0] for event in EVENTS], dtype=np.uint8)
    lsns = pa.array([7, None, 9, 10, 11, 12, 13], pa.int64())
    changes = Changes(operations, before, after, 1_700_000_000_123_456, {"lsn": lsns})
    return table.page(changes, handled_us=1_700_000_000_456_789, offset={"at": 1}, partition={"server": "shop"})


def table_of(page: Page) -> pa.Table:
    """The columns as the conversion takes them."""
    count = len(page)
    return pa.table({"key": page.keys, "value": page.payload_column, "timestamp": pa.nulls(count, pa.int64())})


def plan_of(page: Page, **more: Any) -> ConversionPlan:
    """Rows of the page, written as JSON with schemas."""
    plan = ConversionPlan(PayloadFormat.ROWS, **{"value_converter": ENVELOPED, "key_converter": ENVELOPED, **more})
    assert page.schema is not None
    assert page.key_schema is not None
    return plan.for_rows(schema=page.schema.avro, key_schema=page.key_schema.avro, topic="t")


def properties(mode: str, config: Mapping[str, str]) -> dict[str, str]:
    """Of a connector."""
    own = {"type": NAME, MODE: mode, **config}
    return {"transforms": "x", **{f"transforms.x.{key}": value for key, value in own.items()}}


def in_java(java: JavaTransforms, mode: str, config: Mapping[str, str], *, is_sink: bool) -> list[JavaRecord]:
    """What Debezium's class makes of the events."""
    page = page_of_events()
    rows = convert_exactly(plan_of(page), table_of(page)).to_pylist()
    given = [JavaRecord(row["value"], row["key"], timestamp=0, offset=at) for at, row in enumerate(rows)]
    steps = [JavaStep(NAME, {MODE: mode, **config})]
    return java.applied(steps, given, has_schemas=True, is_sink=is_sink, is_null_defaulted=False)


def alike(found: Any) -> Any:
    """A delete's null with its row's schema is a tombstone here, under every converter."""
    if isinstance(found, tuple) and isinstance(found[2], tuple) and found[2][1] is None:
        return (*found[:2], None, *found[3:])
    return found


CASES = list(itertools.product(MODES, CONFIGS))


@pytest.mark.parametrize(("mode", "name"), CASES)
def test_events_at_a_sink(java_transforms: JavaTransforms, mode: str, name: str) -> None:
    """Rows, tombstones, headers and topics, and what is dropped."""
    page = page_of_events()
    rows = convert_exactly(plan_of(page), table_of(page)).to_pylist()
    expected = [alike(as_java_says(each)) for each in in_java(java_transforms, mode, CONFIGS[name], is_sink=True)]
    reading = read_transformations(properties(mode, CONFIGS[name]), is_sink=True)
    assert reading.findings == ()
    records = [(row["key"], row["value"]) for row in rows]
    assert decoded_at_a_sink(reading.steps, records) == expected
    assert any(isinstance(each, tuple) for each in expected)


@pytest.mark.parametrize(("mode", "name"), [case for case in CASES if case[1] in {"plain", "fields", "prefix"}])
def test_events_at_a_source(java_transforms: JavaTransforms, mode: str, name: str) -> None:
    """The same of rows as our sources give them; headers and topics by rows are for sinks."""
    page = page_of_events()
    expected = [alike(as_java_says(each)) for each in in_java(java_transforms, mode, CONFIGS[name], is_sink=False)]
    reading = read_transformations(properties(mode, CONFIGS[name]))
    assert reading.findings == ()
    plan = plan_of(page, transformations=reading.steps)
    assert plan_findings(plan) == []
    outcome = convert_exactly(plan, table_of(page)).to_pylist()
    found = [
        "dropped" if row["is_dropped"] else "refused" if row["reason"] else
        (row["topic"] or "t", shown(row["key"]), shown(row["value"]), ())
        for row in outcome
    ]  # fmt: skip
    assert found == expected
    assert json.loads(outcome[0]["value"])["schema"]["name"] == "shop.public.orders.Value"
