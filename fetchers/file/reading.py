"""How the files of a task are read, what one read gives, and the events that tell what a file did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fetchers.file.disk import Opener
from fetchers.sdk import Page
from metrics.events import Level, TaskEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvent(TaskEvent):
    """A fact about one file."""

    logger: ClassVar[str] = "headrace.fetch.file"
    level: ClassVar[Level] = Level.INFO
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMissing(FileEvent):
    """The file is not there; it is waited for. Told once."""

    level: ClassVar[Level] = Level.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRestarted(FileEvent):
    """Reading begins at byte 0 again, having been at ``position``.

    ``reason``: truncated | replaced | unknown (the offset fits no file that is there).
    """

    level: ClassVar[Level] = Level.WARNING
    reason: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFollowed(FileEvent):
    """The file was renamed and is read on, from ``position``; it was ``former`` before."""

    former: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesMissed(FileEvent):
    """After the file that was read last, others may have been at the path that are not read: ``names``.

    Their lines may be missing: look at them, and deliver by another connector what never came.
    """

    level: ClassVar[Level] = Level.WARNING
    names: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePassedOver(FileEvent):
    """The file's name is no UTF-8, so that no source offset can be stored for it: give it another. Told once."""

    level: ClassVar[Level] = Level.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLineGivenUp(FileEvent):
    """A line without end was delivered as it is. ``reason``: idle | rotated."""

    reason: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedLineLost(FileEvent):
    """``bytes`` of a line without end went with the truncation of their file."""

    level: ClassVar[Level] = Level.WARNING
    position: int
    bytes: int


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
