"""Where validation differs from Kafka Connect's on purpose, and what it alone can say."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from service.herder.errors import BadRequestError
from service.validation.infos import ConfigInfos, ConfigValueInfo
from service.validation.validator import Validation

Properties = Mapping[str, str | None]
PACKAGE = "org.apache.kafka.connect.transforms"
SOURCE = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "file": "f"}
SINK = {"name": "c", "connector.class": "FileStreamSink", "topics": "t", "file": "f"}
WORKER = {"key.converter": "string", "value.converter": "json", "group.id": "connect-cluster"}
JAAS = "producer.override.sasl.jaas.config"


def answered(config: Properties, plugin: str | None = None) -> ConfigInfos:
    """What a worker of ours answers."""
    return Validation(WORKER).validate(config, plugin).infos


def errors(config: Properties) -> dict[str, tuple[str, ...]]:
    """Texts by key, of the keys that have any."""
    return {info.value.name: info.value.errors for info in answered(config).configs if info.value.errors}


def value(config: Properties, key: str) -> ConfigValueInfo:
    """One entry's value."""
    return next(info.value for info in answered(config).configs if info.value.name == key)


def test_a_config_without_class_is_refused_where_the_path_names_none() -> None:
    """As a client's mistake."""
    with pytest.raises(BadRequestError, match="Connector config contains no connector type"):
        answered({"name": "c"})


@pytest.mark.parametrize(
    "name", ["Nope", "no.such.module:Class", "json:NoSuchClass", "json:loads", "json:JSONDecoder", ":", "."]
)
def test_an_unknown_class_is_a_clients_mistake(name: str) -> None:
    """Connect answers 500."""
    with pytest.raises(BadRequestError):
        answered({"connector.class": name})


def test_a_class_that_contradicts_the_path_is_refused() -> None:
    """With the texts as they were given; a trailing Connector does not count."""
    with pytest.raises(BadRequestError) as refusal:
        answered({**SINK}, "FileStreamSource")
    assert str(refusal.value) == "Included connector type FileStreamSink does not match request type FileStreamSource"
    full = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    assert answered({**SOURCE, "connector.class": full}, "FileStreamSource").error_count == 0
    with pytest.raises(BadRequestError):
        answered({**SOURCE}, full)


def test_exactly_once_can_be_demanded() -> None:
    """It is there; only a connector that has given it up cannot have it."""
    demanded = {**SOURCE, "exactly.once.support": "REQUIRED"}
    assert errors(demanded) == {}
    found = errors({**demanded, "delivery.guarantee": "at_least_once"})
    assert found == {
        "exactly.once.support": (
            "The connector does not support exactly-once semantics with the provided configuration.",
        )
    }


def test_a_boundary_of_the_connectors_own_is_refused() -> None:
    """With Connect's text."""
    found = errors({**SOURCE, "transaction.boundary": "CONNECTOR"})
    assert "connector-defined transaction boundaries" in found["transaction.boundary"][0]


@pytest.mark.parametrize("key", ["transforms.a.regex", "predicates.p.pattern"])
def test_a_wrong_regular_expression_is_told(key: str) -> None:
    """In the words of this platform, behind Connect's."""
    config = {
        **SOURCE,
        "transforms": "a",
        "transforms.a.type": f"{PACKAGE}.RegexRouter",
        "transforms.a.regex": "x",
        "transforms.a.replacement": "y",
        "predicates": "p",
        "predicates.p.type": f"{PACKAGE}.predicates.TopicNameMatches",
        "predicates.p.pattern": "x",
    }
    (text,) = errors({**config, key: "("})[key]
    short = key.rpartition(".")[2]
    assert text.startswith(f"Invalid value ( for configuration {short}: Invalid regex: ")
    del config[key]
    assert len(errors(config)[key]) == 2


@pytest.mark.parametrize("pattern", [r"\p{L}+", "(?<name>a)", r"\Qa.b(\E", r"[a-z&&[^b]]", r"(?i)a"])
def test_expressions_of_java_are_no_mistakes(pattern: str) -> None:
    """They are carried out as Java would."""
    config = {
        **SOURCE,
        "transforms": "a",
        "transforms.a.type": "RegexRouter",
        "transforms.a.regex": pattern,
        "transforms.a.replacement": "y",
    }
    assert errors(config) == {}


@pytest.mark.parametrize("pattern", ["a*+", "(?!a)b", r"(a)\1"])
def test_expressions_without_a_bound_in_time_are_refused(pattern: str) -> None:
    """The finding says what is missing, instead of a task that fails or a worker that hangs."""
    config = {
        **SOURCE,
        "transforms": "a",
        "transforms.a.type": "RegexRouter",
        "transforms.a.regex": pattern,
        "transforms.a.replacement": "y",
    }
    (text,) = errors(config)["transforms.a.regex"]
    assert "cannot be had in linear time" in text


def test_a_predicate_that_is_not_there_is_found_before_the_start() -> None:
    """Connect would fail the task."""
    config = {
        **SOURCE,
        "transforms": "a",
        "transforms.a.type": f"{PACKAGE}.HoistField$Value",
        "transforms.a.field": "x",
        "transforms.a.predicate": "p",
    }
    assert list(errors(config)) == ["transforms.a.predicate"]
    there = {**config, "predicates": "p", "predicates.p.type": f"{PACKAGE}.predicates.RecordIsTombstone"}
    assert errors(there) == {}


def test_an_insertion_of_nothing_is_found_before_the_start() -> None:
    """Connect would fail the task."""
    config = {**SOURCE, "transforms": "a", "transforms.a.type": f"{PACKAGE}.InsertField$Value"}
    assert "at least one field to insert" in errors(config)["transforms.a.type"][0]


