"""Reading a connector's whole config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fetchers.sdk import Severity
from service.config.definition import ConnectorDefinition, read_definition
from spark_batch.coercion import TYPELESS, Coerce
from spark_batch.plan import ConverterKind, PayloadFormat, Rule

WORKER = {"key.converter": "string", "value.converter": "json"}
FILE = {"name": "lines", "connector.class": "FileStreamSource", "topic": "t", "file": "/tmp/x"}
AVRO_CLASS = "io.confluent.connect.avro.AvroConverter"
JSON_CLASS = "org.apache.kafka.connect.json.JsonConverter"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
KEEP = {"contract.schema": SCHEMA, "contract.unknown.fields": "keep"}
REGISTRY = {"value.converter.schema.registry.url": "http://registry:1"}


def defined(properties: Mapping[str, str], *, worker: Mapping[str, str] = WORKER) -> ConnectorDefinition:
    """The definition of a config that must be right."""
    reading = read_definition(properties, worker=worker)
    assert reading.definition is not None, reading.findings
    return reading.definition


def errors(properties: Mapping[str, str], *, worker: Mapping[str, str] = WORKER) -> dict[str, str]:
    """Message of each error by key."""
    reading = read_definition(properties, worker=worker)
    assert reading.definition is None
    return {finding.key: finding.message for finding in reading.findings if finding.is_error}


def warnings(properties: Mapping[str, str], *, worker: Mapping[str, str] = WORKER) -> dict[str, str]:
    """Message of each warning by key."""
    found = read_definition(properties, worker=worker).findings
    return {finding.key: finding.message for finding in found if finding.severity is Severity.WARNING}


def test_all_findings_come_at_once() -> None:
    """Of the common keys, the fetcher's own, the converters and the contract's file."""
    found = errors(
        {
            "name": "x",
            "connector.class": "FileStreamSource",
            "tasks.max": "none",
            "errors.tolerance": "some",
            "batch.records.max": "0",
            "value.converter": "proto",
            "contract.schema": "file:/nowhere/schema.avsc",
        }
    )
    assert {
        "tasks.max",
        "errors.tolerance",
        "batch.records.max",
        "topic",
        "value.converter",
        "contract.schema",
    } <= set(found)
    assert found["tasks.max"] == "Invalid value none for configuration tasks.max: Not a number of type INT"
    assert found["topic"] == 'Missing required configuration "topic" which has no default value.'


@pytest.mark.parametrize(
    ("hiding", "hidden", "told"),
    [
        ({"transforms": "a", "transforms.a.type": "Nope"}, {"contract.schema": '{"type":"record"}'}, "contract.schema"),
        ({"tasks.max": "x"}, {"contract.schema": SCHEMA, "key.fields": "nope"}, "key.fields"),
        ({"topic": ""}, {"contract.schema": SCHEMA, "timestamp.field": "nope"}, "timestamp.field"),
        ({"name": ""}, {"contract.schema": SCHEMA, "dedupe.fields": "a.b"}, "dedupe.fields"),
        ({"key.converter": "proto"}, {"value.converter": JSON_CLASS} | KEEP, "contract.unknown.fields"),
        ({}, {"value.converter": AVRO_CLASS} | KEEP, "contract.unknown.fields"),
    ],
)
def test_no_key_that_is_refused_hides_what_is_wrong_between_others(
    hiding: dict[str, str], hidden: dict[str, str], told: str
) -> None:
    """A default or an example stands for it meanwhile."""
    found = errors({**FILE, **hiding, **hidden})
    assert told in found
    assert (set(hiding) - {"transforms"}) <= set(found)


def test_a_refused_key_hides_nothing_that_its_fetcher_says() -> None:
    """Also one that must be given."""
    source = {"name": "h", "connector.class": "HttpSource", "topic": "t", "http.auth.type": "basic"}
    for wrong in ({"http.url": "ftp://x"}, {}):
        assert {"http.url", "http.auth.user", "http.auth.password"} == set(errors({**source, **wrong}))


@pytest.mark.parametrize(
    "properties",
    [
        {"contract.schema": "file:/nowhere.avsc", "key.fields": "a", "value.converter": "avro"} | REGISTRY,
        {"value.converter": "proto", "contract.schema": SCHEMA, "contract.unknown.fields": "keep"},
        {"transforms": "a", "transforms.a.type": "Nope", "contract.schema": SCHEMA},
    ],
)
def test_what_only_follows_from_a_refused_key_is_not_told(properties: dict[str, str]) -> None:
    """Once that is mended, it may be right."""
    assert len(errors({**FILE, **properties})) == 1


def test_of_a_contract_the_value_seen_is_shown_and_the_place_in_it_told(tmp_path: Path) -> None:
    """The text or the file, as it was written."""
    path = tmp_path / "s.avsc"
    path.write_text('{"type":"record"}', encoding="utf-8")
    for value in ('{"type":"record"}', f"file:{path}"):
        (found,) = read_definition({**FILE, "contract.schema": value}, worker=WORKER).findings
        assert (found.key, found.value) == ("contract.schema", value)
        assert found.message.endswith("contract.schema: schema: nothing; Expected a name by Avro's rules")


def test_an_unknown_class_names_the_known_ones() -> None:
    """Together with what is wrong with the common keys."""
    found = errors({"connector.class": "FielStreamSource"})
    assert "FileStreamSource" in found["connector.class"]
    assert "name" in found
    assert set(errors({})) == {"name", "connector.class"}


@pytest.mark.parametrize("target", ["no.such.module:Class", "json:NoSuchClass"])
def test_a_class_of_ones_own_that_cannot_be_loaded_is_a_finding(target: str) -> None:
    """Not a traceback."""
    assert "could not be found" in errors({"name": "x", "connector.class": target})["connector.class"]


def test_unknown_keys_are_warnings_that_name_the_nearest() -> None:
    """Connect's own keys and free prefixes are no strangers."""
    found = warnings(
        {
            **FILE,
            "task.max": "1",
            "zzz": "1",
            "transforms": "a",
            "transforms.a.type": "x",
            "producer.override.linger.ms": "5",
            "tasks.max.enforce": "true",
        }
    )
    assert set(found) == {"task.max", "zzz"}
    assert found["task.max"] == "Unknown key; did you mean 'tasks.max'?"


