"""Small transactions by the hundred: what an event costs is added up once for a stretch of the log, not event by event.

A row that is inserted alone is four events of MariaDB: GTID, table, rows, commit. Where a stretch of bytes has nothing
but these, headers, positions and tables are read as columns, and only lengths and checksums are gone over one by one.
Whatever else the log has comes as single events, by ``EventReader``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fetchers.mysql_cdc.events import (
    ARTIFICIAL,
    CHECKSUM_BYTES,
    DELETE_V1,
    HEADER_BYTES,
    MARIADB_GTID,
    PACKET_BYTES_MAX,
    TABLE_MAP,
    UPDATE_V1,
    WRITE_V1,
    XID,
    Event,
    EventReader,
    MalformedError,
    ServerRefused,
)

Numbers = np.ndarray[Any, Any]
EVENTS = 4
"""Of such a transaction."""
TOGETHER_MIN = 8
"""Transactions in a row from which on they are read together: of fewer, the single events are the quicker way."""
_HEAD = np.dtype(
    [
        ("packet", "<u4"),
        ("status", "u1"),
        ("timestamp", "<u4"),
        ("kind", "u1"),
        ("server_id", "<u4"),
        ("length", "<u4"),
        ("position", "<u4"),
        ("flags", "<u2"),
    ]
)
"""Packet and event, as ``events`` has them."""
_BODY = 5 + HEADER_BYTES
"""From the beginning of a packet to the body of its event."""
_GTID_FLAGS_AT, _GTID_BYTES = 12, 13
_ALONE, _PREPARED = 1, 64


@dataclass(frozen=True)
class Transactions:
    """Transactions of one event with rows each, in the order of the log; iterated, it is all of their events."""

    data: bytes
    octets: Numbers
    heads: Numbers
    """Of each event."""
    starts: Numbers
    """Where each body begins in ``data``."""
    ends: Numbers
    """And where it ends, without its checksum."""

    def __len__(self) -> int:
        """How many transactions."""
        return len(self.heads) // EVENTS

    def __iter__(self) -> Iterator[Event]:
        """All events, as ``EventReader`` has them."""
        return map(self.event, range(len(self.heads)))

    def event(self, at: int) -> Event:
        """One event; the four of a transaction come one behind the other."""
        head = self.heads[at]
        length, position = int(head["length"]), int(head["position"])
        return Event(
            int(head["kind"]),
            int(head["timestamp"]),
            int(head["server_id"]),
            position - length,
            position,
            int(head["flags"]),
            self.data,
            int(self.starts[at]),
            int(self.ends[at]),
        )

    @cached_property
    def by_table(self) -> dict[bytes, Numbers]:
        """The transactions of each table, by the whole body of the event that describes it."""
        places = zip(self.starts[1::EVENTS].tolist(), self.ends[1::EVENTS].tolist(), strict=True)
        data = self.data
        bodies = [data[start:end] for start, end in places]
        codes = {body: code for code, body in enumerate(dict.fromkeys(bodies))}
        if len(codes) == 1:
            return {bodies[0]: np.arange(len(bodies))}
        coded = np.fromiter(map(codes.__getitem__, bodies), np.int64, len(bodies))
        return {body: np.flatnonzero(coded == code) for body, code in codes.items()}

    @property
    def positions(self) -> Numbers:
        """Where in the log's file each event ends."""
        found: Numbers = self.heads["position"].astype(np.int64)
        return found

    @cached_property
    def gtids(self) -> list[tuple[str, int]]:
        """Of each transaction: ``domain-server`` and number."""
        at = self.starts[::EVENTS, None] + np.arange(_GTID_BYTES)
        body = np.ascontiguousarray(self.octets[at])
        numbers = body[:, :8].copy().view("<u8")[:, 0].tolist()
        domains = body[:, 8:12].copy().view("<u4")[:, 0].tolist()
        servers = self.heads["server_id"][::EVENTS].tolist()
        return [
            (f"{domain}-{server}", number) for domain, server, number in zip(domains, servers, numbers, strict=True)
        ]

    def check(self) -> None:
        """Raise ``MalformedError`` where a checksum is wrong."""
        view, crc32 = memoryview(self.data), zlib.crc32
        places = zip((self.starts - HEADER_BYTES).tolist(), self.ends.tolist(), strict=True)
        found = np.fromiter((crc32(view[start:end]) for start, end in places), np.uint32, len(self.starts))
        told = np.ascontiguousarray(self.octets[self.ends[:, None] + np.arange(CHECKSUM_BYTES)]).view("<u4")[:, 0]
        if (found != told).any():
            position = int(self.positions[int(np.argmax(found != told))])
            raise MalformedError(f"the checksum of the event before position {position} is wrong")


