"""An independent look at what came out: fastavro decodes every record and keys are counted, by no code of the flow.

A ``read_committed`` consumer brings the records, the registry the schema for the id in each: the door to Kafka and the
registry's client are the worker's own.
"""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import fastavro

from service.kafka.client import KafkaSettings
from service.kafka.reader import read_topic
from service.registry.client import RegistryClient

RecordKey = Callable[[Any], object]
_HEADER_BYTES = 5
REASON_HEADER = "__headrace.errors.reason"


@dataclass(slots=True)
class TopicAudit:
    """What is in a topic."""

    records: int = 0
    distinct: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def repeated(self) -> int:
        """Records that are there more than once."""
        return self.records - self.distinct


async def audit_records(settings: KafkaSettings, topic: str, registry: RegistryClient, key_of: RecordKey) -> TopicAudit:
    """Decode every record of a topic; raises what fastavro raises for one that is not what its schema says."""
    keys: Counter[object] = Counter()
    decoder = _Decoder(registry)
    async for records in read_topic(settings, topic):
        for record in records:
            keys[key_of(await decoder.decoded(record.value))] += 1
    return TopicAudit(keys.total(), len(keys))


async def audit_keys(settings: KafkaSettings, topic: str, registry: RegistryClient) -> tuple[list[Any], int]:
    """The key of every record of a topic, decoded, in the order of the topic, and how many of them are tombstones."""
    keys: list[Any] = []
    tombstones = 0
    decoder = _Decoder(registry)
    async for records in read_topic(settings, topic):
        for record in records:
            keys.append(await decoder.decoded(record.key))
            tombstones += record.value is None
    return keys, tombstones


@dataclass(slots=True)
class _Decoder:
    """Reads Confluent's form of Avro; each schema is asked for once."""

    registry: RegistryClient
    _schemas: dict[int, Any] = field(default_factory=dict)

    async def decoded(self, data: bytes | None) -> Any:
        """What the bytes say; raises ``struct.error`` where there is no id of a schema in them."""
        data = data or b""
        (schema_id,) = struct.unpack(">xI", data[:_HEADER_BYTES])
        if schema_id not in self._schemas:
            self._schemas[schema_id] = fastavro.parse_schema(json.loads(await self.registry.by_id(schema_id)))
        return fastavro.schemaless_reader(io.BytesIO(data[_HEADER_BYTES:]), self._schemas[schema_id], None)


async def audit_dead_letters(settings: KafkaSettings, topic: str) -> TopicAudit:
    """Count dead letters by reason; two with the same bytes are one too many."""
    values: Counter[bytes | None] = Counter()
    reasons: Counter[str] = Counter()
    async for records in read_topic(settings, topic):
        for record in records:
            values[record.value] += 1
            reasons[(dict(record.headers).get(REASON_HEADER) or b"unknown").decode()] += 1
    return TopicAudit(values.total(), len(values), reasons)