def test_control_characters_in_a_name_are_refused() -> None:
    """With Connect's words."""
    message = errors({**FILE, "name": "a\x00b"})["name"]
    assert "control sequences but had the following ASCII chars: 0" in message


def test_no_break_spaces_and_accents_in_a_name_are_fine() -> None:
    """Connect refuses ISO control characters only."""
    assert defined({**FILE, "name": "é\u00a0ü"}).name == "é\u00a0ü"


def test_a_connector_without_converter_inherits_the_workers_with_its_settings() -> None:
    """The class and its prefixed keys, as in Connect."""
    worker = {"key.converter": "string", "value.converter": JSON_CLASS, "value.converter.schemas.enable": "false"}
    converter = defined(FILE, worker=worker).value_converter
    assert (converter.spec.kind, converter.spec.is_schema_enveloped) == (ConverterKind.JSON, False)
    assert converter.class_name == JSON_CLASS


def test_a_connector_with_its_own_converter_inherits_no_settings() -> None:
    """Connect's JsonConverter then has schemas on again, our short word off."""
    worker = {"key.converter": "string", "value.converter": JSON_CLASS, "value.converter.schemas.enable": "false"}
    assert defined({**FILE, "value.converter": JSON_CLASS}, worker=worker).value_converter.spec.is_schema_enveloped
    assert not defined({**FILE, "value.converter": "json"}, worker=worker).value_converter.spec.is_schema_enveloped


def test_a_prefixed_setting_of_the_connector_wins_over_the_inherited() -> None:
    """Key by key."""
    worker = {"key.converter": "string", "value.converter": JSON_CLASS, "value.converter.schemas.enable": "false"}
    definition = defined({**FILE, "value.converter.schemas.enable": "true"}, worker=worker)
    assert definition.value_converter.spec.is_schema_enveloped


