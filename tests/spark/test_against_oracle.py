"""Record by record, Spark and the oracle pass the same verdict, and what is valid decodes to the same value."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from spark_batch.coercion import Coerce
from spark_batch.convert_exactly import convert_exactly
from spark_batch.outcome import Reason
from spark_batch.plan import (
    Contract,
    ConversionPlan,
    ConverterKind,
    ConverterSpec,
    PayloadFormat,
    UnknownFields,
)
from spark_batch.plan_findings import plan_findings
from spark_batch.plan_transforms import value_schema
from tests.spark.coerced import coercing_cases
from tests.spark.engines import Engine, table
from tests.spark.generated import payloads, schemas
from tests.spark.oracle import Literal, NotValid, Taking, judged, kept, read_avro, read_json

RECORDS = 60
WITHOUT_SHRINKING = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
"""A disagreement is told record by record; shrinking would run a Spark job for every attempt."""
AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=9)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[bytes], bool]:
    """A schema, payloads for it, and whether unknown fields are refused."""
    schema = draw(schemas())
    texts = draw(st.lists(payloads(schema), min_size=RECORDS, max_size=RECORDS))
    return schema, texts, draw(st.integers(0, 3)) == 0


def expected(schema: dict[str, Any], payload: bytes, *, is_unknown_refused: bool, taking: Taking | None = None) -> Any:
    """The oracle's record, or None where it rejects (a record is never None)."""
    try:
        return judged(schema, payload, is_unknown_refused=is_unknown_refused, taking=taking)
    except NotValid:
        return None


def in_order(value: Any) -> Any:
    """The value with the keys of its maps in order: Avro's maps have none."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def disagreements(
    engine: Engine, case: tuple[dict[str, Any], list[bytes], bool], coerce: frozenset[Coerce] = frozenset()
) -> list[str]:
    """Every record on which Spark and the oracle differ, told for a reader."""
    schema, texts, is_unknown_refused = case
    policy = UnknownFields.REJECT if is_unknown_refused else UnknownFields.IGNORE
    plan = ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(schema), unknown_fields=policy, coerce=coerce),
        value_converter=AVRO,
    )
    assert plan_findings(plan) == []
    written = json.loads(value_schema(plan) or "")
    found = []
    for payload, row in zip(texts, engine.convert(plan, table(texts)).to_pylist(), strict=True):
        taking = Taking(default=frozenset(map(str, coerce)))
        wanted = expected(schema, payload, is_unknown_refused=is_unknown_refused, taking=taking)
        if row["reason"] is not None:
            assert row["value"] is None
            assert row["reason"] in set(Reason) - {Reason.UNREPRESENTABLE}
            seen = None
        else:
            assert row["value"][:5] == b"\x00\x00\x00\x00\x09"
            seen = read_avro(written, row["value"][5:])
            bits = row["coerced"] or 0
            counted = {name for at, name in enumerate(plan.coerced_fields) if bits >> at & 1}
            if counted != taking.done:
                found.append(f"{payload!r}\n  oracle counts {taking.done}\n  spark  {counted}")
        if repr(in_order(seen)) != repr(in_order(wanted)):
            found.append(f"{payload!r}\n  oracle {wanted!r}\n  spark  {seen!r} {row['reason']} {row['message']}")
    return found


@settings(parent=WITHOUT_SHRINKING, max_examples=15)
@given(case=cases())
def test_verdicts_and_values_equal_the_oracles(
    local_engine: Engine, case: tuple[dict[str, Any], list[bytes], bool]
) -> None:
    """On generated schemas and payloads, rejected means rejected and valid means the very same value."""
    found = disagreements(local_engine, case)
    assert not found, "\n".join([repr(case[0]), *found[:5]])


LONG_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
OF_LONG_DECIMALS = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": LONG_DECIMAL}]}


@settings(parent=WITHOUT_SHRINKING, max_examples=6)
@given(case=coercing_cases(records=RECORDS), is_unknown_refused=st.booleans())
@example(case=(OF_LONG_DECIMALS, frozenset([Coerce.NUMBERS]), [b'{"f0":"%s"}' % (b"1" * 30)]), is_unknown_refused=False)
def test_texts_taken_for_values_equal_the_oracle_s(
    local_engine: Engine, case: tuple[dict[str, Any], frozenset[Coerce], list[bytes]], *, is_unknown_refused: bool
) -> None:
    """The same where contracts coerce: verdicts, values, and the fields in which it was done."""
    schema, coerce, texts = case
    found = disagreements(local_engine, (schema, texts, is_unknown_refused), coerce)
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema), coerce=coerce), value_converter=AVRO)
    exact, spark = (each(plan, table(texts)) for each in (convert_exactly, local_engine.convert))
    assert exact.select(["reason", "coerced"]).equals(spark.select(["reason", "coerced"]))
    assert not found, "\n".join([repr(schema), repr(coerce), *found[:5]])


@settings(parent=WITHOUT_SHRINKING, max_examples=10)
@given(case=cases())
def test_what_is_kept_equals_the_oracle_s(local_engine: Engine, case: tuple[dict[str, Any], list[bytes], bool]) -> None:
    """With `contract.unknown.fields=keep`: every field and digit, under the names of the contract."""
    schema, texts, _ = case
    contract = Contract(json.dumps(schema), unknown_fields=UnknownFields.KEEP)
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=ConverterSpec(ConverterKind.JSON))
    assert plan_findings(plan) == []
    for payload, row in zip(texts, local_engine.convert(plan, table(texts)).to_pylist(), strict=True):
        try:
            wanted = kept(schema, payload)
        except NotValid:
            wanted = None
        seen = None if row["reason"] is not None else read_json(row["value"])
        assert seen == wanted, f"{payload!r} {row['reason']} {row['message']}"


def written_numerically(value: Any) -> Any:
    """Decimals of the oracle's record as numbers, everything else as nothing: other tests look at it."""
    if isinstance(value, dict):
        return {key: written_numerically(item) for key, item in value.items()}
    if isinstance(value, list):
        return [written_numerically(item) for item in value]
    return Literal(str(value)) if isinstance(value, Decimal) else value


