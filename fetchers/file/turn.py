"""How a file is read, and what comes of one turn of it."""

from __future__ import annotations

from dataclasses import dataclass

from fetchers.file.disk import ByteSource, Opener
from fetchers.file.events import FileEvent
from fetchers.file.mark import StoredOffset
from fetchers.sdk import Page

PAGE_GROWTH_MAX = 4
"""A page of short reads is filled up to so many times ``page_bytes`` to reach ``batch.size`` lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How files are read; the same for all files of a task."""

    connector: str
    task: int
    opener: Opener
    page_bytes: int
    page_lines: int
    line_bytes_max: int
    rotate_wait_seconds: float
    last_line_idle_seconds: float | None
    """None: a last line without end waits for ever."""

    def read_block(self, source: ByteSource, end: int) -> bytes:
        """About ``page_bytes`` from byte ``end``, or more when they hold too few lines."""
        blocks: list[bytes] = []
        size = lines = 0
        while size < self.page_bytes or (lines < self.page_lines and size < PAGE_GROWTH_MAX * self.page_bytes):
            block = source.read_at(self.page_bytes, end + size)
            if not block:
                break
            blocks.append(block)
            size += len(block)
            lines += block.count(b"\n")
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of one turn of a file."""

    page: Page | None = None
    events: tuple[FileEvent, ...] = ()
    has_more: bool = False
    """Ask again at once."""
    is_waiting: bool = False
    """Nothing now, but what is here is not done with: the round is not finished."""
    trouble: str | None = None
    """What keeps this file from being read, to be raised when all others are read."""


@dataclass(frozen=True, slots=True)
class Left:
    """What was read of a file that is no longer at its path, or no longer what it was: a copy may hold it."""

    path: str
    offset: StoredOffset
    is_truncated: bool
    """Whether the same file is there, with other content."""
