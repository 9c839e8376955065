"""Records that Arrow has proven: the same outcome, column by column, as without the proof."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.job import Job
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule, UnknownFields
from spark_batch.plan_findings import plan_findings
from spark_batch.proof import FIRST_ROWS
from tests.spark.engines import Engine, LocalEngine, table
from tests.spark.generated import fitting_payloads, payloads, schemas
from tests.spark.json_texts import texts

AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=9)
JSON = ConverterSpec(ConverterKind.JSON)
PROPERTIES = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "id", "json.name": "$insert_id", "type": ["null", "string"], "default": None},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "user", "type": ["null", "string"], "default": None},
        {"name": "count", "type": "int", "default": 3},
        {"name": "share", "type": ["double", "null"], "default": 0.5},
        {"name": "is_new", "type": ["null", "boolean"], "default": None},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}], "default": None},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "sort", "type": {"type": "enum", "name": "S", "symbols": ["a", "b"]}, "default": "a"},
    ],
}
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "E",
        "fields": [{"name": "event", "type": "string"}, {"name": "properties", "type": PROPERTIES}],
    }
)
PATHS = ("event", "properties.$insert_id", "properties.user")
RULES = (Rule("known", "event <> 'bad'"), Rule("raises", "if(event = 'raise', raise_error('no') is null, true)"))
BODIES = [
    '"event":"a","properties":{"time":1,"$insert_id":"x","user":"u"}',
    '"event":"a","properties":{"time":1,"$insert_id":"x"}',
    '"event":"a","properties":{"time":1,"$insert_id":"x","user":null}',
    '"event":"a","properties":{"time":1,"$insert_id":"x","use\\u0072":null}',
    '"event":"é😀\\u0000\\ud83d\\ude00","properties":{"time":253402300799999,"user":""}',
    '"event":"2024-01-01","properties":{"time":0,"count":7,"share":null,"is_new":true,"tags":["a",null,""],"day":-1}',
    '"event":"2024-01-01T00:00:00Z","properties":{"time":0,"share":1e-400,"tags":[],"sort":"b","unread":[{"x":1}]}',
    '"event":"bad","properties":{"time":1}',
    '"event":"raise","properties":{"time":1}',
    '"event":"a","properties":{"time":-1}',
    '"event":"a","properties":{"time":1,"count":null}',
    '"event":"a","properties":{"time":1,"share":-0}',
    '"event":"a","properties":{"time":1,"share":-0.0}',
    '"event":"a","properties":{"time":1,"share":17976931348623157e292,"unread":1e400}',
    '"event":"a","properties":{"time":"2024-01-01T00:00:00Z"}',
    '"event":"a","properties":{"time":1,"sort":"c"}',
    '"event":"a","event":"b","properties":{"time":1}',
    '"properties":{"time":1}',
    '"event":"a","properties":null',
    '"event":"a","properties":{"time":1},"unread":NaN',
]


def _filler(count: int) -> list[bytes]:
    """Good records, each different."""
    return [
        b'{"event":"e%d","properties":{"time":%d,"$insert_id":"%032x","user":"%d","share":%d.25}}' % (n, n, n, n, n)
        for n in range(count)
    ]


def _plan(**more: Any) -> ConversionPlan:
    policy = more.pop("unknown_fields", UnknownFields.IGNORE)
    rules = more.pop("rules", RULES[:1])
    chosen: dict[str, Any] = {"value_converter": AVRO, "dedupe_fields": PATHS, "record_bytes_max": 4096, **more}
    plan = ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA, rules, policy), **chosen)
    assert plan_findings(plan) == []
    return plan


def _without_proof(engine: Engine, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
    assert isinstance(engine, LocalEngine)
    return engine.convert_by(dataclasses.replace(engine.compiled(plan), typed=None), batch)


def _by_proof_alone(engine: Engine, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
    """With a swift job that cannot run: what is not proven has only the exact path to take."""
    assert isinstance(engine, LocalEngine)
    compiled = engine.compiled(plan)
    assert compiled.typed is not None
    return engine.convert_by(dataclasses.replace(compiled, swift=Job(((F.col("nowhere"),),))), batch)


def _by_proof(engine: Engine, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
    """Where at least half of the payloads are proven, though many are not."""
    assert isinstance(engine, LocalEngine)
    compiled = engine.compiled(plan)
    outcome = engine.convert_by(compiled, batch)
    assert compiled.typed is not None
    assert compiled.typed.habit.is_tried()
    return outcome


def _demand_same(seen: pa.Table, wanted: pa.Table) -> None:
    assert seen.schema == wanted.schema
    for row, (left, right) in enumerate(zip(seen.to_pylist(), wanted.to_pylist(), strict=True)):
        assert left == right, row


def test_same_outcome_for_all_that_a_plan_can_ask(local_engine: Engine) -> None:
    """Values, keys, timestamps, hashes and rejections, in every form, for proven, doubtful and bad payloads."""
    batch = table(
        [*_filler(60), None, *(f"{{{body}}}".encode() for body in BODIES), b"\xff", b" " * 5000],
        keys=[b"k%d" % n for n in range(63 + len(BODIES))],
        timestamps=[None, *range(62 + len(BODIES))],
    )
    for plan in (
        _plan(),
        _plan(dedupe_fields=(), rules=()),
        _plan(key_fields=("event",), timestamp_field="properties.time"),
        _plan(key_fields=("event", "properties"), key_converter=ConverterSpec(ConverterKind.AVRO, schema_id=3)),
        _plan(value_converter=JSON, key_fields=("event",), key_converter=JSON),
        _plan(value_converter=ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)),
        _plan(value_converter=ConverterSpec(ConverterKind.STRING)),
        _plan(unknown_fields=UnknownFields.REJECT),
    ):
        seen = _by_proof_alone(local_engine, plan, batch)
        assert seen.column("reason").null_count >= 60
        _demand_same(seen, _without_proof(local_engine, plan, batch))


def test_rules_that_raise(local_engine: Engine) -> None:
    """Of few records, for each that raises is looked for in halves: the others pass, whatever path they take."""
    doubtful = b'{"event":"%s","properties":{"time":1,"user":null}}'
    bodies = (f"{{{body}}}".encode() for body in BODIES if '"bad"' in body or '"raise"' in body)
    batch = table([*_filler(5), *bodies, doubtful % b"raise", doubtful % b"d"])
    plan = _plan(rules=RULES)
    seen = _by_proof_alone(local_engine, plan, batch)
    assert seen.column("reason").null_count == 6
    _demand_same(seen, _without_proof(local_engine, plan, batch))


def test_page_keys(local_engine: Engine) -> None:
    """Keys of the page that have to be converted are, and a plan for such keys does without them too."""
    plan = _plan(key_converter=JSON)
    for keys in ([b"k%d" % n for n in range(70)], [None] * 70):
        batch = table([*_filler(69), None], keys=keys)
        _demand_same(local_engine.convert(plan, batch), _without_proof(local_engine, plan, batch))


def test_many_that_are_not_proven_take_the_swift_job(local_engine: Engine) -> None:
    """More than a handful of doubtful payloads among proven ones, and proven ones fewer than half."""
    doubtful = [b'{"event":"d%d","properties":{"time":%d,"user":null}}' % (n, n) for n in range(150)]
    for good in (200, 100):
        mixed = [payload for pair in zip(_filler(150), doubtful, strict=True) for payload in pair][: 300 - good]
        batch = table([*mixed, *_filler(good), None])
        _demand_same(local_engine.convert(_plan(), batch), _without_proof(local_engine, _plan(), batch))


def test_conformance_set_among_good_records(local_engine: Engine) -> None:
    """In a field that no one reads, after as many good ones as are proven at once, every text gets its own verdict."""
    plan = _plan(record_bytes_max=1 << 20)
    prefix = b'{"event":"a","properties":{"time":1,"user":"u"},"unread":'
    batch = table([*_filler(FIRST_ROWS), *(prefix + text + b"}" for text, _ in texts())])
    seen = _by_proof(local_engine, plan, batch).column("reason").to_pylist()
    wanted = _without_proof(local_engine, plan, batch).column("reason").to_pylist()
    assert seen == wanted


@settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.explicit, Phase.generate],
    max_examples=6,
)
@given(data=st.data())
def test_generated_micro_batches(local_engine: Engine, data: st.DataObject) -> None:
    """Whatever schema and payloads, the outcome is the same."""
    schema = data.draw(schemas(is_provable=True))
    policy = data.draw(st.sampled_from([UnknownFields.IGNORE, UnknownFields.REJECT]))
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema), unknown_fields=policy), value_converter=AVRO)
    found = data.draw(st.lists(fitting_payloads(schema), min_size=30, max_size=30))
    found += data.draw(st.lists(payloads(schema), max_size=6))
    order = np.random.default_rng(len(found)).permutation(len(found))
    batch = table([found[at] for at in order])
    _demand_same(local_engine.convert(plan, batch), _without_proof(local_engine, plan, batch))
