"""JSON whose text is left to Arrow: the bytes of Spark's ``to_json``, whatever the job, its types and its records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import RowSchema
from fetchers.sdk import rows as forms
from service.config.transformations import read_transformations
from spark_batch.compiled import CompiledPlan, compile_plan
from spark_batch.job_run import EXACT_ROWS_MAX
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.plan_findings import plan_findings
from tests.spark.engines import LocalEngine, table
from tests.spark.typed_rows import Made, named_types, plain_types, texts

JSON = ConverterSpec(ConverterKind.JSON)
ENVELOPED = replace(JSON, is_schema_enveloped=True)
SPECS = [JSON, ENVELOPED]
PACKAGE = "org.apache.kafka.connect.transforms"
PLANS: dict[ConversionPlan, tuple[CompiledPlan, CompiledPlan]] = {}


def both_ways(engine: LocalEngine, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
    """The outcome, which is that of Spark's own writer too."""
    if plan not in PLANS:
        assert plan_findings(plan) == []
        PLANS[plan] = (compile_plan(engine.session, plan), compile_plan(engine.session, plan.by_spark()))
    left, by_spark = PLANS[plan]
    assert any(job.left_to_arrow for job in jobs_of(left))
    assert not any(job.left_to_arrow for job in jobs_of(by_spark))
    found = engine.convert_by(left, batch)
    assert found.to_pydict() == engine.convert_by(by_spark, batch).to_pydict()
    return found


def jobs_of(compiled: CompiledPlan) -> list[Any]:
    """All that the plan has."""
    typed = None if compiled.typed is None else compiled.typed.job
    return [job for job in (typed, compiled.swift, compiled.canonical, compiled.rows) if job is not None]


def steps(**chain: Mapping[str, str]) -> Any:
    """Transformations of values, as a config has them."""
    keys = {"transforms": ",".join(chain)}
    for name, own in chain.items():
        keys |= {f"transforms.{name}.{key}": text for key, text in own.items()}
        keys[f"transforms.{name}.type"] = f"{PACKAGE}.{own['type']}$Value"
    return read_transformations(keys).steps


OF_LINES = steps(
    hoisted={"type": "HoistField", "field": 'li"ne\\'},
    inserted={"type": "InsertField", "static.field": "at\u2028", "static.value": "1700000000123"},
    typed={"type": "Cast", "spec": "at\u2028:int64"},
)
lines = st.none() | texts.map(str.encode) | st.binary(max_size=4)


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(lines, min_size=1, max_size=8), keys=st.lists(lines, min_size=8, max_size=8), is_long=st.booleans()
)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("chain", [(), OF_LINES], ids=["plain", "chain"])
def test_lines(
    *, local_engine: LocalEngine, spec: ConverterSpec, chain: Any, values: list[Any], keys: list[Any], is_long: bool
) -> None:
    """Tombstones, texts that are not UTF-8, and keys, which are JSON too."""
    plan = ConversionPlan(
        PayloadFormat.TEXT, value_converter=spec, key_converter=spec, transformations=chain, topic="t" if chain else ""
    )
    values = values * 20 if is_long else values
    both_ways(local_engine, plan, table(values, keys=(keys * 20)[: len(values)]))


SCHEMA = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "event", "type": "string"},
        {"name": "n", "type": "int", "default": 3},
        {
            "name": "properties",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "P",
                    "fields": [
                        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                        {"name": "user", "type": ["null", "string"], "default": None},
                        {"name": "is_new", "type": ["null", "boolean"], "default": None},
                        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
                        {"name": "sort", "type": {"type": "enum", "name": "S", "symbols": ["a", "b"]}, "default": "a"},
                    ],
                },
            ],
            "default": None,
        },
    ],
}
KEEP_NULLS = {"replace.null.with.default": "false"}
CHAINS = {
    "plain": (),
    "chain": steps(
        flat={"type": "Flatten", "delimiter": "_"},
        typed={"type": "Cast", "spec": "n:int8,properties_is_new:string", **KEEP_NULLS},
        masked={"type": "MaskField", "fields": "properties_user", **KEEP_NULLS},
        inserted={"type": "InsertField", "static.field": "so", "static.value": 'f"\t', **KEEP_NULLS},
        named={"type": "ReplaceField", "exclude": "properties_day", "renames": 'event:e"\\é', **KEEP_NULLS},
    ),
    "field": steps(taken={"type": "ExtractField", "field": "properties.user", "field.syntax.version": "V2"}),
    "nested": steps(taken={"type": "ExtractField", "field": "properties"}),
}
properties = st.none() | st.fixed_dictionaries(
    {"time": st.integers(-(10**9), 10**12)},
    optional={
        "user": st.none() | texts,
        "is_new": st.none() | st.booleans(),
        "day": st.none() | st.integers(-800, 90_000),
        "sort": st.sampled_from(["a", "b", "c"]),
    },
)
events = st.fixed_dictionaries({"event": texts}, optional={"n": st.integers(-200, 200), "properties": properties})


