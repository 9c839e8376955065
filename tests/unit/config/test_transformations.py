"""Reading a connector's transformations and predicates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.config.converters import read_header_converter
from service.config.definition import ConnectorDefinition, read_definition
from service.config.transformations import read_transformations
from service.worker.topics import topics_of
from spark_batch.plan import ConversionPlan, PayloadFormat
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
)

PACKAGE = "org.apache.kafka.connect.transforms"
WORKER = {"key.converter": "string", "value.converter": "json"}
FILE = {"name": "lines", "connector.class": "FileStreamSource", "topic": "t", "file": "/tmp/x"}
ROUTER = {
    "transforms": "r",
    "transforms.r.type": "RegexRouter",
    "transforms.r.regex": "(.*)",
    "transforms.r.replacement": "$1-new",
}


def errors(properties: dict[str, str]) -> dict[str, str]:
    """Message of each error by key."""
    return {finding.key: finding.message for finding in read_transformations(properties).findings}


def defined(properties: dict[str, str]) -> ConnectorDefinition:
    """The definition of a config that must be right."""
    reading = read_definition(properties, worker=WORKER)
    assert reading.definition is not None, reading.findings
    return reading.definition


def test_every_key_is_read() -> None:
    """Of all transformations and predicates, in order."""
    properties = {
        "transforms": "i, h,e ,r",
        "transforms.i.type": f"{PACKAGE}.InsertField$Key",
        "transforms.i.topic.field": "a!",
        "transforms.i.timestamp.field": "b?",
        "transforms.i.static.field": "c",
        "transforms.i.static.value": "",
        "transforms.i.replace.null.with.default": "false",
        "transforms.h.type": f"{PACKAGE}.HoistField$Value",
        "transforms.h.field": "f",
        "transforms.h.predicate": "p",
        "transforms.h.negate": "true",
        "transforms.e.type": f"{PACKAGE}.ExtractField$Value",
        "transforms.e.field": "a.`b.c`",
        "transforms.e.field.syntax.version": "V2",
        "transforms.e.predicate": "q",
        "transforms.r.type": f"{PACKAGE}.RegexRouter",
        "transforms.r.regex": "x",
        "transforms.r.replacement": "y",
        "predicates": "p,q",
        "predicates.p.type": f"{PACKAGE}.predicates.TopicNameMatches",
        "predicates.p.pattern": "t.*",
        "predicates.q.type": "RecordIsTombstone",
    }
    insert = InsertField(
        Side.KEY,
        FieldName("a", is_optional=False),
        FieldName("b"),
        FieldName("c"),
        static_value="",
        is_null_defaulted=False,
    )
    reading = read_transformations(properties)
    assert reading.findings == ()
    assert reading.steps == (
        Step("i", insert),
        Step("h", HoistField(Side.VALUE, "f"), TopicNameMatches("t.*"), is_negated=True),
        Step("e", ExtractField(Side.VALUE, ("a", "b.c")), RecordIsTombstone()),
        Step("r", RegexRouter("x", "y")),
    )


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        ({"type": "Nope"}, "type"),
        ({}, "type"),
        ({"type": f"{PACKAGE}.HoistField$Value"}, "field"),
        ({"type": f"{PACKAGE}.InsertField$Value"}, "type"),
        ({"type": f"{PACKAGE}.InsertField$Value", "static.field": "x"}, "static.value"),
        ({"type": f"{PACKAGE}.InsertField$Value", "topic.field": "x", "offset.field": "o"}, "offset.field"),
        ({"type": f"{PACKAGE}.InsertField$Value", "topic.field": "x", "partition.field": "o"}, "partition.field"),
        (
            {"type": f"{PACKAGE}.ExtractField$Value", "field": "a..b", "field.syntax.version": "V2"},
            "field",
        ),
        ({"type": f"{PACKAGE}.HoistField$Value", "field": "x", "predicate": "p"}, "predicate"),
        ({"type": f"{PACKAGE}.HoistField$Value", "field": "x", "negate": "true"}, "type"),
        ({"type": "RegexRouter", "regex": r"\p{IsGreek}", "replacement": "x"}, "regex"),
        ({"type": "RegexRouter", "regex": "x", "replacement": "$7"}, "regex"),
    ],
)
def test_what_is_wrong_is_found(keys: dict[str, str], refused: str) -> None:
    """By the key that is to be mended."""
    properties = {"transforms": "a"} | {f"transforms.a.{key}": value for key, value in keys.items()}
    assert list(errors(properties)) == [f"transforms.a.{refused}"]


@pytest.mark.parametrize(("old", "new"), [("blacklist", "exclude"), ("whitelist", "include")])
def test_keys_that_kafka_has_no_longer_are_refused(old: str, new: str) -> None:
    """Unread they would let through the very fields that were to be left out."""
    keys = {"transforms": "r", "transforms.r.type": f"{PACKAGE}.ReplaceField$Value", f"transforms.r.{old}": "secret"}
    assert f"give transforms.r.{new}" in errors(keys)[f"transforms.r.{old}"]


@pytest.mark.parametrize("side", ["Key", "Value"])
def test_headers_from_fields(side: str) -> None:
    """For sources and sinks; a header for each field."""
    keys = {"type": f"{PACKAGE}.HeaderFrom${side}", "fields": "a", "headers": "b", "operation": "move"}
    properties = {"transforms": "a"} | {f"transforms.a.{key}": value for key, value in keys.items()}
    assert errors(properties) == {}
    assert read_transformations(properties, is_sink=True).findings == ()
    assert list(errors({**properties, "transforms.a.headers": "b,c"})) == ["transforms.a.headers"]


@pytest.mark.parametrize(
    ("converter", "literal", "refused"),
    [
        ("json.JsonConverter", "x", []),
        ("storage.StringConverter", "x", []),
        ("storage.StringConverter", "2024-02-29", ["transforms.a.value.literal"]),
        ("converters.ByteArrayConverter", "x", ["transforms.a.value.literal"]),
        ("storage.SimpleHeaderConverter", "2024-02-29", []),
    ],
)
def test_headers_in_the_form_of_their_converter(converter: str, literal: str, refused: list[str]) -> None:
    """A literal that a converter has no form for is told, by its key; a sink does not write headers."""
    form = read_header_converter({}, {"header.converter": f"org.apache.kafka.connect.{converter}"})
    assert form.findings == ()
    keys = {"type": "InsertHeader", "header": "h", "value.literal": literal}
    properties = {"transforms": "a"} | {f"transforms.a.{key}": value for key, value in keys.items()}
    reading = read_transformations(properties, header_form=form.form)
    assert [each.key for each in reading.findings] == refused
    assert read_transformations(properties, is_sink=True).findings == ()


def test_the_worker_converts_headers_of_connectors_that_name_no_converter() -> None:
    """With the settings that stand beside it; a connector's own converter has its own settings."""
    name = "org.apache.kafka.connect.json.JsonConverter"
    worker = {"header.converter": name, "header.converter.schemas.enable": "false"}
    of_worker = read_header_converter({}, worker).form
    own = read_header_converter({"header.converter": name}, worker).form
    assert of_worker is not None
    assert own is not None
    assert (of_worker.is_schema_enveloped, own.is_schema_enveloped) == (False, True)
    assert read_header_converter({"header.converter": "SimpleHeaderConverter"}, worker).form is None


