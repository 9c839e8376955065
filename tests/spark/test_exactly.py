"""What the exact path alone says of records, as in a preview, is what Spark's job says of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_batch.coercion import Coerce
from spark_batch.convert_exactly import RulesNeedSparkError, convert_exactly
from spark_batch.outcome import OUTCOME_SCHEMA
from spark_batch.plan import (
    Contract,
    ConversionPlan,
    ConverterKind,
    ConverterSpec,
    PayloadFormat,
    Rule,
    UnknownFields,
)
from spark_batch.plan_findings import plan_findings
from spark_batch.plan_transforms import key_schema, value_schema
from spark_batch.transforms.catalog import (
    ExtractField,
    FieldName,
    Filter,
    HoistField,
    InsertField,
    InsertHeader,
    RegexRouter,
    Side,
    Step,
    TimestampRouter,
    Transformation,
    ValueToKey,
)
from tests.spark.engines import LocalEngine, table
from tests.spark.generated import payloads, schemas
from tests.spark.json_texts import texts
from tests.spark.oracle import read_avro
from tests.spark.test_against_oracle import WITHOUT_SHRINKING, in_order

AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=258)
JSON = ConverterSpec(ConverterKind.JSON)
SPECS = (
    AVRO,
    AVRO,
    JSON,
    ConverterSpec(ConverterKind.JSON, is_decimal_numeric=True),
    ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True),
    ConverterSpec(ConverterKind.STRING),
    ConverterSpec(ConverterKind.BYTES),
)
RECORDS = 40
_FLOATING = re.compile(rb"(-?\d+\.\d+(?:E-?\d+)?)")
_FLOAT_DIGITS_MAX = 10
_NAMES = st.sampled_from(["f0", "f1", "f2", "x", "y"])


def alike(left: bytes | None, right: bytes | None, schema: str | None) -> bool:
    """Whether two outputs are the same bytes, but for what has no order or no one form.

    Avro's maps have no order, and a Java before 19 may write more digits of a floating number. ``schema``: of Avro.
    """
    if left == right or left is None or right is None:
        return left == right
    if schema is not None:
        one, other = (read_avro(json.loads(schema), output[5:]) for output in (left, right))
        return left[:5] == right[:5] and repr(in_order(one)) == repr(in_order(other))
    parts = [_FLOATING.split(text) for text in (left, right)]
    return len(parts[0]) == len(parts[1]) and all(
        one == other or (at % 2 and _is_same_number(one, other))
        for at, (one, other) in enumerate(zip(*parts, strict=True))
    )


def _is_same_number(one: bytes, other: bytes) -> bool:
    """As doubles, or as floats where both have no more digits than a float's text may have."""
    if float(one) == float(other):
        return True
    digits = max(len(re.sub(rb"E.*|[^0-9]", b"", text)) for text in (one, other))
    return digits <= _FLOAT_DIGITS_MAX and np.float32(one) == np.float32(other)


def differences(engine: LocalEngine, plan: ConversionPlan, batch: Any) -> list[str]:
    """Every record of which the two say different things, told for a reader."""
    assert plan_findings(plan) == []
    exact, spark = convert_exactly(plan, batch), engine.convert(plan, batch)
    assert exact.schema == OUTCOME_SCHEMA
    written = {"key": key_schema(plan), "value": value_schema(plan)}
    found = []
    for payload, one, other in zip(
        batch.column("value").to_pylist(), exact.to_pylist(), spark.to_pylist(), strict=True
    ):
        unlike = [
            f"{name}: exact {one[name]!r}, Spark {other[name]!r}"
            for name in one
            if not (alike(one[name], other[name], written[name]) if name in written else one[name] == other[name])
        ]
        if unlike:
            found.append("\n  ".join([repr(payload)[:300], *(text[:300] for text in unlike)]))
    return found


def transformations() -> st.SearchStrategy[Transformation]:
    """Of keys and values, and a router."""
    sides = st.sampled_from([Side.VALUE, Side.VALUE, Side.KEY])
    names = st.none() | st.builds(FieldName, _NAMES)
    return (
        st.builds(InsertField, sides, names, names, names.filter(bool), st.just('what "is" é'), st.just(False))  # noqa: FBT003
        | st.builds(HoistField, sides, _NAMES)
        | st.builds(ExtractField, sides, st.tuples(_NAMES), st.just(False))  # noqa: FBT003
        | st.just(RegexRouter("t(.*)", "u$1"))
        | st.builds(ValueToKey, st.just(Side.KEY), st.just(False), st.tuples(_NAMES))  # noqa: FBT003
        | st.sampled_from([TimestampRouter(), Filter(), InsertHeader("h", "1")])
    )


