"""Transformations in columns: what Kafka Connect's classes of the same names make of the same records."""

from __future__ import annotations

import json

import pytest

from spark_batch.outcome import Reason, Stage
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.plan_findings import plan_findings
from spark_batch.transforms.catalog import (
    ExtractField,
    FieldName,
    HoistField,
    InsertField,
    RecordIsTombstone,
    RegexRouter,
    Side,
    Step,
    TopicNameMatches,
)
from tests.spark.engines import Engine, rows, table

JSON = ConverterSpec(ConverterKind.JSON)
ENVELOPED = ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)
STRING = ConverterSpec(ConverterKind.STRING)
AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=7)
FRAME = b"\x00\x00\x00\x00\x07"
VALUE, KEY = Side.VALUE, Side.KEY
MAKE_MAP = Step("MakeMap", HoistField(VALUE, "line"))
SOURCE = Step("InsertSource", InsertField(VALUE, static=FieldName("data_source"), static_value="test-file-source"))
SCHEMA = {
    "type": "record",
    "name": "org.example.User",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"], "default": None},
        {
            "name": "home",
            "type": {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "string"}]},
        },
    ],
}
USER = b'{"name":"J","age":7,"home":{"city":"K"}}'
STAMP = b'{"type":"int64","optional":true,"name":"org.apache.kafka.connect.data.Timestamp","version":1,"field":"at"}'


def plan_of(*steps: Step, value: ConverterSpec = JSON, is_user: bool = False) -> ConversionPlan:
    """A plan of these steps over lines, or over users."""
    contract = Contract(json.dumps(SCHEMA)) if is_user else None
    form = PayloadFormat.JSON if is_user else PayloadFormat.TEXT
    return ConversionPlan(form, contract, value_converter=value, transformations=steps, topic="t")


def value_of(engine: Engine, plan: ConversionPlan, payload: bytes | None, key: bytes | None = None) -> object:
    """The value that the plan makes of one record."""
    assert plan_findings(plan) == []
    return engine.convert(plan, table([payload], keys=[key], timestamps=[5])).column("value").to_pylist()[0]


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        (JSON, b'{"line":"foo","data_source":"test-file-source"}'),
        (
            ENVELOPED,
            (
                b'{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"line"},'
                b'{"type":"string","optional":true,"field":"data_source"}],"optional":false},'
                b'"payload":{"line":"foo","data_source":"test-file-source"}}'
            ),
        ),
        (STRING, b"Struct{line=foo,data_source=test-file-source}"),
        (AVRO, FRAME + b"\x06foo\x02\x20test-file-source"),
    ],
)
def test_the_documented_example(engine: Engine, spec: ConverterSpec, written: bytes) -> None:
    """Lines of a file become records with a field for the line and one for its source, in every converter's form.

    Tombstones pass unchanged: without a value there is nothing to transform.
    """
    plan = plan_of(MAKE_MAP, SOURCE, value=spec)
    assert plan_findings(plan) == []
    assert engine.convert(plan, table([b"foo", None])).column("value").to_pylist() == [written, None]


def test_fields_are_inserted_behind_those_of_the_contract(engine: Engine) -> None:
    """Topic, timestamp and static text, in this order; the timestamp as Connect's logical type."""
    insert = InsertField(
        VALUE, FieldName("topic", is_optional=False), FieldName("at"), FieldName("src"), static_value='a"b'
    )
    written = value_of(engine, plan_of(Step("i", insert), value=ENVELOPED, is_user=True), USER)
    assert isinstance(written, bytes)
    assert written.endswith(
        b'{"type":"string","optional":false,"field":"topic"},'
        + STAMP
        + b',{"type":"string","optional":true,"field":"src"}],"optional":false,"name":"org.example.User"},'
        b'"payload":{"name":"J","age":7,"home":{"city":"K"},"topic":"t","at":5,"src":"a\\"b"}}'
    )


def test_suspicious_records_are_transformed_too(engine: Engine) -> None:
    """Whichever path a record takes through the conversion, its page's timestamp is inserted."""
    plan = plan_of(Step("i", InsertField(VALUE, timestamp=FieldName("at"))), is_user=True)
    payloads = [USER, b'{"name":"\\u0041","age":8,"home":{"city":"\\\\ud8"}}', b'{"name":1}', None]
    outcome = engine.convert(plan, table(payloads, timestamps=[1, 2, 3, 4]))
    assert outcome.column("value").to_pylist() == [
        b'{"name":"J","age":7,"home":{"city":"K"},"at":1}',
        b'{"name":"A","age":8,"home":{"city":"\\\\ud8"},"at":2}',
        None,
        None,
    ]
    assert outcome.column("reason").to_pylist() == [None, None, Reason.WRONG_TYPE, None]


@pytest.mark.parametrize(
    ("path", "spec", "written"),
    [
        (("name",), JSON, b'"J"'),
        (("name",), ENVELOPED, b'{"schema":{"type":"string","optional":false},"payload":"J"}'),
        (("name",), STRING, b"J"),
        (("name",), AVRO, FRAME + b"\x02J"),
        (("age",), JSON, b"7"),
        (("age",), ENVELOPED, b'{"schema":{"type":"int32","optional":true},"payload":7}'),
        (("age",), AVRO, FRAME + b"\x02\x0e"),
        (("home",), JSON, b'{"city":"K"}'),
        (("home",), STRING, b"Struct{city=K}"),
        (("home", "city"), JSON, b'"K"'),
    ],
)
def test_a_field_becomes_the_value(engine: Engine, path: tuple[str, ...], spec: ConverterSpec, written: bytes) -> None:
    """With its type, in every converter's form."""
    plan = plan_of(Step("e", ExtractField(VALUE, path)), value=spec, is_user=True)
    assert value_of(engine, plan, USER) == written