@pytest.mark.parametrize("name", ["io.confluent.connect.avro.AvroConverter", "org.example.None"])
def test_what_is_no_converter_of_headers(name: str) -> None:
    """Told by the key."""
    assert [each.key for each in read_header_converter({"header.converter": name}, {}).findings] == ["header.converter"]


@pytest.mark.parametrize(("negate", "topic"), [("false", "t"), ("true", "t-new")])
def test_records_without_headers(negate: str, topic: str) -> None:
    """A predicate that asks for a header is false of all of them, and its negation true."""
    properties = {
        **ROUTER,
        "transforms.r.predicate": "p",
        "transforms.r.negate": negate,
        "predicates": "p",
        "predicates.p.type": "HasHeaderKey",
        "predicates.p.name": "h",
    }
    plan = defined({**FILE, **properties}).plan(None)
    assert [step.predicate for step in plan.transformations] == [HasHeaderKey("h")]
    assert plan.applied_steps().topic == topic


def test_sinks_know_partition_and_offset() -> None:
    """Which are refused for sources, by the config as by the plan."""
    properties = {
        "transforms": "i",
        "transforms.i.type": f"{PACKAGE}.InsertField$Value",
        "transforms.i.partition.field": "p!",
        "transforms.i.offset.field": "o",
    }
    insert = InsertField(Side.VALUE, partition=FieldName("p", is_optional=False), offset=FieldName("o"))
    assert read_transformations(properties, is_sink=True).steps == (Step("i", insert),)
    keys = ["transforms.i.partition.field", "transforms.i.offset.field"]
    assert list(errors(properties)) == keys
    plan = ConversionPlan(PayloadFormat.TEXT, transformations=(Step("i", insert),), topic="t")
    assert [finding.key for finding in plan_findings(plan)] == keys


