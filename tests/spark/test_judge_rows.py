"""Verdicts without a Spark session are those of Spark's job, and what is valid is the oracle's value."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_batch.coercion import Coerce
from spark_batch.judge_rows import judge_rows, plan_for_rows
from spark_batch.plan import Contract, ConversionPlan, PayloadFormat, UnknownFields
from spark_batch.plan_findings import plan_findings
from tests.spark.coerced import coercing_cases
from tests.spark.engines import LocalEngine, table
from tests.spark.generated import fitting_payloads, payloads, schemas
from tests.spark.json_texts import texts
from tests.spark.oracle import NotValid, Taking, judged
from tests.spark.test_against_oracle import WITHOUT_SHRINKING
from tests.spark.test_typed_path import BODIES, PATHS, SCHEMA

JUDGED = ("timestamp", "dedupe", "coerced", "stage", "reason", "message")
"""What the two must say alike: everything but what converters write."""
FIRST_DAY = dt.date(1970, 1, 1)


def shown(value: Any) -> Any:
    """A value of either side in one form: times of day as numbers, identifiers as texts, maps in order."""
    if isinstance(value, dict):
        return {key: shown(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return {key: shown(item) for key, item in sorted(value)}
        return [shown(item) for item in value] or {}
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return str(value) if isinstance(value, uuid.UUID) else value


def in_micros(schema: Any, value: Any) -> Any:
    """Times of day that are carried in milliseconds, in microseconds as the oracle's are shown."""
    if isinstance(schema, list):
        schema = next(branch for branch in schema if branch != "null")
    if value is None or isinstance(schema, str):
        return value
    if schema["type"] == "record":
        return {field["name"]: in_micros(field["type"], value[field["name"]]) for field in schema["fields"]}
    if schema["type"] == "array":
        return [in_micros(schema["items"], item) for item in value]
    if schema["type"] == "map":
        return [(key, in_micros(schema["values"], item)) for key, item in value]
    return value * 1000 if schema.get("logicalType") == "time-millis" else value


def differences(engine: LocalEngine, plan: ConversionPlan, batch: pa.Table) -> list[str]:
    """Every record of which the two say different things, told for a reader."""
    plan = plan_for_rows(plan)
    assert plan_findings(plan) == []
    rows, spark = judge_rows(plan, batch), engine.convert(plan, batch)
    found = []
    for payload, one, other in zip(
        batch.column("value").to_pylist(), rows.outcome.to_pylist(), spark.to_pylist(), strict=True
    ):
        unlike = [f"{name}: rows {one[name]!r}, Spark {other[name]!r}" for name in JUDGED if one[name] != other[name]]
        if unlike:
            found.append("\n  ".join([repr(payload)[:300], *unlike]))
    return found


@settings(parent=WITHOUT_SHRINKING, max_examples=8)
@given(data=st.data())
def test_verdicts_and_records_on_generated_contracts(local_engine: LocalEngine, data: st.DataObject) -> None:
    """Reason, stage, message, timestamp and hash as Spark gives them; each valid record is the oracle's value."""
    schema = data.draw(schemas())
    paths = [field.get("json.name", field["name"]) for field in schema["fields"]]
    policy = data.draw(st.sampled_from([UnknownFields.IGNORE, UnknownFields.REJECT]))
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema), unknown_fields=policy))
    for choice in (
        {"dedupe_fields": tuple(data.draw(st.lists(st.sampled_from(paths), max_size=2, unique=True)))},
        {"timestamp_field": data.draw(st.sampled_from(paths))},
    ):
        changed: ConversionPlan = replace(plan, **choice)
        plan = plan if plan_findings(plan_for_rows(changed)) else changed
    any_texts = st.lists(st.none() | payloads(schema), min_size=20, max_size=20)
    good = st.lists(fitting_payloads(schema), min_size=40, max_size=40)
    records = [*data.draw(any_texts), *data.draw(good)]
    batch = table(records, timestamps=[None if at % 2 else at for at in range(len(records))])
    found = differences(local_engine, plan, batch)
    assert not found, "\n".join([repr(plan), *found[:5]])

    judged_rows = judge_rows(plan_for_rows(plan), batch)
    assert judged_rows.records is not None
    for payload, row, reason in zip(
        records, judged_rows.records.to_pylist(), judged_rows.outcome.column("reason").to_pylist(), strict=True
    ):
        if payload is None or reason is not None:
            assert row is None
            continue
        wanted = judged(schema, payload, is_unknown_refused=policy is UnknownFields.REJECT)
        assert repr(shown(in_micros(schema, row))) == repr(shown(wanted)), payload


