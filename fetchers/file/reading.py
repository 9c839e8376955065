"""How files are read, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass

from fetchers.file.disk import Opener
from fetchers.file.events import FileEvent
from fetchers.sdk import Page


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
    pattern: str = ""
    """Files that match it are read on their own."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What one read of a file gave."""

    page: Page | None = None
    events: tuple[FileEvent, ...] = ()
    has_more: bool = False
    """Ask again at once."""
    is_waiting: bool = False
    """Nothing now, but what is here is not done with: the round is not finished."""
    trouble: str | None = None
    """What keeps this file from being read, to be raised when all others are read."""