def test_names_beyond_ascii_are_not_asked_for() -> None:
    """A sink's router may make one, as long as no expression of Java's is asked of it afterwards."""
    made = {**ROUTER, "transforms.r.replacement": "größe"}
    assert read_transformations(made, is_sink=True).findings == ()
    asked = {f"transforms.s.{key.rpartition('.')[2]}": text for key, text in ROUTER.items() if key != "transforms"}
    found = read_transformations({**made, **asked, "transforms": "r,s"}, is_sink=True)
    assert [finding.key for finding in found.findings] == ["transforms.r.replacement"]


def test_topics_that_come_out_are_made() -> None:
    """With the settings that their own names have; the one that no record reaches is not made."""
    creation = {
        "topic.creation.groups": "new",
        "topic.creation.new.include": ".*-new",
        "topic.creation.new.partitions": "7",
    }
    found = topics_of(defined({**FILE, **ROUTER, **creation}))
    assert [(topic.name, topic.partitions) for topic in found] == [("t-new", 7)]
    tombstones = {
        "transforms.r.predicate": "p",
        "transforms.r.negate": "true",
        "predicates": "p",
        "predicates.p.type": "RecordIsTombstone",
    }
    found = topics_of(defined({**FILE, **ROUTER, **tombstones}))
    assert [topic.name for topic in found] == ["t-new", "t"]


def test_plans_without_transformations_do_not_differ_by_topic() -> None:
    """They share what is compiled of them."""
    assert defined(FILE).plan(None) == defined({**FILE, "topic": "u"}).plan(None)
    assert defined({**FILE, **ROUTER}).plan(None).topic == "t"


def test_topics_of_every_header_are_made_and_those_of_dropped_records_are_not() -> None:
    """Whatever headers records have, where they may end is there before the first of them."""
    marked = {
        "predicates": "p,q",
        "predicates.p.type": "HasHeaderKey",
        "predicates.p.name": "h",
        "predicates.q.type": "RecordIsTombstone",
    }
    definition = defined({**FILE, **ROUTER, **marked, "transforms.r.predicate": "p"})
    assert {topic.name for topic in topics_of(definition)} == {"t", "t-new"}
    filtered = {"transforms": "f", "transforms.f.type": "Filter"}
    assert topics_of(defined({**FILE, **filtered})) == []
    routed = {"transforms": "f,r", "transforms.f.type": "Filter", "transforms.f.predicate": "q"}
    assert {topic.name for topic in topics_of(defined({**FILE, **ROUTER, **marked, **routed}))} == {"t-new"}
    timed = {"transforms": "r", "transforms.r.type": "TimestampRouter"}
    assert topics_of(defined({**FILE, **timed})) == []


@pytest.mark.parametrize("is_sink", [False, True])
def test_every_example_of_the_guide_is_read_without_a_finding(*, is_sink: bool) -> None:
    """As many steps as it names, at sources and at sinks."""
    guide = (Path(__file__).parents[3] / "docs/guides/transformations.md").read_text()
    blocks = re.findall(r"```properties\n(.*?)```", guide, re.DOTALL)
    examples = [dict(line.split("=", 1) for line in block.splitlines()) for block in blocks]
    readings = [read_transformations(example, is_sink=is_sink) for example in examples]
    assert len(examples) > 3
    assert [finding for reading in readings for finding in reading.findings] == []
    assert [len(reading.steps) for reading in readings] == [
        example["transforms"].count(",") + 1 for example in examples
    ]
