"""Keys without a config class of ours: those of Kafka's clients and of Confluent's converters, in one place.

``service.kafka`` and ``service.registry`` read them under the names their users know. tests/architecture shows each
key here to the reader of that key, so that none is promised which nothing reads. Below them: what a connector may be
allowed to say about its own Kafka clients, and what never, keys by their effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fetchers.sdk import ConfigKey, Importance, Key


@dataclass(frozen=True, slots=True)
class BorrowedKey:
    """One key under its prefix."""

    name: str
    default: str
    documentation: str
    wrong_value: str | None = None
    """A value that must be refused; None where any text is a value."""


CONVERTER_KEYS = (
    BorrowedKey(
        "schemas.enable",
        "",
        'JSON only: whether each value comes with its schema, `{"schema":…,"payload":…}`. True under '
        "Connect's class name, as there; false under the short name `json`. The misprint `schema.enable` is taken "
        "for it, with a warning.",
        "perhaps",
    ),
)
"""Keys of converters without a registry."""

REGISTRY_KEYS = (
    BorrowedKey(
        "schema.registry.url",
        "",
        "Avro only, required there or on the connector or worker: one URL, or several with commas, tried in turn. "
        "`embedded` starts Apicurio. Credentials in a URL are taken out and sent as they should be.",
        "registry:8081",
    ),
    BorrowedKey(
        "basic.auth.credentials.source", "URL", "`URL`, or `USER_INFO` to read them from `basic.auth.user.info`."
    ),
    BorrowedKey("basic.auth.user.info", "", "`user:password`; a secret."),
    BorrowedKey(
        "auto.register.schemas",
        "true",
        "Whether schemas are put into the registry; without it they must be there already.",
        "perhaps",
    ),
    BorrowedKey(
        "use.latest.version",
        "false",
        "Write under the subject's latest version, which must be the contract's schema.",
        "perhaps",
    ),
    BorrowedKey(
        "key.subject.name.strategy",
        "TopicNameStrategy",
        "`TopicNameStrategy` (`<topic>-key`), `RecordNameStrategy` or `TopicRecordNameStrategy`, package or not.",
        "NoStrategy",
    ),
    BorrowedKey("value.subject.name.strategy", "TopicNameStrategy", "The same for values.", "NoStrategy"),
)
"""Keys of the Avro converter, after ``key.converter.`` or ``value.converter.``."""

CONNECTION_KEYS = (
    BorrowedKey("client.id", "headrace", "Name in the brokers' logs and quotas."),
    BorrowedKey("request.timeout.ms", "40000", "Milliseconds for one request to a broker.", "soon"),
    BorrowedKey("metadata.max.age.ms", "300000", "Milliseconds after which the cluster is looked at anew.", "soon"),
    BorrowedKey("connections.max.idle.ms", "540000", "Milliseconds after which an idle connection is closed.", "soon"),
    BorrowedKey("retry.backoff.ms", "100", "Milliseconds between two tries of a request.", "soon"),
    BorrowedKey("security.protocol", "PLAINTEXT", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.", "PLAINTEXTS"),
    BorrowedKey("sasl.mechanism", "PLAIN", "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.", "CRAM"),
    BorrowedKey("sasl.jaas.config", "", 'A login module with `username="…"` and `password="…"`; a secret.'),
    BorrowedKey("ssl.truststore.type", "PEM", "Only PEM is read; a Java keystore has to be converted."),
    BorrowedKey("ssl.truststore.location", "", "PEM file of authorities to trust.", "no/such/file.pem"),
    BorrowedKey("ssl.truststore.certificates", "", "The same as text."),
    BorrowedKey("ssl.keystore.type", "PEM", "Only PEM is read."),
    BorrowedKey("ssl.keystore.location", "", "PEM file of the client's key and certificate.", "no/such/file.pem"),
    BorrowedKey("ssl.keystore.key", "", "The key as text; a secret."),
    BorrowedKey("ssl.keystore.certificate.chain", "", "The certificate as text."),
    BorrowedKey("ssl.key.password", "", "Password of the key; a secret."),
    BorrowedKey("ssl.endpoint.identification.algorithm", "https", "Empty: the broker's host name is not checked."),
)
"""Keys of every Kafka client: on the worker, and after ``producer.``, ``consumer.``, ``admin.`` or ``….override.``."""

PRODUCER_KEYS = (
    BorrowedKey("compression.type", "none", "`none`, `gzip`, `snappy`, `lz4` or `zstd`.", "zip"),
    BorrowedKey("compression.gzip.level", "-1", "1 to 9; -1 is zlib's own choice, 6.", "10"),
    BorrowedKey("compression.lz4.level", "9", "1 to 17; at 9 the fast compressor is used, as in Java.", "18"),
    BorrowedKey("compression.zstd.level", "3", "-131072 to 22.", "23"),
    BorrowedKey("batch.size", "900000", "Bytes of one record batch before compression.", "big"),
    BorrowedKey(
        "max.request.size", "16777216", "Most bytes of one request; the topic's own limit stands below it.", "big"
    ),
    BorrowedKey("transaction.timeout.ms", "60000", "After this the coordinator aborts an open transaction.", "soon"),
    BorrowedKey(
        "delivery.timeout.ms",
        "45000",
        "Milliseconds for one commit; Connect's for-ever stands for the default, since a commit without end cannot be "
        "taken back.",
        "soon",
    ),
)
"""Further keys of producers, after ``producer.`` (worker) or ``producer.override.`` (connector)."""

CONSUMER_KEYS = (
    BorrowedKey("group.id", "", "The consumer group of a sink; `connect-<connector>` unless given."),
    BorrowedKey(
        "auto.offset.reset", "earliest", "`earliest`, `latest` or `none`, where the group has no offset.", "now"
    ),
    BorrowedKey(
        "max.poll.records", "20000", "Records of one batch; more than Java's 500, as they are columns.", "many"
    ),
    BorrowedKey("fetch.max.bytes", "52428800", "Bytes of one fetch.", "big"),
    BorrowedKey(
        "max.partition.fetch.bytes",
        "4194304",
        "Bytes of one partition in it; more than Java's 1 MiB, as polls are.",
        "big",
    ),
    BorrowedKey("fetch.min.bytes", "1", "Bytes that the broker waits for …", "big"),
    BorrowedKey("fetch.max.wait.ms", "500", "… and for how long.", "soon"),
    BorrowedKey(
        "session.timeout.ms",
        "10000",
        "After this silence the group takes a member's partitions away; shorter than Java's 45 s, because until then "
        "nobody reads what a killed worker had.",
        "soon",
    ),
    BorrowedKey("heartbeat.interval.ms", "3000", "How often a member says that it lives.", "soon"),
    BorrowedKey("max.poll.interval.ms", "300000", "Longest time between two polls, and of a rebalance.", "soon"),
)
"""Further keys of consumers, after ``consumer.`` (worker) or ``consumer.override.`` (sink)."""


PRINCIPAL_KEYS = frozenset({"security.protocol", "sasl.mechanism", "sasl.jaas.config"})
"""Who the connector is for the brokers."""

SAFE_KEYS = PRINCIPAL_KEYS | {
    "client.id", "client.rack", "client.dns.lookup", "request.timeout.ms", "default.api.timeout.ms",
    "metadata.max.age.ms", "connections.max.idle.ms", "retry.backoff.ms", "retry.backoff.max.ms",
    "reconnect.backoff.ms", "reconnect.backoff.max.ms", "send.buffer.bytes", "receive.buffer.bytes",
    "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "ssl.truststore.type", "ssl.truststore.certificates", "ssl.keystore.type", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.key.password",
    "compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
    "batch.size", "linger.ms", "buffer.memory", "max.request.size", "max.block.ms",
    "delivery.timeout.ms", "transaction.timeout.ms",
    "group.id", "group.instance.id", "auto.offset.reset", "max.poll.records", "max.poll.interval.ms",
    "fetch.max.bytes", "fetch.min.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes", "check.crcs",
    "session.timeout.ms", "heartbeat.interval.ms",
}  # fmt: skip
"""Sizes, times, names and the connector's own identity: they can harm nobody but the connector."""

