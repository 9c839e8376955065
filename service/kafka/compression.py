"""How record batches are compressed: Kafka's codecs, by the settings and the defaults of Java's producer (KIP-390)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cramjam
from aiokafka import codec

if TYPE_CHECKING:
    from collections.abc import Mapping

_GZIP_FORMAT = 31
"""zlib's way to ask for gzip's header and checksum, and for its largest window."""
_LZ4_LEVEL_MAX = 12
"""Of the compressor used here; Java's goes on to 17, for which this is the nearest."""
_LZ4_FAST = 1


@dataclass(frozen=True, slots=True)
class Compression:
    """One codec at one level; the default level is None, and for ``snappy``, which has no levels."""

    codec: str
    """``gzip``, ``snappy``, ``lz4`` or ``zstd``."""
    level: int | None = None

    LEVELS: ClassVar[Mapping[str, tuple[int, int, int]]] = {
        "gzip": (-1, 1, 9),
        "lz4": (9, 1, 17),
        "zstd": (3, -131_072, 22),
    }
    """Default, lowest and highest of ``compression.<codec>.level``; gzip's −1 leaves it to zlib, which takes 6."""
    _NUMBERS: ClassVar[Mapping[str, int]] = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

    @property
    def number(self) -> int:
        """The codec's bits in the attributes of a record batch."""
        return self._NUMBERS[self.codec]

    def compressed(self, data: bytes) -> bytes:
        """Takes some 10 ms (snappy) to 400 ms (gzip at 9) a megabyte, without holding the interpreter."""
        default = self.LEVELS.get(self.codec, (0, 0, 0))[0]
        level = default if self.level is None else self.level
        if self.codec == "gzip":
            gzip = zlib.compressobj(level, zlib.DEFLATED, _GZIP_FORMAT)
            return gzip.compress(data) + gzip.flush()
        if self.codec == "lz4":
            # Java takes its fast compressor for the default, and the thorough one for every level that is asked for.
            level = _LZ4_FAST if level == default else min(level, _LZ4_LEVEL_MAX)
            # By the library, which leaves the blocks of a frame independent, as brokers demand (KIP-57).
            blocks: bytes = codec.lz4_encode(data, level=level)
            return blocks
        if self.codec == "zstd":
            return bytes(cramjam.zstd.compress(data, level=level))
        packed: bytes = codec.snappy_encode(data)
        return packed
