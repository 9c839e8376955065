"""Settings of Kafka clients, and this client library's arguments; `service.kafka.properties` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from service.kafka.compression import Compression
from service.kafka.errors import classify
from service.kafka.security import KafkaSecurity

BATCH_BYTES_MAX = 900_000
# Only a bound on nonsense: what a topic takes is said by its max.message.bytes.
REQUEST_BYTES_MAX = 16_777_216
TRANSACTION_SECONDS_MAX = 60.0
COMMIT_SECONDS_MAX = 45.0
OFFSET_RESETS = ("earliest", "latest", "none")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
# Exactly-once stands on these; a worker that let them be changed would promise what it cannot keep.
FIXED = frozenset(
    {
        "acks", "enable.idempotence", "enable.auto.commit", "transactional.id", "isolation.level",
        "max.in.flight.requests.per.connection", "retries", "key.serializer", "value.serializer",
        "key.deserializer", "value.deserializer", "partitioner.class",
    }
)  # fmt: skip
# Accepted because every Connect installation has them; they have no meaning for this client.
WITHOUT_EFFECT = frozenset(
    {
        "buffer.memory", "max.block.ms", "client.dns.lookup", "send.buffer.bytes", "receive.buffer.bytes",
        "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms", "interceptor.classes", "metric.reporters", "linger.ms",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ProducerSettings:
    """How records are written. `batch_bytes_max` bounds one batch before compression."""

    compression: Compression | None = None
    batch_bytes_max: int = BATCH_BYTES_MAX
    request_bytes_max: int = REQUEST_BYTES_MAX
    transaction_seconds_max: float = TRANSACTION_SECONDS_MAX
    commit_seconds_max: float = COMMIT_SECONDS_MAX


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings:
    """How a member of a consumer group reads.

    Two defaults are not Java's: more records a poll, because batches are columns here, and a session of 10 s instead
    of 45, because until it ends nobody reads the partitions of a member that was killed.
    """

    group_id: str | None = None
    """What `group.id` says; None = the caller's own choice."""
    offset_reset: str = "earliest"
    poll_records_max: int = 20_000
    fetch_bytes_max: int = 52_428_800
    partition_fetch_bytes_max: int = 4_194_304
    fetch_bytes_min: int = 1
    fetch_wait_seconds_max: float = 0.5
    session_seconds_max: float = 10.0
    heartbeat_seconds: float = 3.0
    poll_seconds_max: float = 300.0


@dataclass(frozen=True, kw_only=True)
class KafkaSettings:
    """Where the cluster is, how to speak to it, and how long to wait for it."""

    bootstrap: str
    client_id: str = "headrace"
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    request_seconds_max: float = 40.0
    metadata_age_seconds_max: float = 300.0
    idle_seconds_max: float = 540.0
    retry_seconds: float = 0.1

    @property
    def connecting(self) -> str:
        """What a failed connection was about, for its message."""
        doing = f"connecting to {self.bootstrap}"
        if self.security.protocol == "PLAINTEXT":
            return doing
        # The client library reports a refused login or certificate like a broker that is not there.
        return f"{doing} by {self.security.protocol} (a wrong user, password or certificate looks the same)"

    def connection_arguments(self) -> dict[str, Any]:
        """Arguments that every client of the library takes.

        Raises DeliveryRetriable when certificates cannot be read: their files may just be on the way to new ones.
        """
        try:
            security = self.security.arguments()
        except OSError as error:
            raise classify(error, doing=f"reading the certificates for {self.bootstrap}") from error
        return {
            "bootstrap_servers": [server.strip() for server in self.bootstrap.split(",") if server.strip()],
            "client_id": self.client_id,
            "request_timeout_ms": round(self.request_seconds_max * 1000),
            "metadata_max_age_ms": round(self.metadata_age_seconds_max * 1000),
            "connections_max_idle_ms": round(self.idle_seconds_max * 1000),
            "retry_backoff_ms": round(self.retry_seconds * 1000),
            **security,
        }