@settings(parent=WITHOUT_SHRINKING, max_examples=6)
@given(data=st.data(), precision=st.integers(1, 38))
def test_decimals_as_numbers_equal_the_oracle_s(local_engine: Engine, data: st.DataObject, precision: int) -> None:
    """With `decimal.format=NUMERIC`: the oracle's decimal, digit by digit, wherever it stands."""
    scale = data.draw(st.integers(0, precision))
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    fields = [
        {"name": "f0", "type": ["null", kind]},
        {"name": "f1", "type": {"type": "array", "items": ["null", kind]}},
        {"name": "f2", "type": {"type": "map", "values": kind}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    texts = data.draw(st.lists(payloads(schema), min_size=RECORDS, max_size=RECORDS))
    numeric = ConverterSpec(ConverterKind.JSON, is_decimal_numeric=True)
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema)), value_converter=numeric)
    for payload, row in zip(texts, local_engine.convert(plan, table(texts)).to_pylist(), strict=True):
        wanted = written_numerically(expected(schema, payload, is_unknown_refused=False))
        seen = None if row["reason"] is not None else read_json(row["value"])
        assert seen == wanted, f"{payload!r} {row['reason']} {row['message']}"


@pytest.mark.parametrize("seed", range(3))
def test_connect_agrees_too(connect_engine: Engine, seed: int) -> None:
    """Spark Connect passes the oracle's verdicts as well."""

    @settings(parent=WITHOUT_SHRINKING, max_examples=2)
    @given(case=cases())
    def check(case: tuple[dict[str, Any], list[bytes], bool]) -> None:
        found = disagreements(connect_engine, case)
        assert not found, "\n".join([f"{seed} {case[0]!r}", *found[:5]])

    check()