def test_a_field_that_is_null(engine: Engine) -> None:
    """JSON writes null, since it has a schema; other converters have no form for it."""
    extract = Step("e", ExtractField(VALUE, ("age",)))
    payload = b'{"name":"J","home":{"city":"K"}}'
    found = [value_of(engine, plan_of(extract, value=spec, is_user=True), payload) for spec in (JSON, AVRO, STRING)]
    assert found == [b"null", None, None]


def test_order_is_that_of_the_config(engine: Engine) -> None:
    """What one transformation makes is what the next one gets."""
    steps = (
        MAKE_MAP,
        SOURCE,
        Step("again", HoistField(VALUE, "all")),
        Step("pick", ExtractField(VALUE, ("all", "data_source"))),
    )
    assert value_of(engine, plan_of(*steps), b"foo") == b'"test-file-source"'
    assert value_of(engine, plan_of(*steps[:3]), b"foo") == b'{"all":{"line":"foo","data_source":"test-file-source"}}'


def test_keys_of_pages(engine: Engine) -> None:
    """A key that comes with its page is text; a record without one stays without."""
    steps = (Step("k", HoistField(KEY, "id")), Step("s", InsertField(KEY, topic=FieldName("of"))))
    plan = ConversionPlan(
        PayloadFormat.TEXT, key_converter=JSON, value_converter=STRING, transformations=steps, topic="t"
    )
    outcome = engine.convert(plan, table([b"v", b"w", None], keys=[b"1", None, b"2"]))
    assert outcome.column("key").to_pylist() == [b'{"id":"1","of":"t"}', None, b'{"id":"2","of":"t"}']
    assert outcome.column("value").to_pylist() == [b"v", b"w", None]


@pytest.mark.parametrize(("spec", "written"), [(JSON, b'"J"'), (STRING, b"J"), (AVRO, FRAME + b"\x02J")])
def test_a_key_of_several_fields_becomes_one(engine: Engine, spec: ConverterSpec, written: bytes) -> None:
    """`key.fields` makes the key, the transformation takes a field of it."""
    fields = ("name", "age") if spec is not STRING else ("name",)
    steps = (Step("k", ExtractField(KEY, ("name",))),) if spec is not STRING else (MAKE_MAP,)
    plan = ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(SCHEMA)),
        key_fields=fields,
        key_converter=spec,
        value_converter=JSON,
        transformations=steps,
        topic="t",
    )
    outcome = engine.convert(plan, table([USER, None], keys=[None, None]))
    assert outcome.column("key").to_pylist() == [written, None]


def test_records_are_routed(engine: Engine) -> None:
    """By the name of the topic, and by what the predicate says; later transformations see the new topic."""
    steps = (
        Step("r", RegexRouter("(t)", "$1-new"), RecordIsTombstone(), is_negated=True),
        MAKE_MAP,
        Step("s", InsertField(VALUE, topic=FieldName("topic")), TopicNameMatches(".*-new")),
    )
    outcome = engine.convert(plan_of(*steps), table([b"v", None]))
    assert outcome.column("topic").to_pylist() == ["t-new", None]
    assert outcome.column("value").to_pylist() == [b'{"line":"v","topic":"t-new"}', None]


def test_rules_see_the_record_before(engine: Engine) -> None:
    """A contract is about what comes in."""
    contract = Contract(json.dumps(SCHEMA), (Rule("old", "age > 6"),))
    steps = (Step("e", ExtractField(VALUE, ("name",))),)
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=JSON, transformations=steps, topic="t")
    outcome = engine.convert(plan, table([USER, USER.replace(b"7", b"6")]))
    assert outcome.column("value").to_pylist() == [b'"J"', None]
    assert outcome.column("reason").to_pylist() == [None, Reason.RULE_FAILED]


def test_objects_without_a_contract(engine: Engine) -> None:
    """Digits and the order of fields stay; an added field takes the place of one that has its name."""
    plan = ConversionPlan(PayloadFormat.JSON, value_converter=JSON, transformations=(SOURCE,), topic="t")
    payloads = [b'{"b":1.10,"a":123456789012345678901}', b'{"data_source":1,"c":null}', b"[1]", b"{", b"{}", None]
    outcome = rows(engine.convert(plan, table(payloads)))
    assert [row.get("value") for row in outcome] == [
        b'{"b":1.10,"a":123456789012345678901,"data_source":"test-file-source"}',
        b'{"data_source":"test-file-source","c":null}',
        None,
        None,
        b'{"data_source":"test-file-source"}',
        None,
    ]
    assert (outcome[2]["stage"], outcome[2]["reason"]) == (Stage.TRANSFORMATION, Reason.WRONG_TYPE)
    assert (outcome[3]["stage"], outcome[3]["reason"]) == (Stage.VALUE_CONVERTER, Reason.MALFORMED_JSON)


def test_a_field_that_an_object_does_not_have(engine: Engine) -> None:
    """The record is rejected: Connect would make a tombstone of it."""
    steps = (Step("e", ExtractField(VALUE, ("a", "b"))),)
    plan = ConversionPlan(PayloadFormat.JSON, value_converter=ENVELOPED, transformations=steps, topic="t")
    outcome = rows(engine.convert(plan, table([b'{"a":{"b":1.0}}', b'{"a":{}}', b'{"a":{"b":null}}'])))
    assert outcome[0]["value"] == b'{"schema":null,"payload":1.0}'
    assert (outcome[1]["stage"], outcome[1]["reason"]) == (Stage.TRANSFORMATION, Reason.MISSING_FIELD)
    assert "value" not in outcome[2]
    assert "reason" not in outcome[2]