@st.composite
def plans(draw: st.DrawFn, schema: dict[str, Any] | None) -> ConversionPlan:
    """A plan that has no findings; as little as possible is thrown away."""
    names = [] if schema is None else [field["name"] for field in schema["fields"]]
    paths = [] if schema is None else [field.get("json.name", field["name"]) for field in schema["fields"]]
    steps = draw(st.lists(transformations(), max_size=3))
    wished = ConversionPlan(
        draw(st.sampled_from([PayloadFormat.JSON, PayloadFormat.TEXT, PayloadFormat.BYTES]))
        if schema is None
        else PayloadFormat.JSON,
        None if schema is None else Contract(json.dumps(schema)),
        key_converter=ConverterSpec(ConverterKind.STRING),
        value_converter=AVRO if schema else ConverterSpec(ConverterKind.BYTES),
        topic="t-u",
    )
    contract = wished.contract
    policies, taken = st.sampled_from(UnknownFields), st.frozensets(st.sampled_from(Coerce))
    choices: list[dict[str, Any]] = [
        {"value_converter": draw(st.sampled_from(SPECS))},
        {"key_fields": tuple(draw(st.lists(st.sampled_from(names or ["f0", "b"]), max_size=2, unique=True)))},
        {"key_converter": draw(st.sampled_from(SPECS))},
        {"timestamp_field": draw(st.sampled_from(paths or ["f0"]))},
        {"dedupe_fields": tuple(draw(st.lists(st.sampled_from(paths or ["f0"]), max_size=2, unique=True)))},
        {"contract": contract and replace(contract, unknown_fields=draw(policies), coerce=draw(taken))},
        {"record_bytes_max": draw(st.sampled_from([1 << 20, 40]))},
        *(
            {"transformations": tuple(Step(f"s{at}", each) for at, each in enumerate(steps[:count]))}
            for count in (1, 2, 3)
        ),
    ]
    for choice in choices:
        changed = replace(wished, **choice)
        wished = wished if plan_findings(changed) else changed
    assume(not plan_findings(wished))
    return wished


def test_a_record_without_a_time_to_route_by_keeps_its_hash(local_engine: LocalEngine) -> None:
    """By which an equal record that has one is its duplicate or not, whoever has judged them."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": "long"}]}
    plan = ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(schema)),
        key_converter=ConverterSpec(ConverterKind.STRING),
        value_converter=JSON,
        topic="t-u",
        dedupe_fields=("f0",),
        transformations=(Step("s0", TimestampRouter()),),
    )
    records: list[bytes | None] = [b'{"f0":1}', b'{"f0":1}', b'{"f0":1.5}']
    batch = table(records, keys=[None] * 3, timestamps=[None, 5, None])
    assert not differences(local_engine, plan, batch)
    outcome = convert_exactly(plan, batch).to_pylist()
    assert [row["reason"] for row in outcome] == ["null_not_allowed", None, "wrong_type"]
    assert outcome[0]["dedupe"] == outcome[1]["dedupe"] is not None


@settings(parent=WITHOUT_SHRINKING, max_examples=20)
@given(data=st.data())
def test_verdicts_values_keys_and_topics_are_those_of_spark(local_engine: LocalEngine, data: st.DataObject) -> None:
    """On generated contracts, converters, keys, transformations and payloads: every column of the outcome."""
    schema = data.draw(schemas())
    plan = data.draw(plans(schema))
    records = data.draw(st.lists(st.none() | payloads(schema), min_size=RECORDS, max_size=RECORDS))
    keys = data.draw(
        st.lists(
            st.none() | st.sampled_from([b"k", b'{"a":1}', b"\xff", 'é"'.encode()]), min_size=RECORDS, max_size=RECORDS
        )
    )
    stamps = data.draw(st.lists(st.none() | st.integers(0, 2**42), min_size=RECORDS, max_size=RECORDS))
    found = differences(local_engine, plan, table(records, keys=keys, timestamps=stamps))
    assert not found, "\n".join([repr(plan), *found[:5]])


@settings(parent=WITHOUT_SHRINKING, max_examples=10)
@given(data=st.data())
def test_records_without_a_contract_are_those_of_spark(local_engine: LocalEngine, data: st.DataObject) -> None:
    """Lines, bytes and JSON of which nothing is known, transformed or not."""
    plan = data.draw(plans(None))
    chosen = [
        b'{"f0":1,"f1":{"x":"\\u0001"},"y":null}',
        b"line \xc3\xa9",
        b"",
        b"\xff\x00",
        None,
        b'{"f0":"2024-01-01T00:00:00Z"}',
    ]
    records = [*chosen, *(text for text, _ in texts()[::7])]
    keys = [None if at % 3 else b"key" for at in range(len(records))]
    found = differences(local_engine, plan, table(records, keys=keys))
    assert not found, "\n".join([repr(plan), *found[:5]])


@pytest.mark.parametrize("spec", [AVRO, JSON], ids=["avro", "json"])
def test_the_conformance_set_gets_spark_s_verdicts_in_every_place(
    local_engine: LocalEngine, spec: ConverterSpec
) -> None:
    """As a field that is asked for, and as one that is not."""
    fields = [
        {"name": "f", "type": ["null", "double"], "default": None},
        {"name": "m", "type": {"type": "map", "values": "float"}, "default": {}},
    ]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    plan = ConversionPlan(PayloadFormat.JSON, Contract(schema), value_converter=spec, dedupe_fields=("f",))
    records = [b'{"%s":%s}' % (name, text) for text, _ in texts() for name in (b"f", b"other")]
    records += [b'{"m":{"%s":1}}' % (b"k" * length) for length in (49_000, 60_000)]
    found = differences(local_engine, plan, table(records))
    assert not found, "\n".join(found[:5])


def test_rules_are_left_to_spark() -> None:
    """Nothing is guessed about an expression."""
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": "int"}]})
    plan = ConversionPlan(PayloadFormat.JSON, Contract(schema, (Rule("positive", "f > 0"),)))
    with pytest.raises(RulesNeedSparkError):
        convert_exactly(plan, table([b'{"f":1}']))