WHOLE_PROMISE = "exactly-once delivery stands on it"
FOREIGN_CLASS = "it names a class that would run inside the worker"
OTHER_CLUSTER = "records and offsets go in one transaction, which cannot span clusters"
WORKER_FILES = "it names a file of the worker's own, which whoever writes connector configs must not choose"
NO_HOST_CHECK = "without it anyone on the way may pose as the broker"

FIXED_VALUES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "acks": frozenset({"all", "-1"}),
        "enable.idempotence": frozenset({"true"}),
        "max.in.flight.requests.per.connection": frozenset("12345"),
        "isolation.level": frozenset({"read_committed"}),
        "enable.auto.commit": frozenset({"false"}),
    }
)
"""Keys that may be written only as they are anyway."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(FIXED_VALUES, WHOLE_PROMISE),
        "transactional.id": WHOLE_PROMISE,
        "bootstrap.servers": OTHER_CLUSTER,
        "bootstrap.controllers": OTHER_CLUSTER,
        "key.serializer": FOREIGN_CLASS,
        "value.serializer": FOREIGN_CLASS,
        "key.deserializer": FOREIGN_CLASS,
        "value.deserializer": FOREIGN_CLASS,
        "partitioner.class": FOREIGN_CLASS,
        "partition.assignment.strategy": FOREIGN_CLASS,
        "interceptor.classes": FOREIGN_CLASS,
        "metric.reporters": FOREIGN_CLASS,
        "security.providers": FOREIGN_CLASS,
        "ssl.engine.factory.class": FOREIGN_CLASS,
        "ssl.provider": FOREIGN_CLASS,
        "sasl.login.class": FOREIGN_CLASS,
        "sasl.login.callback.handler.class": FOREIGN_CLASS,
        "sasl.client.callback.handler.class": FOREIGN_CLASS,
        "sasl.kerberos.kinit.cmd": "it is a command that would run inside the worker",
        "sasl.oauthbearer.token.endpoint.url": "it makes the worker ask any address",
        "sasl.oauthbearer.jwks.endpoint.url": "it makes the worker ask any address",
    }
)
"""Keys that no policy allows, and why."""

ASKED_FOR: Mapping[str, str] = MappingProxyType(
    {
        "ssl.truststore.location": WORKER_FILES,
        "ssl.keystore.location": WORKER_FILES,
        "ssl.truststore.password": WORKER_FILES,
        "ssl.keystore.password": WORKER_FILES,
        "ssl.endpoint.identification.algorithm": NO_HOST_CHECK,
    }
)
"""Keys that are allowed only by the policy All, or by being named in the allow-list."""

_LONGS = {"connections.max.idle.ms", "metadata.max.age.ms", "retry.backoff.ms", "linger.ms"}
_INTS = {"request.timeout.ms", "batch.size", "max.request.size", "transaction.timeout.ms", "delivery.timeout.ms"}
_PASSWORDS = {
    "sasl.jaas.config", "ssl.keystore.key", "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password",
}  # fmt: skip


def client_key(name: str) -> ConfigKey | None:
    """What is known of a client's key, to show it; None for a key that nothing reads."""
    borrowed = next((key for key in (*CONNECTION_KEYS, *PRODUCER_KEYS) if key.name == name), None)
    if borrowed is None and name not in SAFE_KEYS | REFUSED.keys() | ASKED_FOR.keys():
        return None
    kind = "PASSWORD" if name in _PASSWORDS else "LONG" if name in _LONGS else "INT" if name in _INTS else "STRING"
    return ConfigKey(
        name,
        kind,
        is_required=False,
        default=(borrowed.default or None) if borrowed else None,
        documentation=borrowed.documentation if borrowed else "A setting of Kafka's clients.",
        extras=Key(Importance.MEDIUM),
    )
