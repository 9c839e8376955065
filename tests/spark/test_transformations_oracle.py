"""Transformations against an oracle: plain Python over plain values, sharing no code with the conversion."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.transforms.catalog import (
    ExtractField,
    FieldName,
    HasHeaderKey,
    HoistField,
    InsertField,
    RecordIsTombstone,
    RegexRouter,
    Side,
    Step,
    TopicNameMatches,
    Transformation,
)
from tests.spark.engines import Engine, LocalEngine, table

SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "string"},
        {"name": "b", "type": ["null", "long"], "default": None},
        {
            "name": "c",
            "type": ["null", {"type": "record", "name": "C", "fields": [{"name": "d", "type": "boolean"}]}],
            "default": None,
        },
    ],
}
STATIC = 'what\\ "is" é'
NAMES = st.sampled_from(["a", "b", "c", "d", "x", "y"])
TOPICS: dict[tuple[str, str], Callable[[str], str]] = {
    ("(.)-(.)", "$2$1"): lambda topic: topic[2] + topic[0],
    ("t.*", "x"): lambda _: "x",
}
RECORDS = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {"a": st.text(st.characters(exclude_categories=["Cs"]), max_size=5)},
        optional={
            "b": st.none() | st.integers(-(2**63), 2**63 - 1),
            "c": st.none() | st.fixed_dictionaries({"d": st.booleans()}),
        },
    ),
    min_size=1,
    max_size=20,
)


def transformations() -> st.SearchStrategy[Transformation]:
    """Of values, and routers."""
    names = st.none() | st.builds(FieldName, NAMES, st.booleans())
    return (
        st.builds(InsertField, st.just(Side.VALUE), names, st.none(), names.filter(bool), st.just(STATIC))
        | st.builds(HoistField, st.just(Side.VALUE), NAMES)
        | st.builds(ExtractField, st.just(Side.VALUE), st.tuples(NAMES))
        | st.sampled_from([RegexRouter(*texts) for texts in TOPICS])
    )


def steps() -> st.SearchStrategy[list[Step]]:
    """Some of them with a predicate."""
    asked = [RecordIsTombstone(), TopicNameMatches("t.*"), TopicNameMatches("x"), HasHeaderKey("h")]
    predicates = st.none() | st.sampled_from(asked)
    one = st.builds(Step, st.sampled_from("pqrs"), transformations(), predicates, st.booleans())
    return st.lists(one, min_size=1, max_size=4)


class Unfit(Exception):
    """A transformation has no fields to work on, or not the one it asks for."""


def transformed(chain: list[Step], topic: str, value: Any) -> tuple[str, Any]:
    """Where the record ends, and what becomes of its value; raises Unfit."""
    is_tombstone = value is None
    for step in chain:
        if not is_met(step, topic, is_tombstone=is_tombstone):
            continue
        each = step.transformation
        if isinstance(each, RegexRouter):
            route = TOPICS[each.regex, each.replacement]
            topic = route(topic) if re.fullmatch(each.regex, topic) else topic
        elif not is_tombstone:
            value = changed(each, topic, value)
    return topic, value


def is_met(step: Step, topic: str, *, is_tombstone: bool) -> bool:
    """Whether the record goes through the step."""
    if step.predicate is None:
        return True
    if isinstance(step.predicate, RecordIsTombstone):
        return is_tombstone != step.is_negated
    if isinstance(step.predicate, HasHeaderKey):
        return step.is_negated
    return bool(re.fullmatch(step.predicate.pattern, topic)) != step.is_negated


def changed(each: Transformation, topic: str, value: Any) -> Any:
    """One value through one transformation; null comes out of a field only, and only `HoistField` wraps it."""
    if isinstance(each, HoistField):
        return {each.field: value}
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Unfit
    if isinstance(each, ExtractField):
        if each.path[0] not in value:
            raise Unfit
        return value[each.path[0]]
    assert isinstance(each, InsertField)
    added = [(each.topic, topic), (each.static, STATIC)]
    for name, text in added:
        if name is not None and name.name in value:
            raise Unfit
        if name is not None:
            value = {**value, name.name: text}
    return value


def whole(record: dict[str, Any]) -> dict[str, Any]:
    """The record with what is missing."""
    return {"a": record["a"], "b": record.get("b"), "c": record.get("c")}


def expected_of(chain: list[Step], records: list[Any]) -> list[tuple[str, bytes | None]]:
    """What must come out."""
    found = []
    for record in records:
        topic, value = transformed(chain, "t-u", None if record is None else whole(record))
        text = None if record is None else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        found.append((topic, text))
    return found


def same(text: bytes | None) -> Any:
    """A form in which escapes do not count and the order of fields does."""
    return None if text is None else json.loads(text, object_pairs_hook=list)


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(chain=steps(), records=RECORDS)
def test_columns_do_what_the_oracle_does(local_engine: Engine, chain: list[Step], records: list[Any]) -> None:
    """Record by record; what the plan finds unfit the oracle cannot do either, for records that have everything."""
    assert isinstance(local_engine, LocalEngine)
    plan = ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(SCHEMA)),
        value_converter=ConverterSpec(ConverterKind.JSON),
        transformations=tuple(chain),
        topic="t-u",
    )
    everything = {"a": "", "b": 1, "c": {"d": True}}
    if plan_findings(plan):
        try:
            transformed(chain, "t-u", everything)
        except Unfit:
            return
        raise AssertionError(plan_findings(plan))
    payloads = [None if record is None else json.dumps(record).encode() for record in records]
    outcome = local_engine.convert(plan, table(payloads))
    topics = [topic or "t-u" for topic in outcome.column("topic").to_pylist()]
    values = outcome.column("value").to_pylist()
    assert outcome.column("reason").null_count == len(records)
    wanted = expected_of(chain, records)
    assert [(topic, same(value)) for topic, value in zip(topics, values, strict=True)] == [
        (topic, same(value)) for topic, value in wanted
    ]
