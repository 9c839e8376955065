"""Record batches as a broker sends them → Arrow columns: the way back of `service.kafka.batches`.

Record batch format v2 (KIP-98, `org.apache.kafka.common.record.DefaultRecord`): every record is
`length attributes timestampDelta offsetDelta keyLength key valueLength value headers`, numbers as zigzag varints. Where
a record begins is known only from the one before it, so the lengths are walked through, a few instructions a record;
all else is done for all records of a batch at once.

What is seldom goes the client library's own way, a step a record: batches of formats before v2, records of very many
headers, and whatever is not as it should be, so that the library says what is wrong with it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from aiokafka import codec
from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

_HEADER_OF_RECORD: Any = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
_COLUMNS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
    pa.field("timestamp_type", pa.int8()),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.list_(_HEADER_OF_RECORD)),
]
RECORDS_SCHEMA = pa.schema(_COLUMNS)
"""Columns of fetched records: milliseconds since the epoch, type 0 = set by the producer, 1 = by the broker; headers
are null where a record has none."""

# baseOffset batchLength leaderEpoch magic crc attributes lastOffsetDelta firstTimestamp maxTimestamp
# producerId producerEpoch baseSequence recordCount
_HEADER = struct.Struct(">qiibIhiqqqhii")
_START = struct.Struct(">qiib")
_LENGTH_COUNTS_FROM = 12
_ATTRIBUTES_AT = 21
_MAGIC = 2
_CODEC, _BROKER_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_DECOMPRESS: Mapping[int, Callable[[Any], bytes]] = {
    0: bytes,
    1: codec.gzip_decode,
    2: codec.snappy_decode,
    3: codec.lz4_decode,
    4: codec.zstd_decode,
}
_MORE = 0x80
_VARINT_BITS = 7
_VARINT_BYTES_MAX = 10
_LENGTH_BITS_MAX = 32
_NULL_SIZE = -1
_HEADERS_MAX = 64
"""Of one record; those of more are read one by one, as each number of headers is a step for the whole batch."""
_Places: TypeAlias = "npt.NDArray[np.int64]"
"""Of each record one, counted in bytes from where the records begin."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch of a fetch, its header read."""

    data: memoryview
    """All of it, header included."""
    base_offset: int
    magic: int
    attributes: int = 0
    next_offset: int = -1
    """The offset after its last record, also after compaction; -1 in formats before v2, which do not say it."""
    first_ms: int = 0
    max_ms: int = 0
    producer_id: int = -1
    count: int = 0

    @property
    def is_transactional(self) -> bool:
        """Whether its records count only if their transaction was committed."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it is a mark of a transaction's end, and has no records for anyone."""
        return bool(self.attributes & _CONTROL)

    def demand_checksum(self) -> None:
        """Raise CorruptRecordException where the bytes are not those that were written."""
        if self.magic >= _MAGIC and calc_crc32c(self.data[_ATTRIBUTES_AT:]) != _HEADER.unpack_from(self.data)[4]:
            raise CorruptRecordException(f"a record batch at offset {self.base_offset} has another checksum")


def batches_of(data: bytes) -> Iterator[Batch]:
    """The whole record batches of a fetch, in order; the broker may have cut off the last one."""
    whole, at = memoryview(data), 0
    while len(whole) - at > _START.size:
        base_offset, length, _, magic = _START.unpack_from(whole, at)
        end = at + _LENGTH_COUNTS_FROM + length
        if end > len(whole):
            return
        batch = whole[at:end]
        if magic >= _MAGIC:
            *_, attributes, last, first_ms, max_ms, producer_id, _, _, count = _HEADER.unpack_from(batch)
            next_offset = base_offset + last + 1
            yield Batch(batch, base_offset, magic, attributes, next_offset, first_ms, max_ms, producer_id, count)
        else:
            yield Batch(batch, base_offset, magic)
        at = end


def table_of(batch: Batch, *, topic: str, partition: int) -> pa.Table:
    """The records of a batch, with `RECORDS_SCHEMA`. Raises the client library's errors."""
    columns = _columns_at_once(batch) if batch.magic >= _MAGIC and batch.count > 0 else None
    if columns is None:
        columns = _columns_by_record(batch)
    count = len(columns[0])
    places: list[Any] = [
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
    ]
    return pa.table([*places, *columns], schema=RECORDS_SCHEMA)


