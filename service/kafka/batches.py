"""Arrow columns → Kafka record batches, without a Python step per record.

Record batch format v2 (KIP-98, `org.apache.kafka.common.record.DefaultRecord`): every record is
`length attributes timestampDelta offsetDelta keyLength key valueLength value headers`, numbers as
zigzag varints. The small parts are computed for all records at once and interleaved with keys and
values by one concatenating kernel, which runs outside the interpreter lock.

`EncodedBatch` stands in for the client's own batch builder, which takes one Python call a record.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.record.util import calc_crc32c

from service.kafka.headers import CompressedHeaders, PackedHeaders
from service.kafka.partitioner import key_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from service.kafka.compression import Compression
    from service.kafka.records import Column, TopicRecords

# baseOffset batchLength leaderEpoch magic crc attributes lastOffsetDelta firstTimestamp maxTimestamp
# producerId producerEpoch baseSequence recordCount
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_AT = struct.calcsize(">qiib")
_ATTRIBUTES_AT = _CRC_AT + 4
_LENGTH_COUNTS_FROM = 12
_MAGIC = 2
_TRANSACTIONAL = 0x10
_NO_HEADERS = b"\x00"
# Most that a record takes besides key, value and headers: five varints and the attributes byte.
RECORD_OVERHEAD_BYTES_MAX = 5 + 1 + 10 + 5 + 5 + 5
BATCH_HEADER_BYTES = _HEADER.size
_VARINT_BITS = 7

# The stubs of these kernels cover fewer combinations of arguments than the kernels.
_join: Any = pc.binary_join_element_wise
_binary_length: Any = pc.binary_length


@dataclass(frozen=True)
class Columns:
    """The normalised columns of some records: every one present, plain binary, nulls resolved."""

    values: Column
    keys: Column | None
    timestamps_ms: npt.NDArray[np.int64]
    header_blocks: Column | CompressedHeaders | None

    @classmethod
    def of(cls, records: TopicRecords, *, now_ms: int) -> Columns:
        """Normalise what the caller gave: chunked or large columns, absent timestamps, header lists."""
        count = len(records)
        stamps = records.timestamps_ms
        if stamps is None:
            timestamps = np.full(count, now_ms, dtype=np.int64)
        else:
            timestamps = np.asarray(_flat(stamps, pa.int64()).fill_null(now_ms))
        keys = None if records.keys is None else _flat(records.keys, pa.binary())
        if keys is not None and keys.null_count == count:
            keys = None
        blocks: Column | CompressedHeaders | None = None
        if isinstance(records.headers, CompressedHeaders):
            blocks = records.headers
        elif isinstance(records.headers, PackedHeaders):
            blocks = records.headers.blocks
        elif records.headers is not None and any(records.headers):
            blocks = PackedHeaders.of(records.headers).blocks
        return cls(_flat(records.values, pa.binary()), keys, timestamps, blocks)

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.values)

    def slice(self, start: int, count: int) -> Columns:
        """Give a view of consecutive records."""
        return Columns(
            self.values.slice(start, count),
            None if self.keys is None else self.keys.slice(start, count),
            self.timestamps_ms[start : start + count],
            None if self.header_blocks is None else self.header_blocks.slice(start, count),
        )

    def take(self, rows: npt.NDArray[np.int64]) -> Columns:
        """Copy some records, in the order given."""
        index: Any = pa.array(rows)
        return Columns(
            self.values.take(index),
            None if self.keys is None else self.keys.take(index),
            self.timestamps_ms[rows],
            None if self.header_blocks is None else self.header_blocks.take(index),
        )

    def sizes_bytes(self) -> npt.NDArray[np.int64]:
        """Upper bound of what each record takes in a batch."""
        sizes = np.maximum(_lengths(self.values), 0) + RECORD_OVERHEAD_BYTES_MAX
        if self.keys is not None:
            sizes += np.maximum(_lengths(self.keys), 0)
        sizes += _header_lengths(self.header_blocks)
        return sizes

    def pieces(self, *, batch_bytes_max: int) -> Iterator[Columns]:
        """Cut into runs that each fit one batch; a record over the limit goes alone."""
        ends = np.cumsum(self.sizes_bytes())
        start, sent = 0, 0
        while start < len(self):
            end = int(np.searchsorted(ends, sent + batch_bytes_max - BATCH_HEADER_BYTES, side="right"))
            end = max(end, start + 1)
            yield self.slice(start, end - start)
            start, sent = end, int(ends[end - 1])

    def by_partition(self, *, partitions: int, keyless_partition: int) -> Iterator[tuple[int, Columns]]:
        """Split by the key's partition, order kept within each; rows without key go to one partition."""
        if self.keys is None or partitions == 1:
            yield (keyless_partition if partitions > 1 else 0), self
            return
        chosen = key_partitions(self.keys, partitions=partitions)
        chosen[chosen < 0] = keyless_partition
        order = np.argsort(chosen, kind="stable")
        numbers, starts = np.unique(chosen[order], return_index=True)
        for number, rows in zip(numbers, np.split(order, starts[1:]), strict=True):
            yield int(number), self.take(rows)


