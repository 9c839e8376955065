"""Keys that connectors have: Kafka Connect's under their names, then ours in groups of their own.

Type, default, importance, group, order, width and display name of Connect's keys are those of its 4.1.1, because
clients build forms from them; the texts are ours.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from fetchers.sdk import Boolean, ConfigModel, Importance, Key, NameList
from spark_batch.coercion import Coerce

COMMON, ERRORS, EXACTLY_ONCE, TOPICS = "Common", "Error Handling", "Exactly Once Support", "Topic Creation"
TRANSFORMS, PREDICATES, OFFSETS = "Transforms", "Predicates", "offsets.topic"
CONTRACT, FLOW, DEAD_LETTERS, RESTART = "Contract", "Flow", "Dead Letters", "Restart"


def connector_key(
    group: str,
    order: int,
    display_name: str,
    *,
    width: str = "MEDIUM",
    importance: Importance = Importance.LOW,
    kind: str | None = None,
    example: str | None = None,
) -> Key:
    """Where clients show a key of every connector, and how."""
    return Key(importance, group, order, width, display_name, kind=kind, example=example)


_key = connector_key
_HIGH, _MEDIUM = Importance.HIGH, Importance.MEDIUM


def unique_aliases(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, none of them twice."""
    if len(set(names)) < len(names):
        message = "Duplicate alias provided."
        raise ValueError(message)
    return names


def _boundary(value: object) -> object:
    return _one_of(value, ("INTERVAL", "POLL", "CONNECTOR"))


def _support(value: object) -> object:
    return _one_of(value, ("REQUIRED", "REQUESTED"))


def _one_of(value: object, choices: tuple[str, ...]) -> object:
    """The choice in lower case, however it was written."""
    if isinstance(value, str) and value.upper() not in choices:
        message = f"String must be one of (case insensitive): {', '.join(choices)}"
        raise ValueError(message)
    return value.lower() if isinstance(value, str) else value


class ConnectorConfig(ConfigModel):
    """What the worker reads of any connector's config, source or sink."""

    free_prefixes: ClassVar[tuple[str, ...]] = (
        "key.converter.",
        "value.converter.",
        "header.converter.",
        "producer.override.",
        "consumer.override.",
        "admin.override.",
        "transforms.",
        "predicates.",
    )

    name: Annotated[str, _key(COMMON, 1, "Connector name", importance=_HIGH, example="orders")]
    """Globally unique name of the connector."""
    connector_class: Annotated[
        str, Field(min_length=1), _key(COMMON, 2, "Connector class", width="LONG", importance=_HIGH)
    ]
    """Full name, simple name, simple name without ``Connector``, or ``package.module:Class`` of one's own."""
    connector_plugin_version: Annotated[str | None, _key(COMMON, 3, "Connector version", importance=_MEDIUM)] = None
    """Version of the connector, or a range such as ``[4.0,5.0)``; the one that is installed when not given."""
    tasks_max: Annotated[int, Field(ge=1), _key(COMMON, 4, "Tasks max", width="SHORT", importance=_HIGH)] = 1
    """Most tasks the connector may be split into."""
    tasks_max_enforce: Annotated[Boolean, _key(COMMON, 5, "Enforce tasks max", width="SHORT")] = True
    """Whether a connector that makes more tasks than it may fails; otherwise that is only said."""
    key_converter: Annotated[str | None, _key(COMMON, 6, "Key converter class", width="SHORT", kind="CLASS")] = None
    """Converter of record keys; the worker's when not given."""
    key_converter_plugin_version: Annotated[str | None, _key(COMMON, 7, "Key converter version", width="SHORT")] = None
    """Accepted as in Connect; there is one version of each converter."""
    value_converter: Annotated[str | None, _key(COMMON, 8, "Value converter class", width="SHORT", kind="CLASS")] = None
    """Converter of record values; the worker's when not given."""
    value_converter_plugin_version: Annotated[str | None, _key(COMMON, 9, "Value converter version", width="SHORT")] = (
        None
    )
    """Accepted as in Connect; there is one version of each converter."""
    header_converter: Annotated[str | None, _key(COMMON, 10, "Header converter class", width="SHORT", kind="CLASS")] = (
        None
    )
    """Converter of record headers; the worker's when not given. Those that a source's transformations make go through
    it."""
    header_converter_plugin_version: Annotated[
        str | None, _key(COMMON, 11, "Header converter version", width="SHORT")
    ] = None
    """Accepted as in Connect; there is one version of each converter."""
    transforms: Annotated[NameList, _key(TRANSFORMS, 12, "Transforms", width="LONG")] = ()
    """Names of the transformations, in the order in which they are applied; each has its ``transforms.<name>.type``."""
    predicates: Annotated[NameList, _key(PREDICATES, 13, "Predicates", width="LONG")] = ()
    """Names of the predicates that transformations may refer to; each has its ``predicates.<name>.type``."""
    config_action_reload: Annotated[Literal["none", "restart"], _key(COMMON, 14, "Reload Action")] = "restart"
    """What is done when a config provider says that a value has changed; the providers that there are never do."""

    errors_retry_timeout: Annotated[
        int, _key(ERRORS, 1, "Retry Timeout for Errors", importance=_MEDIUM, kind="LONG")
    ] = 0
    """Milliseconds for which a failing fetch is tried again. 0 (Connect's default) and -1: for ever, since a source
    that is away for an hour is no reason to lose the task. A stream fails as long as its connections end within 5 s of
    their first message, or without any within a minute."""
    errors_retry_delay_max_ms: Annotated[
        int, _key(ERRORS, 2, "Maximum Delay Between Retries for Errors", importance=_MEDIUM)
    ] = 60_000
    """Longest wait between two tries, milliseconds."""
    errors_tolerance: Annotated[
        Literal["none", "all"], _key(ERRORS, 3, "Error Tolerance", width="SHORT", importance=_MEDIUM)
    ] = "none"
    """``none``: the first rejected record fails the task; ``all``: it goes to the dead letters."""
    errors_log_enable: Annotated[Boolean, _key(ERRORS, 4, "Log Errors", width="SHORT", importance=_MEDIUM)] = False
    """Write a log line for each rejected record (where and why, never its content)."""
    errors_log_include_messages: Annotated[
        Boolean, _key(ERRORS, 5, "Log Error Details", width="SHORT", importance=_MEDIUM)
    ] = False
    """Accepted as in Connect; contents are never logged here: the dead letter has them."""

    errors_restart_max: Annotated[int, Field(ge=0), _key(RESTART, 1, "Automatic Restarts")] = 1_000_000
    """How often in a row a task that failed on something retriable restarts itself; 0 = never."""
    errors_restart_backoff_ms: Annotated[int, Field(ge=1), _key(RESTART, 2, "Restart Back-off")] = 1_000
    """First wait before an automatic restart; doubles up to ``errors.retry.delay.max.ms``."""

    @field_validator("name")
    @classmethod
    def _no_control_characters(cls, name: str) -> str:
        if not name:
            message = "String may not be empty"
            raise ValueError(message)
        codes = [str(ord(letter)) for letter in name if unicodedata.category(letter) == "Cc"]
        if codes:
            message = f"String may not contain control sequences but had the following ASCII chars: {', '.join(codes)}"
            raise ValueError(message)
        return name

    @field_validator("errors_retry_delay_max_ms")
    @classmethod
    def _some_delay(cls, delay_ms: int) -> int:
        """Without a range in the definition: Connect's has none, and takes a null for it."""
        if delay_ms < 1:
            message = "Value must be at least 1"
            raise ValueError(message)
        return delay_ms

    @field_validator("transforms", "predicates")
    @classmethod
    def _no_alias_twice(cls, aliases: tuple[str, ...]) -> tuple[str, ...]:
        return unique_aliases(aliases)

    @property
    def is_tolerant(self) -> bool:
        """Whether rejected records become dead letters."""
        return self.errors_tolerance == "all"