def test_transformations_that_do_not_fit_are_found_before_the_start() -> None:
    """The lines of a file have no fields; Connect would fail the task at the first record."""
    config = {
        **SOURCE,
        "transforms": "a",
        "transforms.a.type": f"{PACKAGE}.ExtractField$Value",
        "transforms.a.field": "x",
    }
    assert list(errors(config)) == ["transforms.a.type"]
    hoisted = {**config, "transforms": "h,a", "transforms.h.type": f"{PACKAGE}.HoistField$Value"}
    assert errors({**hoisted, "transforms.h.field": "x"}) == {}
    assert list(errors({**hoisted, "transforms.h.field": "y"})) == ["transforms.a.field"]


def test_settings_of_an_inherited_converter_are_checked_too() -> None:
    """They are used, so a wrong one is an error; it counts once."""
    config = {**SOURCE, "value.converter.schemas.enable": "maybe"}
    assert list(errors(config)) == ["value.converter.schemas.enable"]
    assert answered(config).error_count == 1


def test_short_words_of_converters_are_values() -> None:
    """They are no Java classes, and are shown as they are."""
    assert value({**SOURCE}, "key.converter").value == "string"
    assert (
        value(
            {**SOURCE, "key.converter": "avro", "key.converter.schema.registry.url": "http://r:1"}, "key.converter"
        ).errors
        == ()
    )


@pytest.mark.parametrize(
    ("wanted", "count"),
    [("4.1.1", 0), ("latest", 0), ("[4.0,5.0)", 0), ("(4.1.1,5]", 2), ("9.9", 2), ("[", 1), ("[,]", 0)],
)
def test_a_version_can_be_demanded(wanted: str, count: int) -> None:
    """Another one is an error on the class and on the version; a range that is none on the version alone."""
    assert answered({**SOURCE, "connector.plugin.version": wanted}).error_count == count


def test_unknown_keys_are_warnings() -> None:
    """Nothing is shown of them, as in Connect."""
    validated = Validation(WORKER).validate({**SOURCE, "zzz": "1", "task.max": "2"})
    assert validated.infos.error_count == 0
    assert {finding.key for finding in validated.warnings} == {"zzz", "task.max"}
    assert "zzz" not in {info.value.name for info in validated.infos.configs}


def test_keys_of_transformations_that_nothing_reads_are_warnings() -> None:
    """Of an alias that is not in the list, and unknown ones of an alias that is."""
    config = {
        **SOURCE,
        "transforms": "a",
        "transforms.a.type": "RegexRouter",
        "transforms.a.regex": "x",
        "transforms.a.replacement": "y",
        "transforms.a.replacements": "z",
        "transforms.b.type": "RegexRouter",
        "predicates.p.type": "RecordIsTombstone",
    }
    validated = Validation(WORKER).validate(config)
    assert validated.infos.error_count == 0
    told = {finding.key: finding.message for finding in validated.warnings}
    assert set(told) == {"transforms.a.replacements", "transforms.b.type", "predicates.p.type"}
    assert "did you mean 'transforms.a.replacement'" in told["transforms.a.replacements"]


def test_providers_of_a_connectors_own_are_left_out() -> None:
    """They are the worker's to name."""
    config = {**SOURCE, "config.providers": "x", "config.providers.x.class": "y"}
    assert answered(config).error_count == 0


def test_secrets_are_hidden() -> None:
    """Passwords of connectors, of clients, and what is under a prefix."""
    config = {
        "name": "h",
        "connector.class": "HttpSource",
        "topic": "t",
        "http.url": "http://h/",
        "http.auth.password": "s3cret-1",
        "http.header.authorization": "s3cret-2",
        JAAS: 'x.PlainLoginModule required username="u" password="s3cret-3";',
    }
    answer = answered(config)
    assert "s3cret" not in repr(answer)
    shown = {info.value.name: info.value.value for info in answer.configs}
    assert shown["http.auth.password"] == shown["http.header.authorization"] == shown[JAAS] == "[hidden]"


def test_a_wrong_override_counts_once() -> None:
    """And names why."""
    config = {
        **SOURCE,
        "producer.override.acks": "1",
        "producer.override.compression.type": "zip",
        "consumer.override.request.timeout.ms": "soon",
        "producer.override.linger.ms": "5",
    }
    found = errors(config)
    assert set(found) == {
        "producer.override.acks",
        "producer.override.compression.type",
        "consumer.override.request.timeout.ms",
    }
    assert re.search(
        "may not be overridden in the connector configuration: exactly-once", found["producer.override.acks"][0]
    )
    assert answered(config).error_count == 3


def test_a_contract_is_validated_with_the_rest() -> None:
    """As far as it is at hand."""
    assert list(errors({**SOURCE, "contract.schema": "{"})) == ["contract.schema"]
    assert list(errors({**SOURCE, "contract.schema": "file:/nowhere.avsc"})) == ["contract.schema"]


def test_a_sink_in_the_workers_group_by_override_counts_once() -> None:
    """One entry for the key, where Connect shows two."""
    config = {**SINK, "consumer.override.group.id": "connect-cluster"}
    (text,) = errors(config)["consumer.override.group.id"]
    assert text == "Consumer group connect-cluster conflicts with Connect worker group connect-cluster"
    assert answered(config).error_count == 1


def test_an_encoding_that_is_not_supported_is_an_error_of_its_key() -> None:
    """Connect takes any text and fails at the first record, or writes what no other worker reads."""
    config = {**SOURCE, "value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    key = "value.converter.converter.encoding"
    assert answered({**config, key: "utf-8"}).error_count == 0
    message = (
        "Invalid value x for configuration converter.encoding: Expected UTF-8, the only encoding that is supported"
    )
    assert errors({**config, key: "x"}) == {key: (message,)}
    assert answered({**config, key: "x"}).error_count == 1
