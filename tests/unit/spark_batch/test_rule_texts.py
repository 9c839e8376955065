"""Rules that are refused before Spark is asked: a validation answers at once, over REST with 400."""

from __future__ import annotations

import json

import pytest

from service.config.definition import read_definition
from spark_batch.rules.tree import text_refusal
from tests.spark.test_rules import ATTACKS, HONEST, SCHEMA

WORKER = {"key.converter": "string", "value.converter": "json"}
FUNCTIONS = (
    "java_method",
    "reflect",
    "try_reflect",
    "Java_Method",
    "from_avro",
    "from_xml",
    "repeat",
    "sequence",
    "rpad",
)
TOLD = {rule: name for rule, name in ATTACKS.items() if name in {*FUNCTIONS, "a subquery", "IDENTIFIER", "${…}"}}


@pytest.mark.parametrize(("rule", "name"), list(TOLD.items()))
def test_an_attack_is_a_finding_of_the_config(rule: str, name: str) -> None:
    """With the key, and with the name of what the rule reaches for."""
    properties = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "file": "/tmp/x"}
    properties |= {"contract.schema": json.dumps(SCHEMA), "contract.rules.bad": rule}
    reading = read_definition(properties, worker=WORKER)
    assert reading.definition is None
    (finding,) = [finding for finding in reading.findings if finding.key == "contract.rules.bad"]
    assert name in finding.message
    assert "is not allowed" in finding.message
    assert finding.is_error


@pytest.mark.parametrize("rule", [*HONEST, "text = 'reflect(1)' and number in (1) and not(flag) -- java_method(1)"])
def test_an_honest_rule_is_no_finding(rule: str) -> None:
    """Nor is what stands in quotes or in a comment."""
    assert text_refusal(rule) is None
