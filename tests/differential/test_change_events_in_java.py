"""Change events beside Debezium's own classes: `ExtractNewRecordState` and `ByLogicalTableRouter`.

Without broker, database and Spark. The events are those of our own sources, written by the JSON converter with
schemas, which Java reads back.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fetchers.sdk import Page
from fetchers.sdk import rows as forms
from fetchers.toolkit.change_events import Changes, ChangeTable
from fetchers.toolkit.change_form import CREATE, DELETE, READ, TRUNCATE, UPDATE, ChangeForm
from service.config.transformations import read_transformations
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import ConvertedBatch, input_table, shares_of
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.differential.java_transforms import JavaRecord, JavaStep, JavaTransforms, needs_compiler
from tests.differential.test_records_in_java import as_java_says, decoded_at_a_sink, shown
from tests.unit.pipeline.fakes import queued

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(600)]

PACKAGE = "io.debezium.transforms."
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
    """Every operation, deletes with their tombstones; without headers."""
    form = ChangeForm("shop", "postgresql", "db", {"lsn": forms.optional(forms.INT64)}, skipped=frozenset())
    table = ChangeTable(form, ("public", "orders"), COLUMNS, ("id",))
    before, after = (pa.array([ROWS[event[at]] for event in EVENTS], ROW) for at in (1, 2))
    operations = np.array([event[0] for event in EVENTS], dtype=np.uint8)
    lsns = pa.array([7, None, 9, 10, 11, 12, 13], pa.int64())
    changes = Changes(operations, before, after, 1_700_000_000_123_456, {"lsn": lsns})
    page = table.page(changes, handled_us=1_700_000_000_456_789, offset={"at": 1}, partition={"server": "shop"})
    return replace(page, headers=None)


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


Chain = Sequence[tuple[str, Mapping[str, str]]]
"""Classes of `io.debezium.transforms` by their ends, with their keys."""


def properties(mode: str, config: Mapping[str, str]) -> dict[str, str]:
    """Of a connector that takes rows out of events."""
    return chained((("ExtractNewRecordState", {MODE: mode, **config}),))


def chained(chain: Chain) -> dict[str, str]:
    """Of a connector."""
    found = {"transforms": ",".join(f"x{number}" for number in range(len(chain)))}
    for number, (name, config) in enumerate(chain):
        own = {"type": PACKAGE + name, **config}
        found |= {f"transforms.x{number}.{key}": value for key, value in own.items()}
    return found


def in_java(java: JavaTransforms, chain: Chain, *, is_sink: bool) -> list[Any]:
    """What Debezium's classes make of the events."""
    page = page_of_events()
    rows = convert_exactly(plan_of(page), table_of(page)).to_pylist()
    given = [JavaRecord(row["value"], row["key"], timestamp=0, offset=at) for at, row in enumerate(rows)]
    steps = [JavaStep(PACKAGE + name, config) for name, config in chain]
    found = java.applied(steps, given, has_schemas=True, is_sink=is_sink, is_null_defaulted=False)
    return [alike(as_java_says(each)) for each in found]


def alike(found: Any) -> Any:
    """A delete's null with its row's schema is a tombstone here, under every converter."""
    if isinstance(found, tuple) and isinstance(found[2], tuple) and found[2][1] is None:
        return (*found[:2], None, *found[3:])
    return found


def at_a_sink(chain: Chain) -> list[Any]:
    """The same events as a sink is handed them."""
    page = page_of_events()
    rows = convert_exactly(plan_of(page), table_of(page)).to_pylist()
    reading = read_transformations(chained(chain), is_sink=True)
    assert reading.findings == ()
    return decoded_at_a_sink(reading.steps, [(row["key"], row["value"]) for row in rows])


def at_a_source(chain: Chain) -> list[Any]:
    """The same of rows as our sources give them."""
    page = page_of_events()
    reading = read_transformations(chained(chain))
    assert reading.findings == ()
    plan = plan_of(page, transformations=reading.steps)
    assert plan_findings(plan) == []
    batch = MicroBatch((queued(page),), CloseReason.COUNT, 0.0)
    shares = tuple(shares_of(batch, plan, lambda _: plan))
    outcome = convert_exactly(plan, shares[0].of(input_table(batch)))
    headers = ConvertedBatch(batch, input_table(batch), outcome, shares).headers() or [()] * len(page)
    return [
        "dropped" if row["is_dropped"] else "refused" if row["reason"] else
        (row["topic"] or "t", shown(row["key"]), shown(row["value"]), tuple(own))
        for row, own in zip(outcome.to_pylist(), headers, strict=True)
    ]  # fmt: skip


CASES = list(itertools.product(MODES, CONFIGS))


@pytest.mark.parametrize(("mode", "name"), CASES)
def test_events_at_a_sink(java_transforms: JavaTransforms, mode: str, name: str) -> None:
    """Rows, tombstones, headers and topics, and what is dropped."""
    chain = (("ExtractNewRecordState", {MODE: mode, **CONFIGS[name]}),)
    found = at_a_sink(chain)
    assert found == in_java(java_transforms, chain, is_sink=True)
    assert any(isinstance(each, tuple) for each in found)


@pytest.mark.parametrize(("mode", "name"), [case for case in CASES if "route.by.field" not in CONFIGS[case[1]]])
def test_events_at_a_source(java_transforms: JavaTransforms, mode: str, name: str) -> None:
    """Topics by rows are for sinks."""
    chain = (("ExtractNewRecordState", {MODE: mode, **CONFIGS[name]}),)
    found = at_a_source(chain)
    assert found == in_java(java_transforms, chain, is_sink=False)
    assert found[0][2][0]["name"] == "shop.public.orders.Value"


ROUTED: dict[str, Mapping[str, str]] = {
    "plain": {"topic.regex": "t", "topic.replacement": "shop.all"},
    "named": {"topic.regex": "(.)", "topic.replacement": "all-$1", "key.field.name": "shard"},
    "adjusted": {"topic.regex": "(.)", "topic.replacement": "9all-$1", "schema.name.adjustment.mode": "avro"},
    "identified": {
        "topic.regex": "t", "topic.replacement": "all", "key.field.regex": "(t)", "key.field.replacement": "$1$1",
    },
    "unidentified": {
        "topic.regex": "t", "topic.replacement": "all", "key.field.regex": "u", "key.field.replacement": "v",
    },
    "same-keys": {"topic.regex": "t", "topic.replacement": "all", "key.enforce.uniqueness": "false"},
    "other": {"topic.regex": "u", "topic.replacement": "all"},
    "taken": {"topic.regex": "t", "topic.replacement": "all", "key.field.name": "id"},
}  # fmt: skip


@pytest.mark.parametrize("is_unwrapped", [False, True])
@pytest.mark.parametrize("name", ROUTED)
def test_logical_tables(java_transforms: JavaTransforms, name: str, *, is_unwrapped: bool) -> None:
    """Topics, keys and names of schemas; a key that has the field already is refused, or told with its config."""
    unwrap = (("ExtractNewRecordState", {MODE: "rewrite"}),) if is_unwrapped else ()
    chain = (("ByLogicalTableRouter", ROUTED[name]), *unwrap)
    expected = in_java(java_transforms, chain, is_sink=True)
    assert at_a_sink(chain) == expected
    if name == "taken":
        assert "refused" in expected
        return
    assert at_a_source(chain) == expected