def _columns_by_record(batch: Batch) -> list[Any]:
    """Offset, timestamp, its type, key, value and headers, as the library reads them."""
    records: list[Any] = []
    kept = MemoryRecords(bytes(batch.data))
    while kept.has_next():
        records += kept.next_batch() or ()
    columns = [
        [record.offset for record in records],
        [record.timestamp for record in records],
        [record.timestamp_type for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [
            [{"name": name, "value": value} for name, value in record.headers] if record.headers else None
            for record in records
        ],
    ]
    kinds = _COLUMNS[-len(columns) :]
    return [pa.array(column, kind.type) for column, kind in zip(columns, kinds, strict=True)]


def _columns_at_once(batch: Batch) -> list[Any] | None:
    """The same columns; None for a batch that is not as it should be, or has a record of very many headers."""
    body = _DECOMPRESS[batch.attributes & _CODEC](batch.data[_HEADER.size :])
    try:
        bounds = _walk(body, batch.count)
        if len(body) != bounds[-1]:
            return None
        data = np.frombuffer(body, np.uint8)
        sizes, begins = _varints(data, bounds[:-1])
        stamps, at = _varints(data, begins + 1)  # behind the attributes, which are 0 in every version
        places, at = _varints(data, at)
        key_sizes, key_at = _varints(data, at)
        value_sizes, value_at = _varints(data, key_at + np.maximum(key_sizes, 0))
        counts, end_at = _varints(data, value_at + np.maximum(value_sizes, 0))
        headers = _headers(body, counts, end_at, bounds[1:])
    except IndexError:
        return None
    if (
        data[begins].any()
        or not np.array_equal(begins + sizes, bounds[1:])
        or min(key_sizes.min(), value_sizes.min()) < _NULL_SIZE
    ):
        return None
    is_by_broker = bool(batch.attributes & _BROKER_TIME)
    timestamps = np.full(batch.count, batch.max_ms, np.int64) if is_by_broker else batch.first_ms + stamps
    return [
        pa.array(batch.base_offset + places),
        pa.array(timestamps),
        pa.array(np.full(batch.count, int(is_by_broker), np.int8)),
        _cut(body, key_at, key_sizes),
        _cut(body, value_at, value_sizes),
        headers,
    ]


def _headers(body: bytes, counts: _Places, at: _Places, record_ends: _Places) -> Any:
    """The headers of each record, so many from these places on, up to where the record ends.

    They are read for all records together, first those that come first. Raises IndexError where they are not as they
    should be, or more than are usual: nothing is cut out of a body before all of it is known to lie within its record.
    """
    count_max = int(counts.max())
    if counts.min() < 0 or count_max > _HEADERS_MAX:
        raise IndexError(count_max)
    data, ends = np.frombuffer(body, np.uint8), at.copy()
    offsets = np.concatenate(([0], np.cumsum(counts)))
    # Of each header: the size of its name and where it is, the same of its value.
    found = np.empty((4, offsets[-1]), np.int64)
    for number in range(count_max):
        rows = np.flatnonzero(counts > number)
        name_sizes, name_at = _varints(data, ends[rows])
        value_sizes, value_at = _varints(data, name_at + name_sizes)
        ends[rows] = value_at + np.maximum(value_sizes, 0)
        found[:, offsets[rows] + number] = name_sizes, name_at, value_sizes, value_at
    name_sizes, name_at, value_sizes, value_at = found
    if not np.array_equal(ends, record_ends) or (name_sizes < 0).any() or (value_sizes < _NULL_SIZE).any():
        raise IndexError(len(body))
    kind: Any = _COLUMNS[-1].type
    if not count_max:
        return pa.nulls(len(counts), kind)
    children = [_names(_cut(body, name_at, name_sizes)), _cut(body, value_at, value_sizes)]
    items = pa.StructArray.from_arrays(children, fields=list(kind.value_type))
    starts: Any = pa.array(offsets.astype(np.int32))
    return pa.ListArray.from_arrays(starts, items, type=kind, mask=pa.array(counts == 0))


def _names(column: Any) -> Any:
    """As texts; what is no UTF-8 is U+FFFD, as Java's client has it, where the library could not go on."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each.decode(errors="replace") for each in column.to_pylist()], pa.string())


def _walk(body: bytes, count: int) -> _Places:
    """Where each record begins with its length, and where the last one ends. Raises IndexError if that is too far."""
    at = 0
    places = [at]
    for _ in range(count):
        length = body[at]
        at += 1
        if length >= _MORE:
            more = body[at]
            at += 1
            length += (more - 1) << _VARINT_BITS
            bits = 2 * _VARINT_BITS
            while more >= _MORE:
                if bits > _LENGTH_BITS_MAX:
                    raise IndexError(at)
                more = body[at]
                at += 1
                length += (more - 1) << bits
                bits += _VARINT_BITS
        at += length >> 1
        places.append(at)
    return np.array(places, np.int64)


def _varints(data: npt.NDArray[np.uint8], at: _Places) -> tuple[npt.NDArray[np.int64], _Places]:
    """The zigzag varints at these places, and where each ends. Raises IndexError where one goes too far."""
    first = data[at]
    value = (first & (_MORE - 1)).astype(np.uint64)
    end = at + 1
    rows = np.flatnonzero(first & _MORE)
    bits = _VARINT_BITS
    while len(rows):
        if bits >= _VARINT_BITS * _VARINT_BYTES_MAX:
            raise IndexError(bits)
        byte = data[end[rows]]
        value[rows] |= (byte & (_MORE - 1)).astype(np.uint64) << np.uint64(bits)
        end[rows] += 1
        rows = rows[(byte & _MORE) != 0]
        bits += _VARINT_BITS
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), end


def _cut(body: bytes, at: _Places, sizes: npt.NDArray[np.int64]) -> Any:
    """The bytes at these ascending places as a binary column, null where the size is negative.

    The body is read as a column of gaps and slices in turn, of which the slices are taken: a copy, without a step of
    Python a record.
    """
    is_null = sizes < 0
    if is_null.all():
        return pa.nulls(len(sizes), pa.binary())
    bounds = np.empty(2 * len(sizes) + 1, np.int32)
    bounds[0] = 0
    bounds[1::2] = at
    bounds[2::2] = at + np.maximum(sizes, 0)
    in_turn = pa.Array.from_buffers(pa.binary(), 2 * len(sizes), [None, pa.py_buffer(bounds.data), pa.py_buffer(body)])
    rows: Any = pa.array(np.arange(1, 2 * len(sizes), 2), mask=is_null if is_null.any() else None)
    return in_turn.take(rows)
