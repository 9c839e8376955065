"""Record batches are read into columns as the client library reads them, record by record."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.kafka.fetched import RECORDS_SCHEMA, _columns_at_once, batches_of, table_of
from service.kafka.fetching import FetchedTables, KeptRecords, Room

PARTITION = TopicPartition("t", 3)
NOW_MS = 1_700_000_000_000
ROOMY = 2**40
_ABORTED, _COMMITTED = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"

Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]
rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=300)),
        st.one_of(st.none(), st.binary(max_size=70)),
        st.integers(-(2**45), 2**45),
        st.one_of(st.just([]), st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=80))))),
    ),
    min_size=1,
    max_size=100,
)


def batch(given_rows: list[Row], *, base: int = 0, codec: int = 0, producer: int = -1, flags: int = 0) -> bytes:
    """One batch as a broker stores it; ``flags`` are further attributes."""
    builder: Any = DefaultRecordBatchBuilder(2, codec, 0, producer, 0, 0, 1 << 30)
    for index, (value, key, stamp, headers) in enumerate(given_rows):
        builder.append(index, stamp, key, value, headers)
    data = builder.build()
    struct.pack_into(">q", data, 0, base)
    (attributes,) = struct.unpack_from(">h", data, 21)
    struct.pack_into(">h", data, 21, attributes | flags)
    struct.pack_into(">I", data, 17, calc_crc32c(data[21:]))
    return bytes(data)


def by_library(data: bytes, *, offset: int = 0, aborted: list[tuple[int, int]] | None = None) -> list[Any]:
    """The records that the library gives, and the position after them."""
    found = PartitionRecords(
        PARTITION, KeptRecords(data), aborted, offset, None, None, check_crcs=True, isolation_level=READ_COMMITTED
    )
    records = [
        (each.offset, each.timestamp, each.timestamp_type, each.key, each.value, list(each.headers)) for each in found
    ]
    return [records, found.next_fetch_offset]


def in_tables(
    data: bytes, *, offset: int = 0, aborted: list[tuple[int, int]] | None = None, room: int = ROOMY
) -> list[Any]:
    """The same through tables, each of at most ``room`` records."""
    plain = PartitionRecords(
        PARTITION, KeptRecords(data), aborted, offset, None, None, check_crcs=True, isolation_level=READ_COMMITTED
    )
    limits = Room(room, ROOMY)
    found = FetchedTables(plain, limits)
    records: list[Any] = []
    for table in found:
        assert table.schema == RECORDS_SCHEMA
        assert 0 < table.num_rows <= room
        assert found.next_fetch_offset > table.column("offset")[-1].as_py()
        records += [
            (
                row["offset"],
                row["timestamp"],
                row["timestamp_type"],
                row["key"],
                row["value"],
                [(each["name"], each["value"]) for each in row["headers"] or ()],
            )
            for row in table.to_pylist()
        ]
        limits.records, limits.size_bytes = room, ROOMY
    return [records, found.next_fetch_offset]


@settings(deadline=None)
@given(st.lists(rows, min_size=1, max_size=3), st.sampled_from([0, 1, 2, 3, 4]), st.integers(1, 50), st.integers(0, 60))
def test_records_equal_the_librarys(several: list[list[Row]], codec: int, room: int, offset: int) -> None:
    """Whatever the keys, values, times, headers and codec are, wherever a poll ends and a fetch begins."""
    data, base = b"", 0
    for given_rows in several:
        data += batch(given_rows, base=base, codec=codec)
        base += len(given_rows)
    begin = min(offset, len(several[0]) - 1)
    assert in_tables(data, offset=begin, room=room) == by_library(data, offset=begin)


@settings(deadline=None)
@given(rows)
def test_records_are_read_at_once(given_rows: list[Row]) -> None:
    """With headers and without: the quick way is not left for what is usual, which the test above would not tell."""
    (found,) = batches_of(batch(given_rows))
    assert (_columns_at_once(found) is not None) == all(len(headers) <= 64 for *_, headers in given_rows)


@pytest.mark.parametrize("count", [64, 65, 3_000])
def test_records_of_very_many_headers(count: int) -> None:
    """They are read, but not in as many steps for all the batch as one record has headers."""
    headers: list[tuple[str, bytes | None]] = [(f"h{number}", b"x" * (number % 5)) for number in range(count)]
    data = batch([(b"a", None, NOW_MS, []), (b"b", None, NOW_MS, headers), (b"c", None, NOW_MS, headers[:1])])
    assert in_tables(data) == by_library(data)
    (found,) = batches_of(data)
    assert (_columns_at_once(found) is None) == (count > 64)


def test_names_of_headers_that_are_no_text() -> None:
    """They have U+FFFD, as in Java's client; the library cannot read such a record, and the topic would end there."""
    data = bytearray(batch([(b"a", None, NOW_MS, [("name", b"\xff"), ("n\u00e9", None)])]))
    at = data.index(b"name")
    data[at] = 0xFF
    struct.pack_into(">I", data, 17, calc_crc32c(data[21:]))
    ((record,), _) = in_tables(bytes(data))
    assert record[-1] == [("\ufffdame", b"\xff"), ("n\u00e9", None)]