@settings(max_examples=15, deadline=None)
@given(made=st.lists(events, min_size=1, max_size=8), is_ascii=st.booleans())
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("chain", CHAINS)
def test_records_of_a_contract(
    *, local_engine: LocalEngine, spec: ConverterSpec, chain: str, made: list[dict[str, Any]], is_ascii: bool
) -> None:
    """Proven ones, as many again that Arrow does not vouch for, those for the exact path, and bad ones."""
    rules = (Rule("not_bad", "event <> 'bad'"),)
    plan = ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(SCHEMA), rules),
        value_converter=spec,
        key_converter=JSON,
        key_fields=("event", "n"),
        transformations=CHAINS[chain],
        topic="t" if chain != "plain" else "",
    )
    payloads = [json.dumps(each, ensure_ascii=is_ascii).encode() for each in made]
    unproven = [b'{"event":"a\\u0000","\\u006e":%d}' % at for at in range(EXACT_ROWS_MAX + 1)]
    others = [b'{"event":"bad"}', b'{"event":"\\ud800"}', b"[]", b'{"event":1}', b'{"event":"x","n":1.0}', None]
    both_ways(local_engine, plan, table([*payloads, *payloads, *others]))
    both_ways(local_engine, plan, table([*unproven, *payloads, *others]))


SIMPLE = [made for made in plain_types() if made.arrow not in (pa.float32(), pa.float64(), pa.binary())]
SIMPLE += [made for made in named_types() if made.arrow == pa.string()]
EVERY = {f"f{at}": made.optional if at % 2 else made for at, made in enumerate(SIMPLE)}
KIND = pa.struct([(name, made.arrow) for name, made in EVERY.items()])
values = st.fixed_dictionaries({name: made.values for name, made in EVERY.items()})
INNER = Made(forms.struct("app.Inner", {name: made.form for name, made in EVERY.items()}), KIND, values)
OUTER = {
    "n": Made(forms.INT64, pa.int64(), st.integers(0, 9)),
    "inner": INNER.optional,
    "text": Made(forms.STRING, pa.string(), texts).optional,
}


@settings(max_examples=25, deadline=None)
@given(made=st.lists(st.fixed_dictionaries({name: each.values for name, each in OUTER.items()}), max_size=6))
@pytest.mark.parametrize("spec", SPECS)
def test_rows_of_every_type(local_engine: LocalEngine, spec: ConverterSpec, made: list[dict[str, Any]]) -> None:
    """Of a job, since a rule judges them; tombstones among them, and records that are null in records."""
    schema = RowSchema.of("app.Outer", {name: each.form for name, each in OUTER.items()})
    kind = pa.struct([(name, each.arrow) for name, each in OUTER.items()])
    value = pa.array([*made, None], kind)
    nulls = {"key": pa.nulls(len(value), pa.binary()), "timestamp": pa.nulls(len(value), pa.int64())}
    base = ConversionPlan(PayloadFormat.ROWS, value_converter=spec, rules_of_rows=(Rule("small", "n < 8"),))
    plan = base.for_rows(schema=schema.avro, key_schema=None, topic="t")
    both_ways(local_engine, plan, pa.table({"key": nulls["key"], "value": value, "timestamp": nulls["timestamp"]}))


@pytest.mark.parametrize(
    ("kind", "spec", "chain"),
    [
        ("double", JSON, ()),
        ("bytes", JSON, ()),
        ({"type": "array", "items": "string"}, JSON, ()),
        ("string", ConverterSpec(ConverterKind.AVRO, schema_id=7), ()),
        (
            "string",
            JSON,
            read_transformations(
                {"transforms": "s", "transforms.s.type": "Sql", "transforms.s.sql": "SELECT x FROM record"}
            ).steps,
        ),
    ],
    ids=["double", "bytes", "array", "avro", "sql"],
)
def test_what_is_left_to_spark(local_engine: LocalEngine, kind: Any, spec: ConverterSpec, chain: Any) -> None:
    """Numbers as Java writes them, what has items, other converters, and texts of ``Sql``, which need not be UTF-8."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    topic = "t" if chain else ""
    plan = ConversionPlan(
        PayloadFormat.JSON, Contract(json.dumps(schema)), value_converter=spec, transformations=chain, topic=topic
    )
    jobs = jobs_of(local_engine.compiled(plan))
    assert jobs
    assert not any(job.left_to_arrow for job in jobs)
