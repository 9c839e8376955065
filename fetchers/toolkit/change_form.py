"""What all change events of a connector have in common: topics, names of schemas, which operations are told and how."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fetchers.sdk import Offset, Page, Partition, RowSchema
from fetchers.sdk import rows as forms
from fetchers.toolkit.name_lists import Adjustment

READ, CREATE, UPDATE, DELETE, TRUNCATE = b"rcudt"
"""Codes of operations, as bytes: ``r`` of a snapshot, ``c``, ``u``, ``d``, ``t``."""


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """What all events of a connector have in common."""

    prefix: str
    """``topic.prefix``: begins topics and schema names, and is ``source.name``."""
    connector: str
    """``source.connector``, such as ``postgresql``; also the name of the source's schema."""
    database: str
    """``source.db`` where an event's own source columns do not say it."""
    source_fields: Mapping[str, forms.Form]
    """Fields of ``source`` of this connector alone, in their order."""
    version: str = "0.1.0"
    has_tombstones: bool = True
    """``tombstones.on.delete``."""
    is_flattened: bool = False
    """Rows with ``__deleted`` instead of envelopes, as ``ExtractNewRecordState`` with ``rewrite`` makes them."""
    skipped: frozenset[int] = frozenset({TRUNCATE})
    """``skipped.operations``, as codes."""
    skips_halves: bool = True
    """Whether they are heeded for the two events of a changed key as well: Debezium does for PostgreSQL alone."""
    schema_names: Adjustment = "none"
    """``schema.name.adjustment.mode``; the names that Avro itself sees are always adjusted."""
    field_names: Adjustment = "none"
    """``field.name.adjustment.mode``."""

    def topic(self, *names: str) -> str:
        """Of a table, by the parts of its name; what no topic may hold becomes an underscore."""
        return re.sub(r"[^a-zA-Z0-9._-]", "_", ".".join((self.prefix, *names)))

    def heartbeat(self, now_us: int, *, offset: Offset, partition: Partition, topic_prefix: str) -> Page:
        """A record for the topic of heartbeats, ``<heartbeat.topics.prefix>.<topic.prefix>``."""
        schema = RowSchema.of("io.debezium.connector.common.Heartbeat", {"ts_ms": forms.INT64}, version=1)
        key_schema = RowSchema.of("io.debezium.connector.common.ServerNameKey", {"serverName": forms.STRING}, version=1)
        return Page(
            pa.table({"ts_ms": pa.array([now_us // 1000], pa.int64())}),
            offset=offset,
            partition=partition,
            topic=self.topic_of_heartbeats(topic_prefix),
            schema=schema,
            keys=pa.table({"serverName": [self.prefix]}),
            key_schema=key_schema,
        )

    def topic_of_heartbeats(self, topic_prefix: str) -> str:
        """Where heartbeats go."""
        return re.sub(r"[^a-zA-Z0-9._-]", "_", f"{topic_prefix}.{self.prefix}")


def operation_codes(text: Sequence[str]) -> frozenset[int]:
    """``skipped.operations`` as codes; ``none`` skips nothing."""
    return frozenset(ord(word) for word in text if word in {"c", "u", "d", "t"})
