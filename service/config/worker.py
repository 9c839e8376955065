"""Worker keys, as in ``connect-standalone.properties``, and ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from fetchers.sdk import Boolean, ConfigModel, Importance, Key, NameList, SecretMap
from fetchers.sdk.reach import parse_networks
from service.config.overrides import PolicyName, policy_named
from service.config.providers import BY_DEFAULT as PROVIDERS_BY_DEFAULT

EMBEDDED = "embedded"
"""Value of ``bootstrap.servers`` and ``schema.registry.url`` that starts the real thing as a child process."""

REGISTRY_KEY = "schema.registry.url"
PLACEHOLDER_REGISTRY = "http://127.0.0.1:1"
"""Stands for the embedded registry while configs are validated before it is started."""
_CONVERTER_DEFAULTS = {"key.converter": "string", "value.converter": "json"}

_SPARK_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(\s*,\s*[1-9]\d*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn"
    r"|spark://\S+:\d+|k8s://\S+"
)
_SPARK_REMOTE = re.compile(r"sc://([^\s/:;,\[\]]+|\[[\da-fA-F:.]+\])(:\d{1,5})?(/(;\S*)?)?")

MacAlgorithm = Literal["HmacMD5", "HmacSHA1", "HmacSHA224", "HmacSHA256", "HmacSHA384", "HmacSHA512"]


def _walls(order: int) -> Key:
    """A key that bounds what connectors may reach (``service.config.reach``)."""
    return Key(importance=Importance.MEDIUM, group="Connectors' Reach", order=order)


class WorkerConfig(ConfigModel):
    """One worker: where Kafka is, what it offers to its connectors, how it stops."""

    free_prefixes: ClassVar[tuple[str, ...]] = (
        "key.converter.",
        "value.converter.",
        "header.converter.",
        "producer.",
        "consumer.",
        "admin.",
        "spark.",
        "sasl.",
        "ssl.",
        "config.providers.",
        "topic.creation.",
        "config.storage.",
        "offset.storage.",
        "status.storage.",
        "schema.registry.",
        "listeners.https.",
        "admin.listeners.https.",
    )

    bootstrap_servers: Annotated[str, Field(min_length=1), Key(importance=Importance.HIGH, kind="LIST")] = EMBEDDED
    """Kafka brokers as ``host:port,…``; ``embedded`` starts a real Apache Kafka as a child process."""
    group_id: Annotated[str, Field(min_length=1), Key(importance=Importance.HIGH)] = "headrace"
    """Name of the worker group; the first part of every transactional id."""
    data_dir: Annotated[Path, Key(importance=Importance.LOW)] = Path(".headrace")
    """Directory for what embedded servers keep and for state that may be deleted."""
    schema_registry_url: Annotated[str | None, Key(importance=Importance.HIGH, kind="LIST")] = None
    """Schema registry with the Confluent API, for converters that name none; ``embedded`` starts Apicurio."""

    key_converter: Annotated[str, Key(importance=Importance.HIGH, kind="CLASS")] = "string"
    """Converter of record keys, for connectors that name none."""
    value_converter: Annotated[str, Key(importance=Importance.HIGH, kind="CLASS")] = "json"
    """Converter of record values, for connectors that name none."""
    header_converter: Annotated[str, Key(importance=Importance.LOW, kind="CLASS")] = (
        "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    )
    """Converter of record headers, for connectors that name none. A source's own headers are bytes already."""

    offset_storage_topic: Annotated[str, Field(min_length=1), Key(importance=Importance.HIGH)] = "headrace-offsets"
    """Compacted topic of the source offsets, in Kafka Connect's format."""
    offset_storage_partitions: Annotated[int, Field(ge=1), Key(importance=Importance.LOW)] = 25
    """Partitions of the offset topic, when it is created."""
    offset_storage_replication_factor: Annotated[int | None, Key(importance=Importance.LOW)] = None
    """Replicas of the offset topic; min(3, brokers) when not given."""
    offset_storage_file_filename: Annotated[str | None, Key(importance=Importance.LOW)] = None
    """Accepted and not used: offsets are always kept in the offset topic."""
    config_storage_topic: Annotated[str, Key(importance=Importance.LOW)] = "headrace-configs"
    """Compacted topic of connector configs, with one partition (distributed workers)."""
    config_storage_replication_factor: Annotated[int | None, Field(ge=-1), Key(importance=Importance.LOW)] = None
    """Replicas of the config topic, when it is created: -1 = the broker's default; min(3, brokers) when not given."""
    status_storage_topic: Annotated[str, Key(importance=Importance.LOW)] = "headrace-status"
    """Compacted topic of states (distributed workers)."""
    status_storage_partitions: Annotated[int, Field(ge=1), Key(importance=Importance.LOW)] = 5
    """Partitions of the status topic, when it is created."""
    status_storage_replication_factor: Annotated[int | None, Field(ge=-1), Key(importance=Importance.LOW)] = None
    """Replicas of the status topic, when it is created: -1 = the broker's default; min(3, brokers) when not given."""
    dedupe_storage_topic: Annotated[str | None, Field(min_length=1), Key(importance=Importance.LOW)] = None
    """Compacted topic of the de-duplication state; when not given that of the offsets with ``-dedupe`` behind its name,
    so that whoever shares the one shares the other."""

    listeners: Annotated[str, Key(importance=Importance.LOW, kind="LIST")] = "http://127.0.0.1:8083"
    """Address of health, metrics and REST; port 0 picks a free one."""
    admin_listeners: Annotated[str | None, Key(importance=Importance.LOW, kind="LIST")] = None
    """Addresses of ``/admin``; those of ``listeners`` when not given, none at all when empty."""
    rest_allowed_hosts: Annotated[NameList, Key(importance=Importance.MEDIUM, example="connect.example.org")] = ()
    """Names, also with a port, under which clients may ask this worker beside those of its listeners, its machine and
    ``rest.advertised.host.name``: those of proxies and services before it. ``*`` allows any, and with that web pages
    that have their own name resolve to this worker's address."""
    access_control_allow_origin: Annotated[str, Key(importance=Importance.LOW)] = ""
    """Origins, separated by commas, whose web pages may use the REST interface; ``*`` means all, empty none but those
    of the worker's own host."""
    access_control_allow_methods: Annotated[str, Key(importance=Importance.LOW)] = ""
    """Methods, separated by commas, that such pages may use; GET, POST and HEAD when empty."""
    response_http_headers_config: Annotated[str, Key(importance=Importance.LOW)] = ""
    """Headers of every answer: ``set NAME: VALUE`` or ``add NAME: VALUE``, separated by commas; also ``setDate``."""
    rest_extension_classes: Annotated[str, Key(importance=Importance.LOW, kind="LIST")] = ""
    """Accepted as in Connect and not used; who may do what is said by ``rest.auth``."""
    rest_auth: Annotated[NameList, Key(importance=Importance.HIGH, example="basic,bearer")] = ()
    """How clients of REST prove who they are: ``none``, or ``basic`` and ``bearer``. Must be given, if only as
    ``none``, where a listener can be reached from other machines and does not require a client's certificate."""
    rest_auth_users: Annotated[SecretMap, Key(importance=Importance.MEDIUM)] = Field(default_factory=dict)
    """Password of a user, by name, as ``ROLE:PASSWORD``: a role is ``read`` (GET only) or ``admin``, a password is what
    ``python -m service.rest.passwords`` prints, or plain from a variable such as ``${file:PATH:KEY}``."""
    rest_auth_tokens: Annotated[SecretMap, Key(importance=Importance.MEDIUM)] = Field(default_factory=dict)
    """Bearer token of a client, by name, as ``ROLE:TOKEN``; a token is plain, or ``sha256$`` and its digest."""
    rest_auth_file: Annotated[Path | None, Key(importance=Importance.MEDIUM)] = None
    """Properties file with more of both: ``users.NAME`` and ``tokens.NAME``."""
    rest_auth_open: Annotated[NameList, Key(importance=Importance.LOW)] = ("health", "metrics")
    """Pages that need no proof: of ``health`` and ``metrics``."""
    rest_request_bytes_max: Annotated[int, Field(ge=1024), Key(importance=Importance.LOW)] = 1_048_576
    """Longest body of a request; a longer one is answered 413."""
    rest_config_secrets: Annotated[Literal["show", "hide"], Key(importance=Importance.MEDIUM)] = "show"
    """Whether clients with the role ``admin`` are shown secrets in connectors' configs, as Connect shows them to
    everyone; ``read`` never is. Where a hidden value, ``[hidden]``, comes back, the stored one is kept."""
    rest_connections_max: Annotated[int, Field(ge=1), Key(importance=Importance.LOW)] = 1024
    """Connections to all listeners together; further ones are answered 503 and closed."""
    rest_connections_per_address_max: Annotated[int, Field(ge=1), Key(importance=Importance.LOW)] = 128
    """Connections of one client's address (of IPv6: of one network of 64 bits); further ones are answered 429."""
    rest_connection_timeout_ms: Annotated[int, Field(ge=100), Key(importance=Importance.LOW)] = 30_000
    """Time within which the head of a request must have come, then its body, and within which a client must take its
    answer; also how long a connection may be idle."""
    rest_request_timeout_ms: Annotated[int, Field(ge=100), Key(importance=Importance.LOW)] = 90_000
    """Time after which a request is answered 500 with what the worker is busy with."""
    task_shutdown_graceful_timeout_ms: Annotated[int, Field(ge=100), Key(importance=Importance.LOW)] = 8_000
    """Time for all tasks together to deliver what they hold when the worker stops; cancelled at ¾ of it."""
    offset_flush_interval_ms: Annotated[int, Key(importance=Importance.LOW)] = 60_000
    """How often sinks commit; sources commit their offsets with every micro-batch."""
    offset_flush_timeout_ms: Annotated[int, Key(importance=Importance.LOW)] = 5_000
    """Accepted as in Connect; sinks have a minute to flush."""
    plugin_path: Annotated[str | None, Key(importance=Importance.LOW, kind="LIST")] = None
    """Accepted as in Connect; own connectors are installed packages with an entry point in ``headrace.sources`` or
    ``headrace.sinks``, or ``package.module:Class`` on PYTHONPATH (``plugin.modules``)."""
    rest_host_name: Annotated[str | None, Key(importance=Importance.LOW)] = None
    """Old form of ``listeners``."""
    rest_port: Annotated[int | None, Key(importance=Importance.LOW)] = None
    """Old form of ``listeners``."""

    spark_master: Annotated[str, Key(importance=Importance.MEDIUM)] = "local[2]"
    """Spark master of the conversion job: ``local[N]``, ``spark://host:port``, ``k8s://…`` or ``yarn``; other
    ``spark.*`` keys pass through, except those that verdicts rest on. With ``local[N]`` the driver itself runs the
    columns that Spark has compiled once; ``spark.headrace.jobs=always`` makes every micro-batch a Spark job again."""
    spark_remote: Annotated[str | None, Key(importance=Importance.MEDIUM)] = None
    """Spark Connect server (``sc://host:port``), instead of a driver of our own."""
    conversion_seconds_max: Annotated[float, Field(gt=0), Key(importance=Importance.LOW)] = 120.0
    """Time limit of one conversion; after it Spark is restarted."""
    conversion_slots: Annotated[int | None, Field(ge=1), Key(importance=Importance.LOW)] = None
    """Conversions at once on this worker; cores + 1 when not given."""
    conversion_small_records_max: Annotated[int, Field(ge=0, le=1_000), Key(importance=Importance.LOW)] = 64
    """Micro-batches of at most so many rows of a table are converted without starting Spark's work, where their outcome
    is known to be the same byte by byte; with 0 Spark converts them all."""

    memory_bytes_max: Annotated[int | None, Field(ge=1), Key(importance=Importance.MEDIUM)] = None
    """Memory in bytes that all tasks of this worker may hold together: pages in queues, micro-batches in conversion,
    outcomes that are not yet committed. A quarter of what the process may use (the limit of its cgroup, else the
    machine's memory) when not given. Each task may hold one page, whatever the others hold."""

    embedded_kafka_port: Annotated[int, Field(ge=0, le=65535), Key(importance=Importance.LOW)] = 0
    """Port of the embedded broker; 0 picks a free one."""
    embedded_registry_port: Annotated[int, Field(ge=0, le=65535), Key(importance=Importance.LOW)] = 0
    """Port of the embedded registry; 0 picks a free one."""

    log_format: Annotated[Literal["console", "json"], Key(importance=Importance.LOW)] = "console"
    """One line an event: for people, or JSON."""
    log_level: Annotated[Literal["DEBUG", "INFO", "WARN", "WARNING", "ERROR"], Key(importance=Importance.LOW)] = "INFO"
    """Least level that is logged."""
    topic_creation_enable: Annotated[Boolean, Key(importance=Importance.LOW)] = True
    """Whether missing topics are created."""

    config_providers: Annotated[NameList, Key(importance=Importance.LOW)] = tuple(PROVIDERS_BY_DEFAULT)
    """Names of config providers, each with its ``config.providers.<name>.class`` (``FileConfigProvider``,
    ``DirectoryConfigProvider``, ``EnvVarConfigProvider``; those of the default need none) and
    ``config.providers.<name>.param.*``. Values may then hold variables such as
    ``${file:/etc/secrets/db.properties:password}`` and ``${env:TOKEN}``."""
    connector_client_config_override_policy: Annotated[str, Key(importance=Importance.MEDIUM)] = "Allowlist"
    """What connectors may change of their Kafka clients: ``All``, ``None``, ``Principal``, or ``Allowlist`` (the
    default). What would break exactly-once delivery or run foreign code in the worker no policy allows."""
    connector_client_config_override_allowlist: Annotated[NameList | None, Key(importance=Importance.LOW)] = None
    """Keys that ``Allowlist`` allows; when not given, all that can harm nobody but the connector itself."""

    plugin_modules: Annotated[NameList | None, _walls(1)] = None
    """Modules and packages whose classes ``connector.class=package.module:Class`` may name. When not given, every
    module that Python finds where all listeners are loopback addresses, else none. Connectors of the catalogue and of
    packages installed with an entry point in ``headrace.sources`` or ``headrace.sinks`` need no listing."""
    connector_allowed_paths: Annotated[NameList | None, _walls(2)] = None
    """Folders (with all that is in them) and files that connectors' configs may name, for reading and for writing;
    links are followed before a path is compared. When not given, every path where all listeners are loopback addresses,
    else none."""
    connector_allowed_addresses: Annotated[NameList | None, _walls(3)] = None
    """Addresses and networks such as ``10.0.0.0/8`` that connections of connectors' HTTP clients, registries and
    databases may be made to although they are not public. When not given, all where all listeners are loopback
    addresses, else none. Where a server redirects to a host that no config names, only what stands here may be
    internal."""

    security_protocol: Annotated[str, Key(importance=Importance.MEDIUM)] = "PLAINTEXT"
    """Kafka's security protocol; with ``sasl.*`` and ``ssl.*`` as in Kafka's clients."""

    session_timeout_ms: Annotated[int, Field(ge=1000), Key(importance=Importance.HIGH)] = 10_000
    """Silence after which the others take a worker for dead (distributed workers)."""
    heartbeat_interval_ms: Annotated[int, Field(ge=100), Key(importance=Importance.HIGH)] = 3_000
    """Most time between two heartbeats; never more than a tenth of the session's."""
    rebalance_timeout_ms: Annotated[int, Field(ge=1000), Key(importance=Importance.HIGH)] = 60_000
    """Time within which every worker has to join a rebalance."""
    scheduled_rebalance_max_delay_ms: Annotated[int, Field(ge=0, le=2**31 - 1), Key(importance=Importance.LOW)] = 30_000
    """How long the work of a worker that has stopped is held for it, so that a restart moves nothing; Connect's default
    is five minutes. With 0 it is handed out at once, as is what ran on a worker that is silent for a whole session."""
    worker_sync_timeout_ms: Annotated[int, Field(ge=0), Key(importance=Importance.MEDIUM)] = 3_000
    """Time a leader takes to read the config topic as far as the others have."""
    worker_unsync_backoff_ms: Annotated[int, Key(importance=Importance.MEDIUM)] = 300_000
    """Accepted as in Connect; a worker that is behind goes on reading instead of waiting."""
    connect_protocol: Annotated[str, Key(importance=Importance.LOW)] = "sessioned"
    """Accepted as in Connect; workers always sign what they ask of each other."""
    exactly_once_source_support: Annotated[
        Literal["disabled", "preparing", "enabled"], Key(importance=Importance.HIGH)
    ] = "enabled"
    """Accepted as in Connect; sources are always delivered exactly once, unless a connector says otherwise."""
    inter_worker_key_ttl_ms: Annotated[int, Field(ge=1000), Key(importance=Importance.LOW)] = 3_600_000
    """Age at which the key that signs requests between workers is replaced."""
    inter_worker_key_size: Annotated[int | None, Key(importance=Importance.LOW)] = None
    """Accepted as in Connect; a key is as long as its hash."""
    inter_worker_key_generation_algorithm: Annotated[MacAlgorithm, Key(importance=Importance.LOW)] = "HmacSHA256"
    """What the key is made for."""
    inter_worker_signature_algorithm: Annotated[MacAlgorithm, Key(importance=Importance.LOW)] = "HmacSHA256"
    """What requests to other workers are signed by."""
    inter_worker_verification_algorithms: Annotated[NameList, Key(importance=Importance.LOW)] = ("HmacSHA256",)
    """Which signatures are accepted."""
    rest_advertised_host_name: Annotated[str | None, Key(importance=Importance.LOW)] = None
    """Host under which the other workers reach this one; its host name when it listens on every interface."""
    rest_advertised_port: Annotated[int | None, Field(ge=0, le=65535), Key(importance=Importance.LOW)] = None
    """Port under which the other workers reach this one."""
    rest_advertised_listener: Annotated[str | None, Key(importance=Importance.LOW)] = None
    """``http`` or ``https``: which listener the other workers use; the first when not given."""
    topic_tracking_enable: Annotated[Boolean, Key(importance=Importance.LOW)] = True
    """Whether it is remembered which topics a connector uses."""
    topic_tracking_allow_reset: Annotated[Boolean, Key(importance=Importance.LOW)] = True
    """Whether clients may make that forgotten."""
    internal_topics_automatic_creation_enable: Annotated[Boolean, Key(importance=Importance.LOW)] = True
    """Accepted as in Connect; missing internal topics are created."""

    @property
    def dedupe_topic(self) -> str:
        """Where the de-duplication state is."""
        return self.dedupe_storage_topic or f"{self.offset_storage_topic}-dedupe"

    @field_validator("connector_allowed_paths")
    @classmethod
    def _are_absolute(cls, paths: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for path in paths or ():
            if not Path(path).is_absolute():
                message = f"Path {path} is not absolute"
                raise ValueError(message)
        return paths

    @field_validator("connector_allowed_addresses")
    @classmethod
    def _are_networks(cls, texts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for text in texts or ():
            if not parse_networks((text,)):
                message = f"Expected addresses such as 10.1.2.3 or networks such as 10.0.0.0/8, found '{text}'"
                raise ValueError(message)
        return texts

    @field_validator("spark_master")
    @classmethod
    def _is_spark_master(cls, text: str) -> str:
        # Spark says so only when it is started, which is tried again for ever.
        if _SPARK_MASTER.fullmatch(text):
            return text
        raise ValueError("Expected local, local[N], local[*], local[N,FAILURES], spark://host:port, k8s://… or yarn")

    @field_validator("spark_remote")
    @classmethod
    def _is_spark_remote(cls, text: str | None) -> str | None:
        if not text or _SPARK_REMOTE.fullmatch(text):
            return text
        raise ValueError("Expected sc://host or sc://host:port, with /;key=value;… behind it or without")

    @field_validator("connector_client_config_override_policy")
    @classmethod
    def _is_policy(cls, name: str) -> str:
        policy = policy_named(name)
        if policy is None:
            message = f"String must be one of: {', '.join(PolicyName)}"
            raise ValueError(message)
        return policy


def with_registry(properties: Mapping[str, str], url: str) -> dict[str, str]:
    """The properties with the embedded registry's real URL."""
    return {
        key: url if key.endswith(REGISTRY_KEY) and value == EMBEDDED else value for key, value in properties.items()
    }


def with_defaults(worker: Mapping[str, str]) -> dict[str, str]:
    """A worker's properties with the converters it has when it names none."""
    return {**_CONVERTER_DEFAULTS, **worker}
