"""Which partition a keyed record goes to: Java's default partitioner, for a whole column at once.

The same key must reach the same partition whoever writes it, so the hash is the 32-bit murmur2 of
Kafka's Java client (`org.apache.kafka.common.utils.Utils.murmur2`), seed and sign handling included.
Records without key have no rule to obey; `service.kafka.batches` keeps them together so that batches stay large.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from service.kafka.records import Column

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF
_LANE_BYTES = 4
# Longer keys are hashed one by one: in lock-step a single one would cost a pass over numpy per four bytes.
_LOCKSTEP_BYTES_MAX = 2048
# So are few keys: a pass costs the same for one row as for a hundred.
_LOCKSTEP_ROWS_MIN = 16


def key_partitions(keys: Column, *, partitions: int) -> npt.NDArray[np.int32]:
    """Partition of each key of a binary column, -1 where the key is null."""
    hashes = murmur2_column(keys)
    chosen = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    if keys.null_count:
        chosen[np.asarray(keys.is_null())] = -1
    return chosen


def murmur2_column(column: Column) -> npt.NDArray[np.uint32]:
    """Hash of each value of a binary (not large_binary) column; null rows hash as empty."""
    count = len(column)
    _, offsets_buffer, data_buffer = column.buffers()
    if offsets_buffer is None or data_buffer is None:
        return np.full(count, murmur2(b""), dtype=np.uint32)
    offsets = np.frombuffer(memoryview(offsets_buffer), dtype=np.int32)[column.offset :][: count + 1].astype(np.int64)
    raw = np.frombuffer(memoryview(data_buffer), dtype=np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.empty(count, dtype=np.uint32)
    is_alone = lengths > (_LOCKSTEP_BYTES_MAX if count >= _LOCKSTEP_ROWS_MIN else -1)
    for row in np.flatnonzero(is_alone):
        hashes[row] = murmur2(raw[starts[row] : starts[row] + lengths[row]].tobytes())
    together = np.flatnonzero(~is_alone)
    if len(together):
        hashes[together] = _lockstep(raw, starts[together], lengths[together])
    return hashes


def _lockstep(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Hash all rows side by side, four bytes of every row a step; rows that end earlier drop out."""
    mix = np.uint32(_MIX)
    # Longest first, so that the rows still running are always a prefix.
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    lanes = lengths // _LANE_BYTES
    for lane in range(int(lanes[0])):
        running = int(np.searchsorted(-lanes, -lane, side="left"))
        k = _lane_at(raw, starts[:running] + lane * _LANE_BYTES)
        k *= mix
        k ^= k >> np.uint32(_SHIFT)
        k *= mix
        hashes[:running] *= mix
        hashes[:running] ^= k
    tail_start = starts + lanes * _LANE_BYTES
    tail = lengths % _LANE_BYTES
    for index in (2, 1, 0):
        rows = tail > index
        hashes[rows] ^= raw[tail_start[rows] + index].astype(np.uint32) << np.uint32(8 * index)
    rows = tail > 0
    hashes[rows] *= mix
    hashes ^= hashes >> np.uint32(13)
    hashes *= mix
    hashes ^= hashes >> np.uint32(15)
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _lane_at(raw: npt.NDArray[np.uint8], position: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    lane = raw[position].astype(np.uint32)
    for index in (1, 2, 3):
        lane |= raw[position + index].astype(np.uint32) << np.uint32(8 * index)
    return lane


def murmur2(data: bytes) -> int:
    """Hash one value, unsigned; the form for values too long to go in lock-step."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length - length % _LANE_BYTES
    for (lane,) in struct.iter_unpack("<I", data[:whole]):
        k = (lane * _MIX) & _MASK
        k ^= k >> _SHIFT
        h = ((h * _MIX) & _MASK) ^ ((k * _MIX) & _MASK)
    tail = data[whole:]
    if tail:
        h = ((h ^ int.from_bytes(tail, "little")) * _MIX) & _MASK
    h ^= h >> 13
    h = (h * _MIX) & _MASK
    return h ^ (h >> 15)
