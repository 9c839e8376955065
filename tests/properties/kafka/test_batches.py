"""Record batches are the bytes that the client library itself would write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from service.kafka.batches import BATCH_HEADER_BYTES, Columns, EncodedBatch, encode_records
from service.kafka.compression import Compression
from service.kafka.headers import CompressedHeaders, PackedHeaders
from service.kafka.records import TopicRecords

NOW_MS = 1_700_000_000_000

Row = tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]]]

rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=300)),
        st.one_of(st.none(), st.binary(max_size=70)),
        st.one_of(st.none(), st.integers(0, 2**45)),
        st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=80))), max_size=3),
    ),
    min_size=1,
    max_size=200,
)


def topic_records(given_rows: list[Row]) -> TopicRecords:
    """The rows as columns."""
    values, keys, stamps, headers = zip(*given_rows, strict=True)
    return TopicRecords(
        "t",
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        pa.array(stamps, pa.int64()),
        list(headers),
    )


def library_batch(given_rows: list[Row], *, is_transactional: bool) -> bytes:
    """The same rows through the library's builder, one at a time."""
    builder: Any = DefaultRecordBatchBuilder(2, 0, int(is_transactional), 7, 3, 11, 1 << 30)
    for index, (value, key, stamp, headers) in enumerate(given_rows):
        builder.append(index, NOW_MS if stamp is None else stamp, key, value, headers)
    return bytes(builder.build())


def encoded(columns: Columns, *, compression: Compression | None = None, is_transactional: bool = True) -> bytes:
    """The batch as it is sent."""
    batch = EncodedBatch(columns, compression=compression, is_transactional=is_transactional)
    batch._set_producer_state(7, 3, 11)
    return bytes(batch._build())


@settings(deadline=None)
@given(rows, st.booleans())
def test_bytes_equal_the_librarys(given_rows: list[Row], is_transactional: bool) -> None:  # noqa: FBT001 - drawn
    """Values, keys, nulls, headers and time stamps of any size come out byte for byte as the library's."""
    columns = Columns.of(topic_records(given_rows), now_ms=NOW_MS)
    expected = library_batch(given_rows, is_transactional=is_transactional)
    assert encoded(columns, is_transactional=is_transactional) == expected


@pytest.mark.parametrize("count", [1, 64, 8192, 8193])
def test_offset_deltas_grow_over_varint_borders(count: int) -> None:
    """Batches whose offset deltas need one, two and three bytes equal the library's."""
    given_rows: list[Row] = [(b"v%d" % index, None, NOW_MS, []) for index in range(count)]
    columns = Columns.of(topic_records(given_rows), now_ms=NOW_MS)
    assert encoded(columns) == library_batch(given_rows, is_transactional=True)


@pytest.mark.parametrize("narrow", [set(), {0}, {99}, {40, 41}, set(range(100))], ids=str)
def test_rows_with_short_numbers_may_stand_anywhere(narrow: set[int]) -> None:
    """Rows whose lengths take fewer bytes than those of others come out as the library writes them."""
    given_rows: list[Row] = [(b"v" * (3 if at in narrow else 300), None, NOW_MS, []) for at in range(100)]
    columns = Columns.of(topic_records(given_rows), now_ms=NOW_MS)
    assert encoded(columns) == library_batch(given_rows, is_transactional=True)


def test_time_stamps_may_go_backwards() -> None:
    """A record older than the first of its batch has a negative delta, and the batch the right maximum."""
    given_rows: list[Row] = [(b"a", None, 5000, []), (b"b", None, 1, []), (b"c", None, 9000, [])]
    columns = Columns.of(topic_records(given_rows), now_ms=NOW_MS)
    assert encoded(columns) == library_batch(given_rows, is_transactional=True)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_read_back(compression: str) -> None:
    """Each compression is one that a reader of the library understands, with a valid checksum."""
    values = [b"the same text again and again %d" % index for index in range(500)]
    columns = Columns.of(TopicRecords("t", pa.array(values, pa.binary())), now_ms=NOW_MS)
    raw = encoded(columns, compression=Compression(compression))
    assert len(raw) < sum(map(len, values))
    batch = MemoryRecords(raw).next_batch()
    assert isinstance(batch, DefaultRecordBatch)
    assert batch.validate_crc()
    assert [record.value for record in batch] == values