def test_time_by_the_broker_is_the_batchs() -> None:
    """With ``message.timestamp.type=LogAppendTime`` every record has the time at which its batch came."""
    data = batch([(b"a", None, NOW_MS, []), (b"b", None, NOW_MS + 5, [])], flags=0x08)
    assert in_tables(data) == by_library(data)
    (found,) = batches_of(data)
    assert table_of(found, topic="t", partition=3).column("timestamp_type").to_pylist() == [1, 1]


def test_formats_before_v2_are_read_as_the_library_reads_them() -> None:
    """Of topics that were written before Kafka 0.11, compressed or not."""
    data = b""
    for magic in (0, 1):
        for codec in (0, 1):
            builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
            for offset in range(3):
                builder.append(offset, timestamp=NOW_MS if magic else None, key=b"k", value=b"v%d" % offset)
            data = bytes(builder.build())
            assert in_tables(data) == [by_library(data)[0], 3]


def test_records_of_aborted_transactions_are_nobodys() -> None:
    """They are passed over until the mark of their end; the same producer's next transaction counts again."""
    row: Row = (b"v", None, NOW_MS, [])
    mark = 0x10 | 0x20
    data = b"".join(
        [
            batch([row] * 3, base=0, producer=7, flags=0x10),
            batch([row] * 2, base=3, producer=8, flags=0x10),
            batch([(b"\x00\x00\x00\x00\x00\x00", _ABORTED, NOW_MS, [])], base=5, producer=7, flags=mark),
            batch([row] * 2, base=6, producer=7, flags=0x10),
            batch([(b"\x00\x00\x00\x00\x00\x00", _COMMITTED, NOW_MS, [])], base=8, producer=7, flags=mark),
        ]
    )
    found = in_tables(data, aborted=[(7, 0)], room=1)
    assert [record[0] for record in found[0]] == [3, 4, 6, 7]
    assert found == by_library(data, aborted=[(7, 0)])


def test_a_batch_that_was_cut_off_waits_for_the_next_fetch() -> None:
    """A broker cuts a fetch where its limit is."""
    data = batch([(b"v", None, NOW_MS, [])] * 3)
    assert in_tables(data + batch([(b"v", None, NOW_MS, [])], base=3)[:-1]) == by_library(data)


PLAIN = batch([(b"value" * 7, b"key%d" % number, NOW_MS + number, []) for number in range(20)])
WITH_HEADERS = batch(
    [
        (b"value", None, NOW_MS + number, [(f"h{at}", None if at else b"x" * number) for at in range(number % 3)])
        for number in range(20)
    ]
)


