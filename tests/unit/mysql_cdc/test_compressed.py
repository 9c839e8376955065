"""Compressed events: the same rows as plain ones, and nothing that would fill the memory."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.compressed import uncompressed
from fetchers.mysql_cdc.events import Event, MalformedError
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.table_map import NotDescribed
from tests.binlog_server import FILE, WrittenLog, named
from tests.unit.mysql_cdc.test_segments import TABLES, segments_of


def test_compressed_rows_are_those_of_the_plain_event() -> None:
    """And bytes that are cut or changed are told, whatever they are, rather than half of the rows."""
    table = TABLES[0]
    body = table.rows([named(number, "x" * 40) for number in range(40)])
    at = 8 + 1 + 1  # number and flags, count of columns, their bits
    length = (len(body) - at).to_bytes(3, "big")
    packed = body[:at] + b"\x83" + length + zlib.compress(body[at:])
    log = WrittenLog()
    log.begin()
    log.add(events.TABLE_MAP, table.described())
    log.add(166, packed)
    log.add(events.XID, bytes(8))
    assert [mark.images for segment in segments_of(log, Place(FILE), bytes_max=10**6) for run in segment.runs
            for mark in run.marks] == [40]  # fmt: skip
    plain = Event(166, 0, 1, 0, 0, 0, packed, 0, len(packed))
    assert uncompressed(plain).data == body
    broken = [packed[:cut] for cut in range(len(packed))]
    broken += [packed[:at] + b"\x93" + packed[at + 1 :], packed[:at] + b"\x03" + packed[at + 1 :]]
    broken += [packed[: at + 1] + b"\xff\xff\xff" + packed[at + 4 :], packed[: at + 1] + bytes(3) + packed[at + 4 :]]
    for data in broken:
        with pytest.raises(MalformedError):
            uncompressed(plain._replace(data=data, end=len(data)))


def test_a_compressed_event_that_would_fill_the_memory_is_refused_by_what_it_says() -> None:
    """Before it is inflated: zeros of 300 MB are a few hundred KB. One that says less than it has is no event."""
    head = TABLES[0].rows([named(1, "x")])[: 8 + 1 + 1]

    def bomb(claimed: int, count: int) -> Event:
        packing = zlib.compressobj(1)
        zeros = b"".join([*(packing.compress(bytes(1 << 20)) for _ in range(count)), packing.flush()])
        data = head + b"\x84" + claimed.to_bytes(4, "big") + zeros
        return Event(166, 0, 1, 0, 0, 0, data, 0, len(data))

    refused = r"300000000 bytes.*log_bin_compress = OFF.*snapshot\.request\.id"
    for event, error, told in (
        (bomb(300_000_000, 300), NotDescribed, refused),
        (bomb(1000, 300), MalformedError, "not the length that it says"),
    ):
        tracemalloc.start()
        try:
            with pytest.raises(error, match=told):
                uncompressed(event)
            _, highest = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert highest < 16 << 20
