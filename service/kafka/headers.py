"""Headers as a record has them: their number, then names and values, each behind its length; numbers are varints.

Dead letters may be hundreds of thousands, with ten headers each: packed they take a fraction of what lists of them do.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from service.kafka.records import Column, Header

_VARINT_BITS = 7
_MORE = 0x80
_LOW_BITS = 0x7F


@dataclass(frozen=True)
class PackedHeaders(Sequence["Sequence[Header]"]):
    """The headers of some records, one binary value each; read back one by one, which is for tests."""

    blocks: Column

    @classmethod
    def of(cls, headers: Iterable[Sequence[Header]]) -> PackedHeaders:
        """Pack the headers of each record as they stand in a record batch."""
        names: dict[str, bytes] = {}
        return cls(pa.array([_packed(each, names) for each in headers], pa.binary()))

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.blocks)

    @overload
    def __getitem__(self, row: int) -> Sequence[Header]: ...
    @overload
    def __getitem__(self, row: slice) -> PackedHeaders: ...
    def __getitem__(self, row: int | slice) -> Sequence[Header] | PackedHeaders:
        """The headers of one record, or of some."""
        if isinstance(row, slice):
            return PackedHeaders(self.blocks[row])
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        return list(_unpacked(self.blocks[row].as_py()))


@dataclass(frozen=True)
class CompressedHeaders(Sequence["Sequence[Header]"]):
    """Packed headers that stay compressed until their records are encoded.

    Those of a million dead letters are 500 MB and nearly all alike: compressed (LZ4) a twentieth or less.
    """

    compressed: bytes
    ends: npt.NDArray[np.int32]
    """Where the block of each record ends, in what was compressed."""
    rows: npt.NDArray[np.int64]
    """Which of those records these are, in order."""

    @classmethod
    def of(cls, headers: Iterable[Sequence[Header]]) -> CompressedHeaders:
        """Pack the headers of records, in order, and compress them."""
        names: dict[str, bytes] = {}
        blocks = [_packed(each, names) for each in headers]
        ends = np.cumsum([len(block) for block in blocks], dtype=np.int32)
        return cls(pa.compress(b"".join(blocks), codec="lz4", asbytes=True), ends, np.arange(len(blocks)))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Bytes of each record's block."""
        return np.diff(self.ends, prepend=np.int32(0))[self.rows].astype(np.int64)

    def slice(self, start: int, count: int) -> CompressedHeaders:
        """Those of consecutive records; nothing is copied."""
        return CompressedHeaders(self.compressed, self.ends, self.rows[start : start + count])

    def take(self, rows: Any) -> CompressedHeaders:
        """Those of some records, in the order given."""
        return CompressedHeaders(self.compressed, self.ends, self.rows[np.asarray(rows)])

    def blocks(self) -> Column:
        """One binary value a record, as ``PackedHeaders`` has them."""
        data = pa.decompress(self.compressed, int(self.ends[-1]) if len(self.ends) else 0, codec="lz4")
        offsets = pa.py_buffer(np.concatenate([np.zeros(1, np.int32), self.ends]).data)
        every: Any = pa.Array.from_buffers(pa.binary(), len(self.ends), [None, offsets, data])
        return every.take(pa.array(self.rows))  # type: ignore[no-any-return]

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.rows)

    @overload
    def __getitem__(self, row: int) -> Sequence[Header]: ...
    @overload
    def __getitem__(self, row: builtins.slice) -> CompressedHeaders: ...
    def __getitem__(self, row: int | builtins.slice) -> Sequence[Header] | CompressedHeaders:
        """The headers of one record, or of some."""
        if isinstance(row, builtins.slice):
            return CompressedHeaders(self.compressed, self.ends, self.rows[row])
        return PackedHeaders(self.take([row]).blocks())[0]


def _packed(headers: Sequence[Header], names: dict[str, bytes]) -> bytes:
    """`names`: those that were packed before, which are few."""
    block = bytearray()
    _append_varint(block, len(headers))
    for name, value in headers:
        if name not in names:
            names[name] = _sized(name.encode())
        block += names[name]
        if value is None:
            _append_varint(block, -1)
        else:
            _append_varint(block, len(value))
            block += value
    return bytes(block)


def _sized(text: bytes) -> bytes:
    block = bytearray()
    _append_varint(block, len(text))
    return bytes(block + text)


def _append_varint(block: bytearray, number: int) -> None:
    rest = (number << 1) ^ (number >> 63)
    while rest > _LOW_BITS:
        block.append(_MORE | (rest & _LOW_BITS))
        rest >>= _VARINT_BITS
    block.append(rest)


def _unpacked(block: bytes) -> Iterable[Header]:
    count, at = _varint(block, 0)
    for _ in range(count):
        size, at = _varint(block, at)
        name, at = block[at : at + size].decode(), at + size
        size, at = _varint(block, at)
        yield name, None if size < 0 else block[at : at + size]
        at += max(size, 0)


def _varint(block: bytes, at: int) -> tuple[int, int]:
    """A number, and where what comes after it begins."""
    zigzag = bits = 0
    while block[at] & _MORE:
        zigzag |= (block[at] & _LOW_BITS) << bits
        bits, at = bits + _VARINT_BITS, at + 1
    zigzag |= block[at] << bits
    return (zigzag >> 1) ^ -(zigzag & 1), at + 1