@settings(parent=WITHOUT_SHRINKING, max_examples=3)
@given(case=coercing_cases(records=60))
def test_texts_taken_for_values(
    local_engine: LocalEngine, case: tuple[dict[str, Any], frozenset[Coerce], list[bytes]]
) -> None:
    """Where contracts coerce: Spark's verdicts and bits, the oracle's values."""
    schema, coerce, records = case
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema), coerce=coerce))
    found = differences(local_engine, plan, table(records))
    assert not found, "\n".join([repr(plan), *found[:5]])
    rows = judge_rows(plan_for_rows(plan), table(records))
    assert rows.records is not None
    for payload, row in zip(records, rows.records.to_pylist(), strict=True):
        try:
            wanted = judged(schema, payload, taking=Taking(default=frozenset(map(str, coerce))))
        except NotValid:
            wanted = None
        assert repr(shown(row and in_micros(schema, row))) == repr(shown(wanted)), payload


def test_the_conformance_set_and_the_typed_path_s_payloads(local_engine: LocalEngine) -> None:
    """Without a contract, with one that Arrow proves, and with one that it cannot prove."""
    unprovable = [
        {"name": "f", "type": ["null", "double"], "default": None},
        {"name": "m", "type": {"type": "map", "values": "float"}, "default": {}},
    ]
    contract = Contract(json.dumps({"type": "record", "name": "R", "fields": unprovable}))
    records = [text for text, _ in texts()]
    records += [b'{"%s":%s}' % (name, text) for text, _ in texts() for name in (b"f", b"other")]
    records += [b'{"m":{"%s":1}}' % (b"k" * length) for length in (49_000, 60_000)]
    filler = [b'{"event":"e%d","properties":{"time":%d}}' % (at, at) for at in range(200)]
    typed = [b"{" + body.encode() + b"}" for body in BODIES] + [None, b"\xff", b'{"event":"' + b"x" * 5000 + b'"}']
    by_type = ConversionPlan(
        PayloadFormat.JSON,
        Contract(SCHEMA),
        dedupe_fields=PATHS,
        timestamp_field="properties.time",
        record_bytes_max=4096,
    )
    loose = ConversionPlan(PayloadFormat.JSON)
    for plan, batch in (
        (loose, records),
        (loose, [*filler, *records[:60]]),
        (replace(loose, dedupe_fields=PATHS, timestamp_field="properties.time"), [*typed, *filler]),
        (ConversionPlan(PayloadFormat.JSON, contract, dedupe_fields=("f",)), records),
        (by_type, [*filler, *typed]),
        (by_type, typed),
    ):
        found = differences(local_engine, plan, table(batch))
        assert not found, "\n".join([repr(plan), *found[:5]])


def test_text_and_bytes_are_told_apart_by_their_encoding() -> None:
    """Lines must be UTF-8; of bytes only the size counts."""
    batch = table([b"line", b"\xff", None, b"x" * 100])
    for kind, reasons in (
        (PayloadFormat.TEXT, [None, "invalid_utf8", None, "too_large"]),
        (PayloadFormat.BYTES, [None, None, None, "too_large"]),
    ):
        rows = judge_rows(plan_for_rows(ConversionPlan(kind, record_bytes_max=50)), batch)
        assert rows.records is None
        assert rows.outcome.column("reason").to_pylist() == reasons
