"""What a connector may be allowed to say about its own Kafka clients, and what never: keys by their effect."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fetchers.sdk import ConfigKey, Importance, Key
from service.config.borrowed_keys import CONNECTION_KEYS, PRODUCER_KEYS

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
