"""Groups of topics: which one a topic belongs to, and what is wrong with them."""

from __future__ import annotations

import pytest

from fetchers.sdk import Severity
from service.config.definition import read_definition
from service.config.topic_creation import TopicCreation, read_topic_creation
from service.validation.validator import Validation
from service.worker.topics import topics_of

DEFAULT = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "-1"}
GROUPS = {
    **DEFAULT,
    "topic.creation.default.retention.ms": "1000",
    "topic.creation.groups": "logs,all",
    "topic.creation.logs.include": r"log-.*, trace\..*",
    "topic.creation.logs.exclude": "log-secret.*",
    "topic.creation.logs.partitions": "7",
    "topic.creation.logs.cleanup.policy": "compact",
    "topic.creation.all.include": "l.*",
}


def creation(properties: dict[str, str]) -> TopicCreation:
    """The groups of a config without findings."""
    reading = read_topic_creation(properties)
    assert reading.findings == ()
    return reading.creation


def test_a_pattern_that_would_never_come_back_is_answered() -> None:
    """The names of topics are looked up on the event loop: Python's engine would hold it for years."""
    groups = creation({**DEFAULT, "topic.creation.groups": "slow", "topic.creation.slow.include": "(a|a)*b,(a+)+c"})
    assert groups.of("a" * 240).name == "default"
    assert groups.of("a" * 240 + "c").name == "slow"


def test_a_pattern_that_cannot_be_bounded_is_a_finding() -> None:
    """And not a group that silently matches nothing."""
    reading = read_topic_creation({"topic.creation.groups": "x", "topic.creation.x.include": "(?!a).*"})
    (finding,) = reading.findings
    assert finding.key == "topic.creation.x.include"
    assert "cannot be had in linear time" in finding.message


@pytest.mark.parametrize(
    ("topic", "group"),
    [
        ("log-a", "logs"),
        ("trace.b", "logs"),
        ("log-secret-1", "all"),
        ("my-log-a", "default"),
        ("trace", "default"),
        ("l", "all"),
    ],
)
def test_the_first_group_that_matches_the_whole_name_wins(topic: str, group: str) -> None:
    """What is excluded goes on to the next."""
    assert creation(GROUPS).of(topic).name == group


def test_what_a_group_does_not_say_the_default_says() -> None:
    """Counts and settings, one by one."""
    found = creation(GROUPS).of("log-a")
    assert (found.partitions, found.replication) == (7, -1)
    assert found.settings == {"cleanup.policy": "compact", "retention.ms": "1000"}


def test_without_keys_nothing_is_said() -> None:
    """Then the worker decides."""
    found = creation({}).of("t")
    assert (found.partitions, found.replication, found.settings) == (None, None, {})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("default.partitions", "0", "Number of partitions must be positive, or -1 to use the broker's default"),
        ("default.partitions", "many", "Number of partitions must be positive"),
        ("default.partitions", "-2", "Number of partitions must be positive"),
        ("default.replication.factor", "0", "Replication factor must be positive and not larger than the number"),
        ("default.replication.factor", "40000", "Replication factor must be positive"),
        ("logs.include", "log-.*,(", "Syntax error in regular expression: "),
        ("logs.exclude", "[", "Syntax error in regular expression: "),
    ],
)
def test_wrong_values_are_errors_on_their_keys(key: str, value: str, text: str) -> None:
    """Found before any topic is to be made."""
    (finding,) = read_topic_creation({**GROUPS, f"topic.creation.{key}": value}).findings
    assert (finding.key, finding.is_error) == (f"topic.creation.{key}", True)
    assert text in finding.message


def test_keys_of_a_group_that_nobody_named_are_warned_of() -> None:
    """And naming the default group, too."""
    found = read_topic_creation({"topic.creation.groups": "default", "topic.creation.logs.include": "x"}).findings
    assert {finding.key: finding.severity for finding in found} == {
        "topic.creation.logs.include": Severity.WARNING,
        "topic.creation.groups": Severity.WARNING,
    }


def test_validation_counts_them() -> None:
    """One for each key."""
    config = {
        "name": "c",
        "connector.class": "FileStreamSource",
        "topic": "t",
        "topic.creation.default.partitions": "0",
    }
    infos = Validation({"key.converter": "string", "value.converter": "json"}).validate(config).infos
    assert infos.error_count == 1


def test_a_connectors_topic_is_made_by_its_group() -> None:
    """What nobody says is left to the worker and the broker."""
    source = {"name": "c", "connector.class": "FileStreamSource", "file": "f"}
    worker = {"key.converter": "string", "value.converter": "json"}
    for topic, partitions, replication in (("log-a", 7, -1), ("other", 3, -1)):
        definition = read_definition({**source, **GROUPS, "topic": topic}, worker=worker).definition
        assert definition is not None
        (made,) = topics_of(definition)
        assert (made.name, made.partitions, made.replication) == (topic, partitions, replication)
        assert made.config["retention.ms"] == "1000"
    plain = read_definition({**source, "topic": "t"}, worker=worker).definition
    assert plain is not None
    assert topics_of(plain)[0].replication is None
