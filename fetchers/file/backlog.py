"""How far behind its files a task is: since when there has been something in them that it has not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fetchers.file.disk import FileLook
from fetchers.file.followed import FollowedFile


@dataclass(frozen=True, slots=True)
class _Unread:
    since_ns: int
    look: FileLook
    """When this much of the file is read, what is left was written after it."""


class Backlog:
    """Remembers of each file that is not read to its end how it looked. Not for concurrent use.

    What is unread when a file is first seen to have more counts from the file's modification time, which is all that
    is known of it. A file that grows while it is read is never older by that time, so its size is remembered with it.
    """

    def __init__(self) -> None:
        self._unread: dict[FollowedFile, _Unread] = {}

    def seconds(self, unread: Mapping[FollowedFile, FileLook], now: datetime) -> float:
        """Age of the oldest of what is left in these files; all others are read. 0 where there is none."""
        self._unread = {file: self._updated(file, look) for file, look in unread.items()}
        oldest_ns = min((each.since_ns for each in self._unread.values()), default=None)
        return 0.0 if oldest_ns is None else max(0.0, now.timestamp() - oldest_ns / 1e9)

    def _updated(self, file: FollowedFile, look: FileLook) -> _Unread:
        known = self._unread.get(file)
        if known is None:
            return _Unread(look.modified_ns, look)
        return _Unread(known.look.modified_ns, look) if file.position >= known.look.size else known
