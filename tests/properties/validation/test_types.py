"""ConfigDef's types, and validation of configs nobody would write."""

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.java_numbers import java_double
from service.herder.errors import BadRequestError
from service.validation.types import typed
from service.validation.validator import Validation
from spark_batch.transforms.java_pattern import pattern_doubt

KINDS = ("BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
WORKER = {"key.converter": "string", "value.converter": "json", "group.id": "g"}
PACKAGE = "org.apache.kafka.connect.transforms"
KEYS = (
    "name", "tasks.max", "tasks.max.enforce", "key.converter", "value.converter", "header.converter", "transforms",
    "transforms.a.type", "transforms.a.field", "transforms.a.negate", "transforms.a.predicate", "predicates",
    "predicates.a.type", "predicates.a.pattern", "errors.tolerance", "errors.retry.delay.max.ms", "topics",
    "topics.regex", "errors.deadletterqueue.topic.name", "topic.creation.groups", "topic.creation.a.include",
    "topic.creation.default.partitions", "exactly.once.support", "transaction.boundary", "contract.schema",
    "contract.rules.a", "key.fields", "dedupe.fields", "producer.override.acks", "consumer.override.group.id",
    "producer.override.sasl.jaas.config", "value.converter.schemas.enable", "connector.plugin.version",
    "http.url", "http.header.a", "from_date", "mixpanel.timezone", "topic", "file", "batch.size", "",
)  # fmt: skip
TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "a", "a,a", "0", "-1", "1", "true", "(", "[", "{", "json", "avro", "a:b", f"{PACKAGE}.RegexRouter",
         f"{PACKAGE}.HoistField$Value", f"{PACKAGE}.predicates.TopicNameMatches", "2016-01-01", "http://h/"]
    ),
    st.text(max_size=12),
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("BOOLEAN", " TRUE ", "true"),
        ("INT", "+07", "7"),
        ("INT", "-2147483648", "-2147483648"),
        ("SHORT", "32767", "32767"),
        ("LONG", "9223372036854775807", "9223372036854775807"),
        ("DOUBLE", "1", "1.0"),
        ("DOUBLE", "1e10", "1.0E10"),
        ("DOUBLE", "12345678.5", "1.23456785E7"),
        ("DOUBLE", "0.0001", "1.0E-4"),
        ("DOUBLE", "0.000001", "1.0E-6"),
        ("DOUBLE", "-0.00123", "-0.00123"),
        ("DOUBLE", "NaN", "NaN"),
        ("DOUBLE", "-Infinity", "-Infinity"),
        ("LIST", " a , b c,d ", "a,b c,d"),
        ("LIST", "", ""),
        ("LIST", "a,", "a,"),
        ("CLASS", " x.Y ", "x.Y"),
        ("STRING", " a b ", "a b"),
        ("PASSWORD", "s3cret", "[hidden]"),
    ],
)
def test_texts_are_shown_as_their_type_writes_them(kind: str, text: str, expected: str) -> None:
    """As ``ConfigDef.convertToString`` does."""
    assert typed(kind, text).text == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("BOOLEAN", "yes"),
        ("INT", "1.0"),
        ("INT", "1_000"),
        ("INT", "2147483648"),
        ("INT", ""),
        ("INT", "\u0661"),
        ("SHORT", "32768"),
        ("LONG", "9223372036854775808"),
        ("LONG", "9" * 5000),
        ("DOUBLE", "one"),
        ("DOUBLE", "1,5"),
    ],
)
def test_texts_of_no_value_are_refused(kind: str, text: str) -> None:
    """What Python takes for a number and Java does not, too."""
    read = typed(kind, text)
    assert read.text is None
    assert read.reason


@given(st.sampled_from(KINDS), st.text(max_size=30))
@settings(deadline=None)
def test_a_text_is_either_taken_or_refused(kind: str, text: str) -> None:
    """And what is taken is taken again in the form it is shown in."""
    read = typed(kind, text)
    assert (read.text is None) == (read.reason is not None)
    if read.text is not None:
        assert typed(kind, read.text) == read


@given(st.floats())
@settings(deadline=None)
def test_doubles_keep_their_value(number: float) -> None:
    """In the form of Java's."""
    text = java_double(number)
    assert "." in text or text.endswith(("NaN", "Infinity"))
    assert float(text) == number or isnan(number)


@given(st.text(max_size=30))
@settings(deadline=None)
def test_any_text_is_a_regular_expression_or_not(text: str) -> None:
    """Told without an error."""
    doubt = pattern_doubt(text)
    assert doubt is None or doubt


@given(
    st.sampled_from(["FileStreamSource", "FileStreamSink", "HttpSource", "MixpanelSource"]),
    st.dictionaries(st.sampled_from(KEYS), st.one_of(st.none(), TEXTS), max_size=12),
)
@settings(deadline=None)
def test_any_config_gets_an_answer(plugin: str, config: dict[str, str | None]) -> None:
    """With as many errors as it has texts, but for keys that count once; and each key only once."""
    infos = Validation(WORKER).validate({**config, "connector.class": plugin}, plugin).infos
    names = [info.value.name for info in infos.configs]
    assert len(names) == len(set(names))
    assert (infos.error_count > 0) == bool(infos.errors)
    assert infos.error_count <= len(infos.errors)
    assert {key for key, text in config.items() if text is None} <= {
        info.value.name for info in infos.configs if info.value.errors
    }


@given(st.text(max_size=20))
@settings(deadline=None)
def test_any_class_name_gets_an_answer(name: str) -> None:
    """Also those that look like modules of Python's."""
    with pytest.raises(BadRequestError):
        Validation(WORKER).validate({"connector.class": f"{name}:nothing"})


@pytest.mark.parametrize(
    "text", ["1" * 200_000 + "x", "1" * 100_000 + "." + "1" * 100_000 + "x", '"' + '\\"' * 100_000, "a" * 200_000]
)
def test_long_values_are_read_in_time_linear_to_them(text: str) -> None:
    """An expression with two ways to read a character takes the square, and holds the interpreter meanwhile."""
    assert typed("DOUBLE", text).reason is not None
    config = {**dict.fromkeys(("name", "topic", "file"), "t"), "producer.override.sasl.jaas.config": text}
    infos = Validation(WORKER).validate(config, "FileStreamSource").infos
    assert "its login module must be one of" in " ".join(infos.errors)
