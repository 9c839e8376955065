"""The exact path never raises for a bad payload, however absurd its numbers or its depth."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_batch.exact.verdicts import exact_verdict
from spark_batch.outcome import Reason
from spark_batch.plan import Contract, ConversionPlan, PayloadFormat, UnknownFields
from tests.spark.generated import payloads, schemas

ABSURD = ["1e99999999999999999999", "-1e-99999999999999999999", "0e99999999999999999999", "1" * 5000, "0." + "1" * 5000]
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}


@pytest.mark.parametrize("kind", ["double", "float", "long", "string", DECIMAL])
@pytest.mark.parametrize("policy", list(UnknownFields))
def test_absurd_numbers(kind: Any, policy: UnknownFields) -> None:
    """Numbers that no type can hold are a verdict, in fields that are read, hashed or kept."""
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", kind]}]})
    for contract in (Contract(schema, unknown_fields=policy), None):
        plan = ConversionPlan(PayloadFormat.JSON, contract, ("a",), "b" if contract is None else None, ("a", "b"))
        for text in ABSURD:
            for name in ("a", "b"):
                verdict = exact_verdict(plan, f'{{"{name}":{text}}}'.encode())
                assert len(verdict.dedupe or b"") == 16


@pytest.mark.parametrize("levels", [1, 200, 450, 499])
def test_deep_values(levels: int) -> None:
    """At least 200 levels pass even where the deep value itself is hashed or written again."""
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long", "json.name": "$a"}]})
    payload = b'{"$a":1,"b":' + b"[" * levels + b"]" * levels + b"}"
    for contract in (None, Contract(schema, unknown_fields=UnknownFields.KEEP)):
        verdict = exact_verdict(ConversionPlan(PayloadFormat.JSON, contract, dedupe_fields=("b",)), payload)
        assert len(verdict.dedupe or b"") == 16
        assert verdict.rejection is None or (levels > 200 and verdict.rejection.reason is Reason.TOO_DEEP)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_never_raises(data: st.DataObject) -> None:
    """Whatever the payload, the exact path answers, and a canonical text is JSON."""
    schema = data.draw(schemas())
    policy = data.draw(st.sampled_from(UnknownFields))
    plan = ConversionPlan(
        PayloadFormat.JSON, Contract(json.dumps(schema), unknown_fields=policy), dedupe_fields=("f0",)
    )
    verdict = exact_verdict(plan, data.draw(payloads(schema)))
    assert (verdict.rejection is None) is (verdict.canonical is not None)
    if verdict.canonical is not None:
        assert isinstance(json.loads(verdict.canonical), dict)
        assert json.loads(verdict.value or b"null") is not None