def test_the_misprint_schema_enable_is_taken_for_what_it_means() -> None:
    """The seed book prints it; the correct key wins where both are given."""
    properties = {**FILE, "value.converter": JSON_CLASS, "value.converter.schema.enable": "false"}
    assert not defined(properties).value_converter.spec.is_schema_enveloped
    assert "schemas.enable" in warnings(properties)["value.converter.schema.enable"]
    both = {**properties, "value.converter.schemas.enable": "true"}
    assert defined(both).value_converter.spec.is_schema_enveloped


def test_schemas_enable_is_true_or_false() -> None:
    """Anything else is a finding under its own key."""
    found = errors({**FILE, "value.converter": JSON_CLASS, "value.converter.schemas.enable": "maybe"})
    assert "either true or false" in found["value.converter.schemas.enable"]


def test_avro_needs_a_registry_from_anywhere() -> None:
    """The converter's own, the connector's, or the worker's."""
    properties = {**FILE, "value.converter": AVRO_CLASS}
    assert "value.converter.schema.registry.url" in errors(properties)
    own = {**properties, "value.converter.schema.registry.url": "http://own:1"}
    by_worker = defined(properties, worker={**WORKER, "schema.registry.url": "http://worker:1"})
    for definition in (defined(own), by_worker):
        assert definition.value_converter.spec.kind is ConverterKind.AVRO
        assert definition.value_converter.registry is not None


def test_the_plan_says_what_the_config_says() -> None:
    """Contract, rules in the order of their names, key, timestamp, de-duplication, sizes."""
    plan = defined(
        {
            **FILE,
            "contract.schema": SCHEMA,
            "contract.rules.b": "a > 1",
            "contract.rules.a": "a < 9",
            "key.fields": "a",
            "dedupe.fields": "a",
            "record.bytes.max": "77",
        }
    ).plan(SCHEMA)
    assert plan.contract is not None
    assert plan.contract.rules == (Rule("a", "a < 9"), Rule("b", "a > 1"))
    assert (plan.key_fields, plan.dedupe_fields, plan.record_bytes_max) == (("a",), ("a",), 77)
    assert plan.payload_format is PayloadFormat.TEXT


def test_what_is_wrong_with_the_contract_is_found_without_spark() -> None:
    """An invalid schema, a key field it does not have."""
    assert "contract.schema" in errors({**FILE, "contract.schema": "{"})
    assert "key.fields" in errors({**FILE, "contract.schema": SCHEMA, "key.fields": "nope"})


def test_a_contract_in_the_registry_is_looked_up_later() -> None:
    """Its subject and version are read here."""
    source = defined({**FILE, "contract.schema": "registry:things-value:3"}).contract_source
    assert source is not None
    assert (source.subject, source.version, source.text) == ("things-value", "3", None)


@pytest.mark.parametrize("value", ["registry:", "registry::3", "registry:s:newest"])
def test_a_registry_contract_without_subject_or_with_a_false_version_is_refused(value: str) -> None:
    """At once, not when the task starts."""
    assert "contract.schema" in errors({**FILE, "contract.schema": value})


def test_a_contract_in_a_file_is_read(tmp_path: Path) -> None:
    """As UTF-8."""
    path = tmp_path / "s.avsc"
    path.write_text(SCHEMA, encoding="utf-8")
    source = defined({**FILE, "contract.schema": f"file:{path}"}).contract_source
    assert source is not None
    assert source.text == SCHEMA


def test_secrets_are_masked_in_findings() -> None:
    """A wrong value of a secret is not told."""
    reading = read_definition(
        {"name": "m", "connector.class": "MixpanelSource", "api_secret": "", "from_date": "22.3.2016 s"}, worker=WORKER
    )
    assert all(finding.value in {None, "[hidden]"} for finding in reading.findings if finding.key == "api_secret")


@pytest.mark.parametrize("key", ["transforms", "predicates"])
def test_what_is_not_built_is_refused_and_not_ignored(key: str) -> None:
    """A transformation left out silently would change the records."""
    properties = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "file": "f", key: "a"}
    reading = read_definition(properties, worker={"key.converter": "string", "value.converter": "json"})
    assert reading.definition is None
    assert [finding.key for finding in reading.findings if finding.is_error] == [f"{key}.a.type"]