@settings(deadline=None)
@given(st.sampled_from([PLAIN, WITH_HEADERS]), st.integers(61, len(WITH_HEADERS) - 1), st.integers(0, 255))
@example(PLAIN, len(PLAIN) - 1, 1).via("-1 headers")
@example(WITH_HEADERS, WITH_HEADERS.rindex(b"h0") + 2, 126).via("a header that ends behind the batch")
@example(WITH_HEADERS, WITH_HEADERS.index(b"h0") + 2, 126).via("a header that ends behind its record")
def test_damage_is_never_read(whole: bytes, at: int, byte: int) -> None:
    """One byte changed: the checksum says so, and without one the quick way reads as the library or not at all."""
    damaged = bytearray(whole)
    damaged[at] = byte
    if damaged == whole:
        return
    with pytest.raises(CorruptRecordException):
        in_tables(bytes(damaged))
    (found,) = batches_of(bytes(damaged))
    columns = _columns_at_once(found)
    if columns is not None:
        with suppress(UnicodeDecodeError):  # names of headers that are no text are read, which the library cannot
            kept = list(DefaultRecordBatch(bytes(damaged)))
            assert columns[0].to_pylist() == [each.offset for each in kept]
            assert columns[3].to_pylist() == [each.key for each in kept]
            assert columns[4].to_pylist() == [each.value for each in kept]
            told = [[(each["name"], each["value"]) for each in own or ()] for own in columns[5].to_pylist()]
            assert told == [list(each.headers) for each in kept]


def test_the_library_hands_tables_out() -> None:
    """What it does with a fetch that was consumed in part: the position is that of the next record."""
    data = batch([(b"v", None, NOW_MS, [])] * 5)
    room = Room(2, ROOMY)
    plain = PartitionRecords(
        PARTITION, KeptRecords(data), None, 0, None, None, check_crcs=True, isolation_level=READ_COMMITTED
    )

    class Assigned:
        """An assignment with this one partition."""

        active = True
        paused = False
        position = 0

        def state_value(self, _partition: TopicPartition) -> Any:
            """The partition's state is this too."""
            return self

        def consumed_to(self, position: int) -> None:
            """Move on."""
            self.position = position

    assigned = Assigned()
    result = FetchResult(PARTITION, assignment=assigned, partition_records=FetchedTables(plain, room), backoff=0)
    (first,) = result.getall(1)
    assert isinstance(first, pa.Table)
    assert (first.num_rows, assigned.position, result.has_more()) == (2, 2, True)
    room.records, room.size_bytes = 10, ROOMY
    (second,) = result.getall(1)
    assert (second.num_rows, assigned.position) == (3, 5)
    assert result.getall(1) == []
    assert not result.has_more()


@contextmanager
def no_collection() -> Iterator[None]:
    """What is let go of goes at once, or stays: no collector looks for cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("taken", [0, 2, 5])
def test_a_fetch_is_gone_as_soon_as_nobody_reads_on(taken: int) -> None:
    """Read to its end, in part or not at all: a cycle would keep its megabytes until the collector looks."""
    data = batch([(b"v", None, NOW_MS, [])] * 2) + batch([(b"v", None, NOW_MS, [])] * 3, base=2)
    with no_collection():
        plain = PartitionRecords(
            PARTITION, KeptRecords(data), None, 0, None, None, check_crcs=True, isolation_level=READ_COMMITTED
        )
        kept = weakref.ref(plain._records)
        found = FetchedTables(plain, Room(taken, ROOMY))
        assert sum(table.num_rows for table in found) == taken
        del plain, found
        assert kept() is None


def test_a_fetch_that_is_damaged_is_gone_too() -> None:
    """What the error leaves to be read is nothing, so that the library asks for it again."""
    data = bytearray(batch([(b"v", None, NOW_MS, [])] * 2) + batch([(b"w", None, NOW_MS, [])] * 3, base=2))
    data[-1] ^= 1
    with no_collection():
        plain = PartitionRecords(
            PARTITION, KeptRecords(bytes(data)), None, 0, None, None, check_crcs=True, isolation_level=READ_COMMITTED
        )
        kept = weakref.ref(plain._records)
        room = Room(2, ROOMY)
        found = FetchedTables(plain, room)
        assert next(found).num_rows == 2
        room.records = 10
        with pytest.raises(CorruptRecordException):
            next(found)
        assert next(found, None) is None
        assert found.next_fetch_offset == 2
        del plain, found
        assert kept() is None
