"""Processor time of an Avro record at a sink's converter, from the bytes of a poll to typed columns.

``python -m tests.benchmarks.avro_decoding [records]``: records of six fields; and records with two lines of an order,
three tags and two attributes each, of which in one poll one record has 100,000 tags.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click
import fastavro
import pyarrow as pa

from service.sinks.converters import AvroReader
from tests.benchmarks import lakes

if TYPE_CHECKING:
    from service.registry.client import RegistryClient

POLL_RECORDS = 20_000
ROUNDS = 5
LONG_TAGS = 100_000
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": ["null", "double"]},
    ],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "attributes", "type": {"type": "map", "values": "long"}},
    ],
}


class _Registry:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = json.dumps(schema)

    async def by_id(self, _: int) -> str:
        return self._schema


def _orders(records: int) -> list[bytes]:
    schema, written = fastavro.parse_schema(ORDER), []
    for number in range(records):
        line = {"sku": f"sku-{number % 977}", "quantity": number % 7, "price": None if number % 5 == 0 else number / 3}
        tags = [f"tag{number % each}" for each in (3, 11, 101)][: 1 + number % 3]
        order = {
            "id": number,
            "lines": [line] * (1 + number % 3),
            "tags": tags * (LONG_TAGS // len(tags)) if number == records // 2 else tags,
            "attributes": {"weight": number, f"attribute {number % 31}": -number},
        }
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, order)
        written.append(body.getvalue())
    return written


async def measure(schema: Mapping[str, Any], bodies: Sequence[bytes]) -> float:
    """Microseconds a record, the best of some rounds."""
    rows = [b"\0\0\0\0\1" + body for body in bodies]
    polls = [pa.array(rows[at : at + POLL_RECORDS], pa.binary()) for at in range(0, len(rows), POLL_RECORDS)]
    reader = AvroReader(cast("RegistryClient", _Registry(schema)))
    spent: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for poll in polls:
            await reader.read(poll)
        spent.append(time.process_time() - began)
    return min(spent) / len(rows) * 1_000_000


def main(records: int) -> None:
    """Measure and print."""
    parsed: Any = fastavro.parse_schema(lakes.SCHEMA)
    flat = [lakes.encoded(parsed, number) for number in range(records)]
    for name, schema, bodies in (("six fields", lakes.SCHEMA, flat), ("orders", ORDER, _orders(records))):
        micros = asyncio.run(measure(schema, bodies))
        click.echo(f"{name}: {micros:.3f} µs of processor time a record, {1_000_000 / micros:,.0f} records a second")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