class SourceConnectorConfig(ConnectorConfig):
    """What the worker reads of a source's config; the fetcher's own keys are its config class's."""

    free_prefixes: ClassVar[tuple[str, ...]] = (
        *ConnectorConfig.free_prefixes,
        "contract.rules.",
        "topic.creation.",
    )

    topic_creation_groups: Annotated[NameList, _key(TOPICS, 1, "Topic Creation Groups", width="LONG")] = ()
    """Groups of ``topic.creation.<group>.*`` keys, tried in this order; ``default`` comes last by itself."""
    exactly_once_support: Annotated[
        Literal["requested", "required"],
        BeforeValidator(_support),
        _key(EXACTLY_ONCE, 2, "Exactly once support", width="SHORT", importance=_MEDIUM),
    ] = "requested"
    """``required``: refuse ``delivery.guarantee=at_least_once``. Exactly once is the default here."""
    transaction_boundary: Annotated[
        Literal["poll", "interval", "connector"],
        BeforeValidator(_boundary),
        _key(EXACTLY_ONCE, 3, "Transaction Boundary", width="SHORT", importance=_MEDIUM),
    ] = "poll"
    """Accepted as in Connect; a transaction is a micro-batch, whose size and age the ``batch.*`` keys bound."""
    transaction_boundary_interval_ms: Annotated[
        int | None, Field(ge=0), _key(EXACTLY_ONCE, 4, "Transaction boundary interval", width="SHORT")
    ] = None
    """Accepted as in Connect; see ``batch.age.ms.max``."""
    offsets_storage_topic: Annotated[
        str | None, Field(min_length=1), _key(OFFSETS, 1, "Offsets topic", width="LONG")
    ] = None
    """Topic of the connector's source offsets, instead of the worker's, which gets copies. Made where missing."""

    errors_deadletterqueue_topic_name: Annotated[str, _key(DEAD_LETTERS, 1, "Dead Letter Queue Topic Name")] = ""
    """Topic of the dead letters; ``<connector>-dead-letters`` when empty."""
    errors_deadletterqueue_topic_replication_factor: Annotated[
        int | None, Field(ge=-1, le=2**15 - 1), _key(DEAD_LETTERS, 2, "Dead Letter Queue Topic Replication Factor")
    ] = None
    """Replicas of the dead-letter topic; min(3, brokers) when not given."""
    errors_deadletterqueue_context_headers_enable: Annotated[
        Boolean, _key(DEAD_LETTERS, 3, "Enable Error Context Headers")
    ] = True
    """Headers that say what happened; on by default here."""
    delivery_guarantee: Annotated[
        Literal["exactly_once", "at_least_once"], _key(FLOW, 1, "Delivery Guarantee", importance=Importance.MEDIUM)
    ] = "exactly_once"
    """``at_least_once`` writes without transactions, idempotently, offsets after the records."""

    contract_schema: Annotated[str | None, _key(CONTRACT, 1, "Contract Schema", importance=Importance.HIGH)] = None
    """Avro schema that every record must meet: inline JSON, ``file:PATH`` or ``registry:SUBJECT[:VERSION]``. A relative
    path is one from the worker's working directory; in a connector file, where there is nothing, from its folder."""
    contract_unknown_fields: Annotated[Literal["ignore", "reject", "keep"], _key(CONTRACT, 2, "Unknown Fields")] = (
        "ignore"
    )
    """What is done about fields the schema does not name; ``keep`` needs a JSON converter."""
    contract_coerce: Annotated[NameList | None, _key(CONTRACT, 8, "Coerced Texts", example="numbers,booleans")] = None
    """Texts that are taken for values: ``numbers`` (``"21"`` for 21), ``instants`` (``"1602611311"``), ``booleans``
    (``"true"``), ``enums`` (another case), ``empty`` (``""`` for null). Nothing when empty, and when not given, but for
    sources of CSV: ``numbers,instants,booleans,empty``."""
    key_fields: Annotated[NameList, _key(CONTRACT, 3, "Key Fields", importance=Importance.MEDIUM)] = ()
    """Fields of the contract that make the record's key."""
    timestamp_field: Annotated[str | None, _key(CONTRACT, 4, "Timestamp Field")] = None
    """Field of the contract that is the record's timestamp: a dotted path of names as they are in the payload, to a
    timestamp or to a ``long`` of milliseconds since 1970."""
    dedupe_fields: Annotated[NameList | None, _key(CONTRACT, 5, "De-duplication Fields")] = None
    """Dotted paths by which equal records are dropped; the connector's own choice when not given, none when empty."""
    dedupe_records_max: Annotated[int, Field(ge=1), _key(CONTRACT, 6, "De-duplication Memory")] = 5_000_000
    """How many records are remembered by sources without windows of their own; the oldest are forgotten."""
    record_bytes_max: Annotated[int, Field(ge=1), _key(CONTRACT, 7, "Largest Record")] = 1_048_576
    """Payloads over this many bytes are rejected as too large."""

    queue_records_max: Annotated[int, Field(ge=1), _key(FLOW, 2, "Queue Records")] = 200_000
    """Records the queue between fetch and conversion holds at most."""
    queue_bytes_max: Annotated[int, Field(ge=1), _key(FLOW, 3, "Queue Bytes")] = 16 * 1024 * 1024
    """Bytes the queue holds at most."""
    batch_records_max: Annotated[int, Field(ge=1), _key(FLOW, 4, "Micro-batch Records")] = 50_000
    """A micro-batch closes at this many records …"""
    batch_bytes_max: Annotated[int, Field(ge=1), _key(FLOW, 5, "Micro-batch Bytes")] = 32 * 1024 * 1024
    """… or at this many bytes …"""
    batch_age_ms_max: Annotated[int, Field(ge=1), _key(FLOW, 6, "Micro-batch Age")] = 500
    """… or at this age, or at once while nothing is being converted."""
    batch_conversions_max: Annotated[int, Field(ge=1), _key(FLOW, 7, "Micro-batches in Flight")] = 2
    """Micro-batches of a task in conversion at once."""
    source_transaction_bytes_max: Annotated[
        int, Field(ge=1), _key(FLOW, 8, "Source Transaction Bytes", importance=_MEDIUM)
    ] = 256 * 1024 * 1024
    """A transaction of the source, such as one of a database, is one transaction of Kafka up to this many bytes."""
    source_transaction_overflow: Annotated[Literal["split", "fail"], _key(FLOW, 9, "Source Transaction Overflow")] = (
        "split"
    )
    """What is done about a larger one: ``split`` writes it in several transactions of Kafka, in order and each record
    once, so that consumers may see its first part before the rest; ``fail`` fails the task."""

    @field_validator("contract_coerce")
    @classmethod
    def _known_words(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        unknown = [word for word in words or () if word not in set(Coerce)]
        if unknown:
            message = f"Expected words of {', '.join(Coerce)}, and found {', '.join(unknown)}"
            raise ValueError(message)
        return words

    @field_validator("topic_creation_groups")
    @classmethod
    def _no_group_twice(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        return unique_aliases(groups)

    @property
    def dead_letter_topic(self) -> str:
        """Topic that rejected records are written to while ``errors.tolerance`` is ``all``."""
        return self.errors_deadletterqueue_topic_name or f"{self.name}-dead-letters"