class EncodedBatch:
    """A finished record batch, in the shape in which the client's accumulator expects its builder.

    Producer id, epoch and sequence are known only when the client sends it; they and the checksum
    are written then.
    """

    def __init__(self, columns: Columns, *, compression: Compression | None, is_transactional: bool) -> None:
        """Encode the records; costs about a millisecond a megabyte, and the compression, and needs no event loop."""
        self._count = len(columns)
        self._first_ms = int(columns.timestamps_ms[0])
        self._max_ms = int(columns.timestamps_ms.max())
        self._attributes = _TRANSACTIONAL if is_transactional else 0
        records: bytes | memoryview = encode_records(columns)
        if compression is not None:
            packed = compression.compressed(bytes(records))
            if len(packed) < len(records):
                records = packed
                self._attributes |= compression.number
        self._buffer = bytearray().join((bytes(BATCH_HEADER_BYTES), records))
        self._producer = (-1, -1, -1)
        self._is_built = False

    def record_count(self) -> int:
        """How many records are in it (called by the client)."""
        return self._count

    def size(self) -> int:
        """Bytes as sent (called by the client)."""
        return len(self._buffer)

    def close(self) -> None:
        """Do nothing: it was never open (called by the client)."""

    def closed(self) -> bool:
        """Tell the client that no record can join, so that it does not linger."""
        return True

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> bytearray:
        if not self._is_built:
            length = len(self._buffer) - _LENGTH_COUNTS_FROM
            last = self._count - 1
            _HEADER.pack_into(
                self._buffer, 0, 0, length, -1, _MAGIC, 0, self._attributes, last,
                self._first_ms, self._max_ms, *self._producer, self._count,
            )  # fmt: skip
            crc = calc_crc32c(memoryview(self._buffer)[_ATTRIBUTES_AT:])
            struct.pack_into(">I", self._buffer, _CRC_AT, crc)
            self._is_built = True
        return self._buffer


def encode_records(columns: Columns) -> memoryview:
    """Encode the records of one batch, one after another, without the batch header."""
    count = len(columns)
    values, keys, blocks = columns.values, columns.keys, columns.header_blocks
    value_lengths = _lengths(values)
    stamp = _varints(columns.timestamps_ms - columns.timestamps_ms[0])
    place = _varints(np.arange(count, dtype=np.int64))
    value_size = _varints(value_lengths)
    key_lengths = np.full(count, -1, np.int64) if keys is None else _lengths(keys)
    key_size = _varints(key_lengths)
    header_lengths = _header_lengths(blocks)
    body = (
        1 + stamp[1] + place[1] + key_size[1] + np.maximum(key_lengths, 0)
        + value_size[1] + np.maximum(value_lengths, 0) + header_lengths
    )  # fmt: skip
    attributes = (np.zeros((count, 1), np.uint8), np.ones(count, np.int64))
    start = (_varints(body), attributes, stamp, place, key_size)
    unpacked = blocks.blocks() if isinstance(blocks, CompressedHeaders) else blocks
    ends = pa.scalar(_NO_HEADERS, pa.binary()) if unpacked is None else unpacked
    parts: tuple[object, ...]
    if keys is None:
        parts = (_interleave(*start, value_size), values, ends)
    else:
        parts = (_interleave(*start), keys, _interleave(value_size), values, ends)
    joined = _join(*parts, pa.scalar(b"", pa.binary()), null_handling="replace")
    _, offsets_buffer, data_buffer = joined.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[joined.offset : joined.offset + count + 1]
    return memoryview(data_buffer)[int(offsets[0]) : int(offsets[-1])]


_Varints: TypeAlias = "tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]"


def _varints(numbers: npt.NDArray[np.int64]) -> _Varints:
    """Zigzag varints of all numbers: a byte matrix, left-aligned, and how many bytes of each row count."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    sizes = np.ones(len(numbers), dtype=np.int64)
    highest = int(zigzag.max())
    bits = _VARINT_BITS
    while highest >> bits:
        sizes += zigzag >= np.uint64(1 << bits)
        bits += _VARINT_BITS
    width = bits // _VARINT_BITS
    matrix = np.empty((len(numbers), width), dtype=np.uint8)
    for index in range(width):
        byte = (zigzag >> np.uint64(_VARINT_BITS * index)).astype(np.uint8) & 0x7F
        matrix[:, index] = byte | ((sizes > index + 1).astype(np.uint8) << 7)
    return matrix, sizes


def _interleave(*parts: _Varints) -> Column:
    """Concatenate the used bytes of several byte matrices row by row, as a binary column.

    Rows that use less than the widest are picked out byte by byte, as far as there are any: mostly those at the
    beginning of a batch, whose offset deltas are short.
    """
    matrix = np.concatenate([part[0] for part in parts], axis=1)
    count, width = matrix.shape
    offsets = np.zeros(count + 1, dtype=np.int32)
    sizes = np.sum([part[1] for part in parts], axis=0)
    np.cumsum(sizes, out=offsets[1:])
    narrow = np.flatnonzero(sizes < width)
    end = int(narrow[-1]) + 1 if len(narrow) else 0
    used = np.concatenate([np.arange(part[0].shape[1]) < part[1][:end, np.newaxis] for part in parts], axis=1)
    data = np.concatenate((matrix[:end][used], matrix[end:].reshape(-1)))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)])


def _lengths(column: Column) -> npt.NDArray[np.int64]:
    """Byte length of each row, -1 for null."""
    return np.asarray(_binary_length(column).fill_null(-1)).astype(np.int64)


def _header_lengths(blocks: Column | CompressedHeaders | None) -> npt.NDArray[np.int64] | int:
    """Byte length of each record's headers; of none it is that of their number."""
    if isinstance(blocks, CompressedHeaders):
        return blocks.lengths
    return 1 if blocks is None else _lengths(blocks)


def _flat(column: Column | pa.ChunkedArray[Any], kind: pa.DataType) -> Column:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column if column.type == kind else column.cast(kind)
