"""Keys that every source connector has: Kafka Connect's under their names, then ours in groups of their own."""

from __future__ import annotations

import unicodedata
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from fetchers.sdk import Boolean, ConfigModel, Importance, Key, NameList

COMMON, ERRORS, EXACTLY_ONCE, TOPICS = "Common", "Error Handling", "Exactly Once Support", "Topic Creation"
CONTRACT, FLOW = "Contract", "Flow"


def _key(
    group: str, order: int, display_name: str, *, importance: Importance = Importance.LOW, kind: str | None = None
) -> Key:
    return Key(importance=importance, group=group, order=order, width="MEDIUM", display_name=display_name, kind=kind)


class SourceConnectorConfig(ConfigModel):
    """What the worker reads of a connector's config; the fetcher's own keys are its config class's."""

    free_prefixes: ClassVar[tuple[str, ...]] = (
        "key.converter.",
        "value.converter.",
        "header.converter.",
        "producer.override.",
        "consumer.override.",
        "admin.override.",
        "contract.rules.",
        "topic.creation.",
        "transforms.",
        "predicates.",
    )

    name: Annotated[str, Field(min_length=1), _key(COMMON, 1, "Connector name", importance=Importance.HIGH)]
    """Globally unique name of the connector."""
    connector_class: Annotated[str, Field(min_length=1), _key(COMMON, 2, "Connector class", importance=Importance.HIGH)]
    """Full name, simple name, simple name without ``Connector``, or ``package.module:Class`` of one's own."""
    tasks_max: Annotated[int, Field(ge=1), _key(COMMON, 4, "Tasks max", importance=Importance.HIGH)] = 1
    """Most tasks the connector may be split into."""
    key_converter: Annotated[str | None, _key(COMMON, 6, "Key converter class", kind="CLASS")] = None
    """Converter of record keys; the worker's when not given."""
    value_converter: Annotated[str | None, _key(COMMON, 8, "Value converter class", kind="CLASS")] = None
    """Converter of record values; the worker's when not given."""

    errors_retry_timeout: Annotated[
        int, Field(ge=-1), _key(ERRORS, 1, "Retry Timeout for Errors", importance=Importance.MEDIUM, kind="LONG")
    ] = 0
    """Milliseconds for which a failing fetch is tried again. 0 (Connect's default) and -1: for ever, since a source
    that is away for an hour is no reason to lose the task."""
    errors_retry_delay_max_ms: Annotated[
        int, Field(ge=1), _key(ERRORS, 2, "Maximum Delay Between Retries for Errors", importance=Importance.MEDIUM)
    ] = 60_000
    """Longest wait between two tries, milliseconds."""
    errors_tolerance: Annotated[
        Literal["none", "all"], _key(ERRORS, 3, "Error Tolerance", importance=Importance.MEDIUM)
    ] = "none"
    """``none``: the first rejected record fails the task; ``all``: it goes to the dead letters."""
    errors_log_enable: Annotated[Boolean, _key(ERRORS, 4, "Log Errors", importance=Importance.MEDIUM)] = False
    """Write a log line for each rejected record (where and why, never its content)."""
    errors_log_include_messages: Annotated[
        Boolean, _key(ERRORS, 5, "Log Error Details", importance=Importance.MEDIUM)
    ] = False
    """Accepted as in Connect; contents are never logged here: the dead letter has them."""
    errors_deadletterqueue_topic_name: Annotated[str, _key(ERRORS, 6, "Dead Letter Queue Topic Name")] = ""
    """Topic of the dead letters; ``<connector>-dead-letters`` when empty."""
    errors_deadletterqueue_topic_replication_factor: Annotated[
        int | None, _key(ERRORS, 7, "Dead Letter Queue Topic Replication Factor")
    ] = None
    """Replicas of the dead-letter topic; min(3, brokers) when not given."""
    errors_deadletterqueue_context_headers_enable: Annotated[
        Boolean, _key(ERRORS, 8, "Enable Error Context Headers")
    ] = True
    """Headers that say what happened; on by default here."""
    errors_restart_max: Annotated[int, Field(ge=0), _key("Restart", 1, "Automatic Restarts")] = 1_000_000
    """How often in a row a task that failed on something retriable restarts itself; 0 = never."""
    errors_restart_backoff_ms: Annotated[int, Field(ge=1), _key("Restart", 2, "Restart Back-off")] = 1_000
    """First wait before an automatic restart; doubles up to ``errors.retry.delay.max.ms``."""

    exactly_once_support: Annotated[
        Literal["requested", "required", "REQUESTED", "REQUIRED"],
        _key(EXACTLY_ONCE, 2, "Exactly once support", importance=Importance.MEDIUM),
    ] = "requested"
    """Accepted as in Connect; exactly once is the default here."""
    delivery_guarantee: Annotated[
        Literal["exactly_once", "at_least_once"], _key(FLOW, 1, "Delivery Guarantee", importance=Importance.MEDIUM)
    ] = "exactly_once"
    """``at_least_once`` writes without transactions, idempotently, offsets after the records."""

    contract_schema: Annotated[str | None, _key(CONTRACT, 1, "Contract Schema", importance=Importance.HIGH)] = None
    """Avro schema that every record must meet: inline JSON, ``file:PATH`` or ``registry:SUBJECT[:VERSION]``."""
    contract_unknown_fields: Annotated[Literal["ignore", "reject", "keep"], _key(CONTRACT, 2, "Unknown Fields")] = (
        "ignore"
    )
    """What is done about fields the schema does not name; ``keep`` needs a JSON converter."""
    key_fields: Annotated[NameList, _key(CONTRACT, 3, "Key Fields", importance=Importance.MEDIUM)] = ()
    """Fields of the contract that make the record's key."""
    timestamp_field: Annotated[str | None, _key(CONTRACT, 4, "Timestamp Field")] = None
    """Field of the contract that is the record's timestamp."""
    dedupe_fields: Annotated[NameList | None, _key(CONTRACT, 5, "De-duplication Fields")] = None
    """Dotted paths by which equal records are dropped; the connector's own choice when not given, none when empty."""
    dedupe_records_max: Annotated[int, Field(ge=1), _key(CONTRACT, 6, "De-duplication Memory")] = 5_000_000
    """How many records are remembered by sources without windows of their own; the oldest are forgotten."""
    record_bytes_max: Annotated[int, Field(ge=1), _key(CONTRACT, 7, "Largest Record")] = 1_048_576
    """Payloads over this many bytes are rejected as too large."""

    queue_records_max: Annotated[int, Field(ge=1), _key(FLOW, 2, "Queue Records")] = 200_000
    """Records the queue between fetch and conversion holds at most."""
    queue_bytes_max: Annotated[int, Field(ge=1), _key(FLOW, 3, "Queue Bytes")] = 32 * 1024 * 1024
    """Bytes the queue holds at most."""
    batch_records_max: Annotated[int, Field(ge=1), _key(FLOW, 4, "Micro-batch Records")] = 50_000
    """A micro-batch closes at this many records …"""
    batch_bytes_max: Annotated[int, Field(ge=1), _key(FLOW, 5, "Micro-batch Bytes")] = 32 * 1024 * 1024
    """… or at this many bytes …"""
    batch_age_ms_max: Annotated[int, Field(ge=1), _key(FLOW, 6, "Micro-batch Age")] = 500
    """… or at this age, or at once while nothing is being converted."""
    batch_conversions_max: Annotated[int, Field(ge=1), _key(FLOW, 7, "Micro-batches in Flight")] = 2
    """Micro-batches of a task in conversion at once."""

    @field_validator("name")
    @classmethod
    def _no_control_characters(cls, name: str) -> str:
        codes = [str(ord(letter)) for letter in name if unicodedata.category(letter) == "Cc"]
        if codes:
            message = f"String may not contain control sequences but had the following ASCII chars: {', '.join(codes)}"
            raise ValueError(message)
        return name

    @property
    def dead_letter_topic(self) -> str:
        """Where rejected records go."""
        return self.errors_deadletterqueue_topic_name or f"{self.name}-dead-letters"

    @property
    def is_tolerant(self) -> bool:
        """Whether rejected records become dead letters."""
        return self.errors_tolerance == "all"
