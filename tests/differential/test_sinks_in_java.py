"""Transformations of sinks beside Kafka Connect's own classes: every one, of keys and of values, in generated chains.

Records have keys, values, headers and times, with schemas or without. Tombstones, and records without a key, are among
them.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from typing import Any

import pytest

from service.config.transformations import read_transformations
from spark_batch.transforms import catalog
from tests.differential.java_transforms import JavaRecord, JavaStep, JavaTransforms, needs_compiler
from tests.differential.test_records_in_java import (
    Asked,
    as_java_says,
    asked,
    decoded_at_a_sink,
    properties,
)
from tests.differential.test_transformations_in_java import (
    CONVERTER,
    INSTANTS,
    PATTERN,
    TARGETS,
    TIMESTAMP_MS,
    Chain,
    at_a_sink,
    casts,
    converted,
    expected_at_a_sink,
    instants,
    payloads,
    plan_of,
    schema_of,
    without_nulls,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(600)]

FIELDS = ("flag", "small", "big", "double", "text", "at", "day", "price", "list", "home")
SIDED: Mapping[str, tuple[dict[str, str], ...]] = {
    "Cast": ({"spec": "small:string,double:int32,text0:boolean"}, {"spec": "big:float64,flag:int8,at:string,zz:int8"}),
    "ExtractField": ({"field": "home"}, {"field": "text0"}, {"field": "zz"}, {"field": "wrapped"}),
    "Flatten": ({}, {"delimiter": "_"}),
    "HeaderFrom": (
        {"fields": "small,text0", "headers": "a,h", "operation": "copy"},
        {"fields": "at,day,price0", "headers": "t,d,h", "operation": "move"},
    ),
    "HoistField": ({"field": "wrapped"},),
    "InsertField": (
        {"topic.field": "topic", "offset.field": "o", "static.field": "s", "static.value": "x"},
        {"timestamp.field": "ms!", "partition.field": "p?"},
    ),
    "MaskField": ({"fields": "small,text0,flag,at0"}, {"fields": "text", "replacement": "***"}),
    "ReplaceField": ({"exclude": "list,zz", "renames": "small:tiny"}, {"include": "home,text0,small"}),
    "SetSchemaMetadata": ({"schema.name": "other", "schema.version": "3"},),
    "TimestampConverter": (
        {"field": "at", "target.type": "string", "format": PATTERN},
        {"field": "big0", "target.type": "Timestamp"},
        {"field": "day0", "target.type": "unix"},
    ),
}
"""Of keys and of values."""
WHOLE: Mapping[str, tuple[dict[str, str], ...]] = {
    "DropHeaders": ({"headers": "h,a"},),
    "Filter": ({},),
    "InsertHeader": ({"header": "x", "value.literal": "[1,2]"}, {"header": "h", "value.literal": "007"}),
    "RegexRouter": ({"regex": "t(.*)", "replacement": "u$1"},),
    "TimestampRouter": ({"timestamp.format": "yyyyMM"},),
    "ValueToKey": ({"fields": "small,text0"},),
}
PREDICATES = (None, None, None, "RecordIsTombstone", "HasHeaderKey h", "HasHeaderKey a", "TopicNameMatches u.*")
YEARS = {
    "org.apache.kafka.connect.data.Date": (-719_162, 2_932_896),
    "org.apache.kafka.connect.data.Timestamp": (-62_135_596_800_000, 253_402_300_799_999),
}
"""From year 1 to 9999."""
UNWRITTEN = re.compile(rf"{CONVERTER.pattern}|class java.util.Date which is not supported")
"""What JsonConverter cannot write, and a sink is handed: dates without a schema, which are numbers here."""
CHAINS = 240
RECORDS = 10


def test_every_transformation_is_among_them() -> None:
    """All of Kafka's, so that a new one is missed here; Debezium's have a file of their own, and `Sql` is ours."""
    forms = {form.NAME for form in (*catalog.RESHAPINGS, *catalog.WHOLE, catalog.HeaderFrom)}
    assert {*SIDED, *WHOLE} == forms - {"ByLogicalTableRouter", "ExtractNewRecordState"}


def chains(side: str) -> list[tuple[Asked, ...]]:
    """Each transformation alone, and chains of two to four; those of one side have the most."""
    chance = random.Random(side)
    pool = [(f"{name}${side}", config) for name, configs in SIDED.items() for config in configs]
    whole = [(name, config) for name, configs in WHOLE.items() for config in configs]

    def one(name: str, config: dict[str, str]) -> Asked:
        predicate = "RecordIsTombstone" if name == "Filter" else chance.choice(PREDICATES)
        plain = asked(name, predicate, negate=predicate is not None and chance.random() < 0.5)
        return Asked(plain.name, config, plain.predicate, plain.predicate_config, plain.is_negated)

    alone = [(Asked(name, config),) for name, config in (*pool, *whole)]
    longer = [
        tuple(one(*chance.choice(pool if chance.random() < 0.7 else whole)) for _ in range(chance.randrange(2, 5)))
        for _ in range(CHAINS)
    ]
    return alone + longer


def records(side: str, *, has_schemas: bool) -> list[JavaRecord]:
    """Records whose key or value has all fields; of the other, of the times and of the headers some are not there."""
    chance = random.Random(side)
    texts = payloads(RECORDS, 3, *FIELDS)
    if has_schemas:
        texts = [row["value"] for row in converted(plan_of((), schema_of(*FIELDS)), texts)]
    headers = ((("h", b"1"), ("a", b"x")), (), (("h", None),), (("other", b"y"),))
    found = []
    for number, text in enumerate([*texts, None]):
        other = chance.choice([text, texts[0], None])
        key, value = (text, other) if side == "Key" else (other, text)
        found.append(
            JavaRecord(value, key, timestamp=TIMESTAMP_MS + number, offset=number, headers=headers[number % 4])
        )
    return found


@pytest.mark.parametrize("has_schemas", [True, False])
@pytest.mark.parametrize("side", ["Key", "Value"])
def test_chains(java_transforms: JavaTransforms, side: str, *, has_schemas: bool) -> None:
    """Topic, key, value and headers of each record, or that it was dropped, or refused."""
    given = records(side, has_schemas=has_schemas)
    compared = 0
    for chain in chains(side):
        reading = read_transformations(properties(chain), is_sink=True)
        assert reading.findings == (), chain
        steps = [
            JavaStep(each.name, each.config, each.predicate, each.predicate_config or {}, each.is_negated)
            for each in chain
        ]
        java = java_transforms.applied(steps, given, has_schemas=has_schemas, is_sink=True, is_null_defaulted=True)
        found = decoded_at_a_sink(
            reading.steps,
            [(each.key, each.value) for each in given],
            has_schemas=has_schemas,
            stamps=[each.timestamp or 0 for each in given],
            headers=[each.headers for each in given],
        )
        for ours, theirs, record in zip(found, java, given, strict=True):
            if not UNWRITTEN.search(theirs.refusal):
                compared += 1
                told = without_schemas_of_nulls(as_java_says(theirs))
                assert without_nulls(ours) == without_nulls(told), (chain, record, theirs.refusal)
    assert compared > len(chains(side)) * RECORDS // 2


def without_schemas_of_nulls(told: Any) -> Any:
    """A null goes with its neighbours, whatever its schema: a sink is not handed a batch for each."""
    if isinstance(told, str):
        return told
    topic, *halves, headers = told
    return [topic, *(None if isinstance(half, tuple) and half[1] is None else half for half in halves), headers]


def compare(java: JavaTransforms, chain: Chain, *names: str) -> None:
    """Records with these fields, of every odd value, at a sink."""
    given: list[Any] = [row["value"] for row in converted(plan_of((), schema_of(*names)), payloads(20, 5, *names))]
    steps = [JavaStep(each, config) for each, config in chain]
    before = [JavaRecord(value, timestamp=TIMESTAMP_MS) for value in given]
    found = at_a_sink(chain, given, has_schemas=True)
    for row, record in enumerate(java.applied(steps, before, has_schemas=True, is_sink=True, is_null_defaulted=True)):
        expected = expected_at_a_sink(record, has_schemas=True) if not record.refusal else None
        if not UNWRITTEN.search(record.refusal) and not is_beyond(expected):
            assert found.get(row) == expected, (chain, given[row], record.refusal)


def is_beyond(expected: Any) -> bool:
    """What only Java takes: numbers that become infinite, and dates outside of the years 1 to 9999."""
    if expected is None:
        return False
    schema, payload = expected
    for field in schema["fields"]:
        least, most = YEARS.get(field.get("name"), (-math.inf, math.inf))
        value = payload.get(field["field"], 0)
        if value in {"NaN", "Infinity", "-Infinity"} or (math.isfinite(most) and not least <= value <= most):
            return True
    return False


@pytest.mark.parametrize("target", TARGETS)
def test_casts(java_transforms: JavaTransforms, target: str) -> None:
    """The same as at sources."""
    for chain, name in casts(target):
        compare(java_transforms, chain, name)


@pytest.mark.parametrize("target", INSTANTS)
def test_instants(java_transforms: JavaTransforms, target: str) -> None:
    """The same as at sources."""
    for chain, name in instants(target):
        compare(java_transforms, chain, name)