class TransactionReader:
    """Makes events and stretches of transactions of the bytes of a connection, however these are cut."""

    def __init__(self) -> None:
        """The first bytes are those of a packet."""
        self._events = EventReader()

    def feed(self, data: bytes) -> list[Event | Transactions]:
        """All that is whole now; raises as ``EventReader.feed``."""
        data = self._events.take_rest() + data
        starts = _packets(data)
        found: list[Event | Transactions] = []
        done = 0
        if len(starts) >= TOGETHER_MIN * EVENTS:
            octets = np.frombuffer(data, np.uint8)
            places = np.asarray(starts, np.int64)
            heads = np.ascontiguousarray(octets[places[:, None] + np.arange(_HEAD.itemsize)]).view(_HEAD)[:, 0]
            for first, count in _stretches(octets, places, heads):
                begin = starts[first]
                found += self._events.feed(data[done:begin])
                done = begin
                if self._events.has_checksums is None:
                    continue
                made = slice(first, first + count * EVENTS)
                done = starts[made.stop] if made.stop < len(starts) else begin + _bytes_of(heads[made])
                ends = places[made] + 4 + (heads["packet"][made] & PACKET_BYTES_MAX)
                if self._events.has_checksums:
                    ends -= CHECKSUM_BYTES
                one = Transactions(data, octets, heads[made], places[made] + _BODY, ends)
                if self._events.has_checksums:
                    one.check()
                found.append(one)
        try:
            found += self._events.feed(data[done:])
        except (EOFError, ServerRefused):
            if not found:
                raise
        return found

    @property
    def is_ended(self) -> bool:
        """As ``EventReader.is_ended``."""
        return self._events.is_ended


def _packets(data: bytes) -> list[int]:
    """Where whole packets with an event begin; the last one is left out where more may belong to it."""
    starts: list[int] = []
    add, at, last = starts.append, 0, len(data) - _BODY
    while at <= last:
        packet = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        end = at + 4 + packet
        if packet == PACKET_BYTES_MAX or packet <= HEADER_BYTES or end > len(data):
            break
        add(at)
        at = end
    return starts


def _bytes_of(heads: Numbers) -> int:
    return int((4 + (heads["packet"] & PACKET_BYTES_MAX).astype(np.int64)).sum())


def _stretches(octets: Numbers, places: Numbers, heads: Numbers) -> Iterator[tuple[int, int]]:
    """The first event of each stretch of such transactions, and how many these are."""
    kinds, sizes = heads["kind"], (heads["packet"] & PACKET_BYTES_MAX).astype(np.int64)
    is_event = (heads["status"] == 0) & (sizes == heads["length"].astype(np.int64) + 1)
    is_event &= (heads["flags"] & ARTIFICIAL == 0) & (heads["position"] > 0)
    is_rows = (kinds == WRITE_V1) | (kinds == UPDATE_V1) | (kinds == DELETE_V1)
    is_begun = (kinds[:-3] == MARIADB_GTID) & (kinds[1:-2] == TABLE_MAP) & is_rows[2:-1] & (kinds[3:] == XID)
    is_begun &= is_event[:-3] & is_event[1:-2] & is_event[2:-1] & is_event[3:]
    # All three bodies are at least as long as what is looked at here, and their checksums.
    is_begun &= sizes[:-3] > HEADER_BYTES + _GTID_BYTES + CHECKSUM_BYTES
    is_begun &= (sizes[1:-2] > HEADER_BYTES + 8 + CHECKSUM_BYTES) & (sizes[2:-1] > HEADER_BYTES + 8 + CHECKSUM_BYTES)
    first = np.flatnonzero(is_begun)
    flags = octets[places[first] + _BODY + _GTID_FLAGS_AT]
    number = np.arange(6)
    described, used = (octets[(places[first + at] + _BODY)[:, None] + number] for at in (1, 2))
    first = first[(flags & (_ALONE | _PREPARED) == 0) & (described == used).all(axis=1)]
    cuts = np.flatnonzero(np.diff(first) != EVENTS) + 1
    bounds = np.concatenate(([0], cuts, [len(first)]))
    for begin, size in zip(bounds[:-1].tolist(), np.diff(bounds).tolist(), strict=True):
        if size >= TOGETHER_MIN:
            yield int(first[begin]), size
