"""What tells a file from another one of the same name: its inode, and a digest of what was read.

The source offset is ``{"position": bytes, "inode": number, "signature": digest}``. Only ``position`` is needed to
resume, so offsets that Kafka Connect wrote are taken as they are (Connect counts characters where we count bytes:
the two differ after text that is not ASCII). The signature covers the first and the last ``EDGE_BYTES`` before
``position``: enough to notice a file that was truncated and has grown past the position again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from fetchers.sdk import Fatal, Offset

EDGE_BYTES = 256

ReadAt = Callable[[int, int], bytes]
"""``read_at(bytes_max, position)``, as ``os.pread``."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The edges of what was read of a file: its first bytes and those before ``position``."""

    position: int = 0
    head: bytes = b""
    tail: bytes = b""

    def after(self, raw: bytes) -> Mark:
        """The mark after ``raw`` was read as well."""
        head = self.head if len(self.head) == EDGE_BYTES else (self.head + raw[:EDGE_BYTES])[:EDGE_BYTES]
        tail = raw[-EDGE_BYTES:] if len(raw) >= EDGE_BYTES else (self.tail + raw)[-EDGE_BYTES:]
        return Mark(self.position + len(raw), head, tail)

    @property
    def signature(self) -> str:
        """Digest for the source offset."""
        return blake2b(self.head + b"|" + self.tail, digest_size=8).hexdigest()

    def is_in(self, read_at: ReadAt) -> bool:
        """Whether a file still begins with what was read."""
        return self == mark_at(read_at, self.position)


def mark_at(read_at: ReadAt, position: int) -> Mark | None:
    """The mark of a file at ``position``, or None when it is shorter."""
    length = min(position, EDGE_BYTES)
    head = read_at(length, 0) if length else b""
    tail = read_at(length, position - length) if length else b""
    return Mark(position, head, tail) if len(head) == len(tail) == length else None


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """A source offset as it was stored."""

    position: int = 0
    inode: int | None = None
    signature: str | None = None

    @property
    def offset(self) -> dict[str, str | int]:
        """The source offset to store."""
        values = {"position": self.position, "inode": self.inode, "signature": self.signature}
        return {key: value for key, value in values.items() if value is not None}

    def mark_in(self, read_at: ReadAt) -> Mark | None:
        """The mark at the position, when the file there is the one the offset was taken from."""
        mark = mark_at(read_at, self.position)
        if mark is None or (self.signature is not None and mark.signature != self.signature):
            return None
        return mark


def stored_offset(offset: Offset) -> StoredOffset | None:
    """Read a source offset; None when there is none. Raises Fatal for one that cannot be of a file."""
    if not offset:
        return None
    position, inode, signature = (offset.get(key) for key in ("position", "inode", "signature"))
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        message = f"stored offset {dict(offset)} has no 'position' that is a non-negative number; alter or reset it"
        raise Fatal(message)
    return StoredOffset(
        position,
        inode if isinstance(inode, int) else None,
        signature if isinstance(signature, str) else None,
    )


def offset_after(mark: Mark, inode: int) -> dict[str, str | int]:
    """The source offset of a mark."""
    return StoredOffset(mark.position, inode, mark.signature).offset
