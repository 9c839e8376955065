"""Keys of sinks: those of Kafka Connect 4.1.1, to the byte; the sink's own keys are its config class's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import field_validator

from fetchers.sdk import Boolean, Finding, Importance, NameList
from service.config.connector import COMMON, ERRORS, FLOW, ConnectorConfig, connector_key
from service.kafka.topic_names import TOPIC_NAME_RULE, is_topic_name
from spark_batch.transforms.java_pattern import java_pattern, pattern_doubt

GROUP_ID_OVERRIDE = "consumer.override.group.id"
_HIGH, _MEDIUM = Importance.HIGH, Importance.MEDIUM


class SinkConnectorConfig(ConnectorConfig):
    """What the worker reads of a sink's config."""

    topics: Annotated[NameList, connector_key(COMMON, 4, "Topics", width="LONG", importance=_HIGH)] = ()
    """Topics to read, separated by commas; either this or ``topics.regex``."""
    topics_regex: Annotated[str, connector_key(COMMON, 4, "Topics regex", width="LONG", importance=_HIGH)] = ""
    """Regular expression, as Java has them, that the whole name of a topic must match to be read. Look-around,
    references to groups and possessive quantifiers are refused: they cannot be had in time linear to the name."""
    errors_deadletterqueue_topic_name: Annotated[
        str, connector_key(ERRORS, 6, "Dead Letter Queue Topic Name", importance=_MEDIUM)
    ] = ""
    """Topic of the dead letters of ``errors.tolerance=all``; empty: rejected records are passed over, as in Connect."""
    errors_deadletterqueue_topic_replication_factor: Annotated[
        int,
        connector_key(ERRORS, 7, "Dead Letter Queue Topic Replication Factor", importance=_MEDIUM, kind="SHORT"),
    ] = 3
    """Replicas of the dead-letter topic, when it is created."""
    errors_deadletterqueue_context_headers_enable: Annotated[
        Boolean, connector_key(ERRORS, 8, "Enable Error Context Headers", importance=_MEDIUM)
    ] = False
    """Whether dead letters carry headers that say what happened and where they came from."""
    delivery_guarantee: Annotated[
        Literal["exactly_once", "at_least_once"], connector_key(FLOW, 1, "Delivery Guarantee", importance=_MEDIUM)
    ] = "exactly_once"
    """Of dead letters: with the offsets of their records in one transaction, whose id is
    ``<consumer group>-dead-letters-<task>``, or by an idempotent producer before the offsets are committed. What the
    sink itself promises its own page says."""

    @field_validator("topics_regex")
    @classmethod
    def _is_pattern(cls, pattern: str) -> str:
        doubt = pattern_doubt(pattern)
        if doubt is not None:
            message = f"Invalid regex: {doubt}"
            raise ValueError(message)
        return pattern


def topic_findings(properties: Mapping[str, str]) -> tuple[Finding, ...]:
    """What is wrong with topics, pattern and dead letters taken together, in Connect's words."""
    texts = {key: properties.get(key, "").strip() for key in ("topics", "topics.regex")}
    key = "errors.deadletterqueue.topic.name"
    letters = properties.get(key, "").strip()
    if letters and not is_topic_name(letters):
        text = f"Invalid value {letters} for configuration {key}: Expected a topic's name: {TOPIC_NAME_RULE}"
        return (Finding(key, letters, text),)
    if texts["topics"] and texts["topics.regex"]:
        return _on_both(texts, "topics and topics.regex are mutually exclusive options, but both are set.")
    if not any(texts.values()):
        return _on_both(texts, "Must configure one of topics or topics.regex")
    return _dead_letter_findings(texts, letters)


def _on_both(texts: Mapping[str, str], message: str) -> tuple[Finding, ...]:
    return tuple(Finding(key, value or None, message) for key, value in texts.items())


def _dead_letter_findings(texts: Mapping[str, str], topic: str) -> tuple[Finding, ...]:
    names = [name.strip() for name in texts["topics"].split(",")]
    if topic and topic in names:
        message = (
            f"The DLQ topic '{topic}' may not be included in the list of topics ('topics=[{', '.join(names)}]') "
            "consumed by the connector"
        )
        return (Finding("topics", texts["topics"], message),)
    pattern = texts["topics.regex"]
    is_usable = bool(pattern) and pattern_doubt(pattern) is None  # else the key itself says so
    if topic and is_usable and java_pattern(pattern).fullmatch(topic):
        message = (
            f"The DLQ topic '{topic}' may not be matched by the regex for the topics ('topics.regex={pattern}') "
            "consumed by the connector"
        )
        return (Finding("topics.regex", pattern, message),)
    return ()


def group_of(name: str, properties: Mapping[str, str]) -> str:
    """The consumer group of a sink: ``connect-<name>``, unless the config names another."""
    return properties.get(GROUP_ID_OVERRIDE, "").strip() or f"connect-{name}"
