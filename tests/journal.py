"""What stands in Kafka after a run, read from outside, and what other programs put there before."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.producer import IdempotentWriter
from service.kafka.reader import StoredRecord, last_ends, read_topic
from service.kafka.records import TopicRecords
from service.reading.decoding import Decoder
from service.registry.client import RegistryClient
from service.registry.settings import RegistrySettings

_REGISTRY_JSON = "application/vnd.schemaregistry.v1+json"


def committed_records(bootstrap: str, topic: str) -> list[StoredRecord]:
    """Every committed record, by partition and offset."""

    async def read() -> list[StoredRecord]:
        return [record async for batch in read_topic(KafkaSettings(bootstrap=bootstrap), topic) for record in batch]

    return sorted(asyncio.run(read()), key=lambda record: (record.partition, record.offset))


def log_end(bootstrap: str, topic: str) -> int:
    """How many offsets are taken in all partitions, by records committed or not and by transaction markers."""
    return sum(asyncio.run(last_ends(KafkaSettings(bootstrap=bootstrap), topic)).values())


def headers_of(record: StoredRecord) -> dict[str, str]:
    """Headers as text."""
    return {name: value.decode() for name, value in record.headers}


def decoded(values: Sequence[bytes | None], *, registry_url: str) -> list[Any]:
    """Avro in Confluent's framing, read by fastavro with the schemas of the registry."""

    async def decode() -> list[Any]:
        settings, doubts = RegistrySettings.parse({"schema.registry.url": registry_url})
        assert not doubts
        async with RegistryClient(settings) as client:
            decoder = Decoder(client.by_id)
            return [await decoder.decode(value) for value in values]

    return asyncio.run(decode())


def make_topic(bootstrap: str, topic: str, *, config: Mapping[str, str], partitions: int = 1) -> None:
    """Make a topic before the worker does."""

    async def make() -> None:
        async with KafkaAdmin.opened(KafkaSettings(bootstrap=bootstrap)) as admin:
            await admin.ensure_topic(topic, partitions=partitions, config=config)

    asyncio.run(make())


def write_record(bootstrap: str, topic: str, *, key: bytes, value: bytes) -> None:
    """One record, as another program would write it."""

    async def write() -> None:
        writer = IdempotentWriter(KafkaSettings(bootstrap=bootstrap), last_topic=topic)
        try:
            await writer.start()
            await writer.commit([TopicRecords(topic, pa.array([value], pa.binary()), pa.array([key], pa.binary()))])
        finally:
            await writer.stop()

    asyncio.run(write())


def register_schema(registry_url: str, subject: str, schema: Mapping[str, Any]) -> int:
    """Put a schema into the registry by its plain HTTP API; its id."""
    body = json.dumps({"schema": json.dumps(schema)}).encode()
    request = urllib.request.Request(  # noqa: S310 - our own
        f"{registry_url}/subjects/{subject}/versions", data=body, headers={"Content-Type": _REGISTRY_JSON}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - our own
        return int(json.loads(answer.read())["id"])
