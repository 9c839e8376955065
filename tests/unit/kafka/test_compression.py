"""Batches are compressed as Java's producer would, and never while a transaction waits for it."""

from __future__ import annotations

import asyncio
import gzip
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import codec

from service.kafka.batches import Columns, EncodedBatch
from service.kafka.client import KafkaSettings
from service.kafka.compression import Compression
from service.kafka.delivery import Lane, compress
from service.kafka.producer import IdempotentWriter, TransactionalWriter, _Connection
from service.kafka.records import TopicRecords

DATA = b"".join(b'{"id":%d,"event":"view"}' % (number * 7919) for number in range(2000))
READERS = {
    "gzip": codec.gzip_decode,
    "snappy": codec.snappy_decode,
    "lz4": codec.lz4_decode,
    "zstd": codec.zstd_decode,
}


@pytest.mark.parametrize(
    ("name", "levels"), [("gzip", (-1, 1, 9)), ("snappy", ()), ("lz4", (1, 9, 12, 17)), ("zstd", (-5, 3, 22))]
)
def test_every_level_is_understood_by_readers(name: str, levels: tuple[int, ...]) -> None:
    """As it is for the default."""
    for level in (None, *levels):
        assert READERS[name](Compression(name, level).compressed(DATA)) == DATA


def test_the_default_levels_are_javas() -> None:
    """Gzip's is 6, at a third of the price of the library's 9; lz4's is the fast compressor, though called 9."""
    sizes = {level: len(Compression("gzip", level).compressed(DATA)) for level in (None, 1, 6, 9)}
    assert sizes[None] == sizes[6] == len(gzip.compress(DATA, 6))
    assert sizes[1] > sizes[6] >= sizes[9]
    assert Compression("lz4").compressed(DATA) == Compression("lz4", 1).compressed(DATA)
    assert len(Compression("lz4", 12).compressed(DATA)) < len(Compression("lz4").compressed(DATA))


async def test_what_is_compressed_is_so_before_it_is_sent() -> None:
    """In its order; what is not compressed is encoded while it is sent, two batches at a time in memory."""
    pieces = [Columns.of(TopicRecords("t", pa.array([DATA, b"%d" % n], pa.binary())), now_ms=0) for n in range(5)]
    lanes = [Lane("t", 0, list(pieces), compression=used) for used in (Compression("gzip"), None)]
    await compress(lanes)
    packed, plain = lanes
    assert plain.pieces == pieces
    expected = [EncodedBatch(piece, compression=Compression("gzip"), is_transactional=False) for piece in pieces]
    assert [bytes(each._build()) for each in packed.pieces if isinstance(each, EncodedBatch)] == [
        bytes(each._build()) for each in expected
    ]


class SlowLane(Lane):
    """Waits for others that compress, for much longer than a commit may take."""

    async def compress(self) -> None:
        """In virtual time."""
        await asyncio.sleep(1000)


class Planned:
    """Stands for a writer's lanes and its producer; tells what was done when."""

    def __init__(self) -> None:
        """Nothing is done."""
        self.done: list[tuple[str, float]] = []

    async def plan(self, writes: object) -> list[Lane]:
        """As Lanes'."""
        del writes
        return [SlowLane("t", 0)]

    def __getattr__(self, name: str) -> Any:
        """As the producer's calls."""

        async def call() -> None:
            self.done.append((name, asyncio.get_running_loop().time()))

        return call


@pytest.mark.looptime
@pytest.mark.parametrize("kind", ["exactly_once", "at_least_once"])
async def test_many_that_compress_at_once_cost_nobody_a_transaction(kind: str) -> None:
    """They would time out together, abort, and begin again: so the limit of a commit begins behind it."""
    settings, planned = KafkaSettings(bootstrap="nowhere:1"), Planned()
    is_exactly_once = kind == "exactly_once"
    writer = (
        TransactionalWriter(settings, transactional_id="x")
        if is_exactly_once
        else IdempotentWriter(settings, last_topic="o")
    )
    connection: _Connection = writer._connection
    parts: Any = planned
    connection._producer, connection._lanes, connection.is_usable = parts, parts, True
    parts._sender = SimpleNamespace(sender_task=asyncio.get_running_loop().create_future())
    await writer.commit([TopicRecords("t", pa.array([b"x"], pa.binary()))])
    assert planned.done == ([("begin_transaction", 1000), ("commit_transaction", 1000)] if is_exactly_once else [])
    assert asyncio.get_running_loop().time() == 1000
