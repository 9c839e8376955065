"""Keys without a config class of ours: those of Kafka's clients and of Confluent's converters, in one place.

``service.kafka`` and ``service.registry`` read them under the names their users know. tests/architecture shows each
key here to the reader of that key, so that none is promised which nothing reads.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    BorrowedKey("max.partition.fetch.bytes", "1048576", "Bytes of one partition in it.", "big"),
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