@pytest.mark.parametrize("topic", ["a b", "ä", "a\ud800", ".", "..", "t" * 250])
def test_a_topic_that_kafka_would_not_make_is_refused(topic: str) -> None:
    """Before it is asked for; that of the dead letters too, which has the connector's name unless it is given."""
    assert errors({**FILE, "topic": topic}).keys() == {"topic"}
    letters = "errors.deadletterqueue.topic.name"
    assert errors({**FILE, "errors.tolerance": "all", letters: topic}).keys() == {letters}
    defined({**FILE, "name": "not a topic", "errors.tolerance": "all", letters: "t" * 249})
    assert errors({**FILE, "name": "not a topic", "errors.tolerance": "all"}).keys() == {letters}


@pytest.mark.parametrize("factor", ["40000", "-2"])
def test_more_replicas_than_kafka_can_count_are_refused(factor: str) -> None:
    """Its number of them has 16 bits; -1 stands for the broker's default."""
    key = "errors.deadletterqueue.topic.replication.factor"
    assert errors({**FILE, key: factor}).keys() == {key}
    defined({**FILE, key: "-1"})


def test_texts_are_taken_for_values_by_default_only_where_the_format_has_no_types() -> None:
    """CSV has none; whatever the format, the config has the last word."""
    http = {"name": "h", "connector.class": "HttpSource", "topic": "t", "http.url": "http://127.0.0.1/x"}
    http |= {"contract.schema": SCHEMA, "http.offset.mode": "snapshot"}
    csv = http | {"http.format": "csv"}
    for properties, wanted in (
        (http, ()),
        (csv, TYPELESS),
        (csv | {"contract.coerce": ""}, ()),
        (csv | {"contract.coerce": "numbers,enums"}, (Coerce.NUMBERS, Coerce.ENUMS)),
        (http | {"contract.coerce": "numbers"}, (Coerce.NUMBERS,)),
    ):
        contract = defined(properties).plan(SCHEMA).contract
        assert contract is not None
        assert contract.coerce == frozenset(wanted)
    assert "numbers, instants, booleans, enums, empty" in errors(csv | {"contract.coerce": "number"})["contract.coerce"]


JDBC = {
    "name": "tables",
    "connector.class": "JdbcSource",
    "connection.url": "jdbc:postgresql://db/x",
    "mode": "bulk",
    "topic.prefix": "shop.",
}
CDC = {"name": "c", "database.hostname": "h", "database.user": "u", "topic.prefix": "shop"}
ILLEGAL = "bad topic/"


@pytest.mark.parametrize(
    "properties",
    [
        JDBC,
        {**CDC, "connector.class": "PostgresCdcSource", "database.dbname": "d"},
        {**CDC, "connector.class": "MySqlCdcSource", "database.server.id": "7"},
    ],
    ids=["jdbc", "postgres", "mysql"],
)
def test_what_topics_begin_with_is_refused_where_kafka_would_not_make_them(properties: Mapping[str, str]) -> None:
    """At validation, not when the first row of a table is to be written."""
    defined(properties)
    assert list(errors({**properties, "topic.prefix": ILLEGAL})) == ["topic.prefix"]


@pytest.mark.parametrize(
    ("transformation", "key"),
    [
        ({"type": "org.apache.kafka.connect.transforms.RegexRouter", "regex": "(.*)"}, "replacement"),
        ({"type": "io.debezium.transforms.ByLogicalTableRouter", "topic.regex": "(.*)"}, "topic.replacement"),
        ({"type": "org.apache.kafka.connect.transforms.TimestampRouter"}, "topic.format"),
    ],
    ids=["regex", "logical", "timestamp"],
)
def test_a_router_that_makes_illegal_topics_of_tables_is_refused(transformation: Mapping[str, str], key: str) -> None:
    """Which tables there are is not known yet, but what stands in each name that it makes is."""
    step = {f"transforms.r.{name}": text for name, text in transformation.items()}
    named = "${topic}" if key == "topic.format" else "$1"
    defined({**JDBC, "transforms": "r", **step, f"transforms.r.{key}": f"new.{named}"})
    found = errors({**JDBC, "transforms": "r", **step, f"transforms.r.{key}": f"new/{named}"})
    assert list(found) == [f"transforms.r.{key}"]
    assert "Expected a topic's name" in found[f"transforms.r.{key}"]
