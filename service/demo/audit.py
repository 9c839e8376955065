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
    schemas: dict[int, Any] = {}
    async for records in read_topic(settings, topic):
        for record in records:
            value = record.value or b""
            (schema_id,) = struct.unpack(">xI", value[:_HEADER_BYTES])
            if schema_id not in schemas:
                schemas[schema_id] = fastavro.parse_schema(json.loads(await registry.by_id(schema_id)))
            decoded = fastavro.schemaless_reader(io.BytesIO(value[_HEADER_BYTES:]), schemas[schema_id], None)
            keys[key_of(decoded)] += 1
    return TopicAudit(keys.total(), len(keys))


async def audit_dead_letters(settings: KafkaSettings, topic: str) -> TopicAudit:
    """Count dead letters by reason; two with the same bytes are one too many."""
    values: Counter[bytes | None] = Counter()
    reasons: Counter[str] = Counter()
    async for records in read_topic(settings, topic):
        for record in records:
            values[record.value] += 1
            reasons[(dict(record.headers).get(REASON_HEADER) or b"unknown").decode()] += 1
    return TopicAudit(values.total(), len(values), reasons)
