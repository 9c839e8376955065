"""Transactions that MySQL has compressed: the same rows as of the plain ones, from any place, and no more memory.

The MySQL of the tests is 8.0.15, which compresses none. So the bytes are written here, as ``libbinlogevents`` has them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.events import Event, EventReader, MalformedError
from fetchers.mysql_cdc.payload import JOINED, events_of
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.segment import Segment
from fetchers.mysql_cdc.segments import Segments
from fetchers.mysql_cdc.table_map import NotDescribed
from tests.binlog_server import FILE, NAMED, WrittenLog, WrittenTable, named, packed
from tests.unit.mysql_cdc.test_segments import cut_behind, images_of

TABLES = [WrittenTable("w", name, NAMED, number=at) for at, name in enumerate("ab", 1)]
Changes = Sequence[tuple[int, int]]
"""Of a transaction: which table, and how many rows."""


def inner_of(changes: Changes) -> bytes:
    """The events of a transaction, without checksums."""
    log = WrittenLog()
    log.events.clear()
    log.query("BEGIN")
    for at, count in changes:
        log.add(events.TABLE_MAP, TABLES[at].described())
        log.add(events.WRITE_V1, TABLES[at].rows([named(number, "x" * 30) for number in range(count)]))
    log.add(events.XID, bytes(8))
    return b"".join(one[:9] + struct.pack("<I", len(one) - 4) + one[13:-4] for _, one in log.events)


def payload_of(inner: bytes, *, size: int | None = None, algorithm: int = 0) -> bytes:
    """The body of a payload; ``size``: what it says of the events' bytes."""
    data = pa.compress(inner, codec="zstd", asbytes=True) if not algorithm else inner
    told = _wide(len(inner) if size is None else size)
    fields = [(2, packed(algorithm)), (3, told), (1, _wide(len(data)))]
    return b"".join(packed(kind) + packed(len(value)) + value for kind, value in fields) + b"\0" + data


def log_of(transactions: Sequence[Changes]) -> WrittenLog:
    """MySQL's: a GTID and a payload each."""
    log = WrittenLog()
    for number, changes in enumerate(transactions, 1):
        log.add(events.GTID, b"\0" + bytes(16) + struct.pack("<Q", number) + bytes(8))
        log.add(events.TRANSACTION_PAYLOAD, payload_of(inner_of(changes)))
    return log


def segments_of(log: WrittenLog, place: Place, bytes_max: int) -> list[Segment]:
    """All segments from a place on."""
    made = Segments(place, lambda _: True, is_mariadb=False, bytes_max=bytes_max)
    found = [made.take(one) for one in made.each(EventReader().feed(b"".join(log.packets(place.position))))]
    return [*filter(None, found), made.close()]


def rows_of(segments: Sequence[Segment]) -> dict[str, list[Any]]:
    """Row images by table."""
    found: dict[str, list[Any]] = {}
    for segment in segments:
        for run in segment.runs:
            found.setdefault(run.table.name, []).extend(images_of(run))
    return found


@given(
    transactions=st.lists(
        st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30)), min_size=1, max_size=6), min_size=1, max_size=4
    ),
    runs=st.lists(st.tuples(st.integers(300, 3000), st.integers(0, 40)), min_size=1, max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_from_any_place_the_rest_comes(transactions: list[list[tuple[int, int]]], runs: list[tuple[int, int]]) -> None:
    """Also from one inside a payload, between any two pages: each row once, and all of them."""
    log = log_of(transactions)
    expected: dict[str, list[bytes]] = {}
    for changes in transactions:
        for at, count in changes:
            images = [TABLES[at].image(named(number, "x" * 30)) for number in range(count)]
            expected.setdefault(f"w.{'ab'[at]}", []).extend(images)
    before: list[Segment] = []
    place = Place(FILE)
    for bytes_max, at in runs:
        done, place = cut_behind(segments_of(log, place, bytes_max), at)
        before += done
    rest = segments_of(log, place, 10**6)
    assert rows_of([*before, *rest]) == expected
    assert rest[-1].end.position == log.position
    assert rest[-1].end.delivered == 0


def event_of(body: bytes) -> Event:
    """A payload in the log."""
    return Event(events.TRANSACTION_PAYLOAD, 0, 1, 1000, 1000 + 19 + len(body) + 4, 0, body, 0, len(body))


def test_no_event_is_a_place_that_another_one_has_too() -> None:
    """Of many events in few bytes: whoever goes on at a position that is not joined has all events up to it."""
    payload = event_of(payload_of(inner_of([(0, 1)] * 2000)))._replace(end_position=1500)
    found = list(events_of(payload))
    assert len(found) == 4002
    positions = [one.end_position for one in found]
    assert positions == sorted(positions)
    assert payload.begin_position < positions[0]
    assert positions[-1] == payload.end_position
    for one, behind in pairwise(found):
        assert bool(one.flags & JOINED) == (one.end_position == behind.end_position)
    assert not found[-1].flags & JOINED


def test_plain_payloads_are_read_and_damaged_ones_told() -> None:
    """Whatever is cut, changed or claimed."""
    inner = inner_of([(0, 5)])
    plain = [one[:3] for one in events_of(event_of(payload_of(inner, algorithm=255)))]
    assert plain == [one[:3] for one in events_of(event_of(payload_of(inner)))]
    body = payload_of(inner)
    broken = [body[:cut] for cut in range(1, len(body))]
    broken += [payload_of(inner, size=len(inner) - 1), payload_of(inner, size=len(inner) + 1)]
    broken += [payload_of(inner, algorithm=7), payload_of(inner[:9] + b"\xff\xff\xff\x07" + inner[13:])]
    broken += [payload_of(inner[:4] + bytes([events.TRANSACTION_PAYLOAD]) + inner[5:])]
    for data in broken:
        with pytest.raises(MalformedError):
            list(events_of(event_of(data)))


def test_a_bomb_is_not_held_in_memory() -> None:
    """One event of a GiB in a few KiB is refused by what it says; many are inflated one by one."""
    nothing = bytes(1 << 20)

    def parts(length: int, count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield struct.pack("<IBIIIH", 0, events.STOP, 1, length, 0, 0) + nothing

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packing:
        for one in parts(19 + (1 << 20), 512):
            packing.write(one)
    data = sink.getvalue().to_pybytes()
    size = 512 * (19 + (1 << 20))
    fields = b"\2\1\0" + b"\3" + packed(len(_wide(size))) + _wide(size) + b"\0"
    before = pa.total_allocated_bytes()
    highest = 0
    count = 0
    for _ in events_of(event_of(fields + data)):
        count += 1
        highest = max(highest, pa.total_allocated_bytes() - before)
    assert count == 512
    assert highest < 16 << 20
    claim = next(parts(19 + (1 << 30) - 1, 1))
    with pytest.raises(NotDescribed, match=r"binlog_transaction_compression = OFF.*snapshot\.request\.id"):
        list(events_of(event_of(payload_of(claim, size=1 << 15))))


def _wide(number: int) -> bytes:
    return b"\xfe" + number.to_bytes(8, "little")