def test_incompressible_batches_stay_plain() -> None:
    """What compression would make larger is sent as it is, and says so."""
    values = pa.array([np.random.default_rng(1).bytes(1000)], pa.binary())
    columns = Columns.of(TopicRecords("t", values), now_ms=NOW_MS)
    assert encoded(columns, compression=Compression("lz4")) == encoded(columns)


def test_large_and_chunked_columns_are_taken() -> None:
    """What Spark's results look like (chunks, 64-bit offsets, text) is written like plain columns."""
    plain = TopicRecords("t", pa.array([b"a", b"b"], pa.binary()))
    chunked: Any = pa.chunked_array([pa.array(["a"], pa.large_string()), pa.array(["b"], pa.large_string())])
    other = TopicRecords("t", chunked)
    assert encoded(Columns.of(other, now_ms=NOW_MS)) == encoded(Columns.of(plain, now_ms=NOW_MS))


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.integers(200, 1000))
def test_pieces_fit_and_lose_nothing(sizes: list[int], batch_bytes_max: int) -> None:
    """Cut into batches, all records are there in order; a batch over the limit holds a single record."""
    values = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    columns = Columns.of(TopicRecords("t", pa.array(values, pa.binary())), now_ms=NOW_MS)
    pieces = list(columns.pieces(batch_bytes_max=batch_bytes_max))
    assert [value for piece in pieces for value in piece.values.to_pylist()] == values
    for piece in pieces:
        assert len(encoded(piece)) <= batch_bytes_max or len(piece) == 1


def test_rows_of_one_partition_keep_their_order() -> None:
    """Split by key, every partition's rows come in the order given; rows without key go to the one named."""
    keys = [b"a", None, b"b", b"a", None, b"c", b"b"]
    values = [b"%d" % index for index in range(len(keys))]
    records = TopicRecords("t", pa.array(values, pa.binary()), pa.array(keys, pa.binary()))
    parts = dict(Columns.of(records, now_ms=NOW_MS).by_partition(partitions=3, keyless_partition=2))
    assert sorted(value or b"" for part in parts.values() for value in part.values.to_pylist()) == values
    for part in parts.values():
        found = [value or b"" for value in part.values.to_pylist()]
        assert found == sorted(found)
    assert {b"1", b"4"} <= set(parts[2].values.to_pylist())


def test_size_estimate_is_an_upper_bound() -> None:
    """A record never takes more than was estimated, so a batch cannot outgrow its topic's limit unseen."""
    given_rows: list[Row] = [(b"v" * 100, b"k" * 100, 2**45, [("h", b"x" * 100)])]
    columns = Columns.of(topic_records(given_rows), now_ms=NOW_MS)
    assert len(encoded(columns)) <= BATCH_HEADER_BYTES + int(columns.sizes_bytes().sum())


def test_compressed_headers_give_the_same_bytes() -> None:
    """However the records are cut and spread: dead letters are written with them."""
    headers = [[("a", b"%d" % at), ("é", None if at % 3 else b"x" * at)] if at % 5 else [] for at in range(300)]
    values = pa.array([b"v%d" % at for at in range(300)], pa.binary())
    keys = pa.array([b"k%d" % (at % 7) for at in range(300)], pa.binary())

    def batches(packed: PackedHeaders | CompressedHeaders) -> list[tuple[int, bytes]]:
        columns = Columns.of(TopicRecords("t", values, keys, headers=packed), now_ms=NOW_MS)
        parts = columns.by_partition(partitions=3, keyless_partition=1)
        return [
            (number, bytes(encode_records(piece)))
            for number, part in parts
            for piece in part.pieces(batch_bytes_max=2_000)
        ]

    assert batches(CompressedHeaders.of(headers)) == batches(PackedHeaders.of(headers))


def test_columns_of_different_length_are_refused() -> None:
    """Keys that do not pair with values are an error, not a wrong pairing."""
    with pytest.raises(ValueError, match="keys of topic 't' has 1 rows"):
        TopicRecords("t", pa.array([b"a", b"b"], pa.binary()), pa.array([b"k"], pa.binary()))
