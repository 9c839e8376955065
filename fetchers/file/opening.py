"""Which file a stored offset was taken from: the one at its path, or one in its folder under another name.

An archive shows what it holds only when it is checked, so finding out may take many calls.
"""

# ruff: noqa: PTH112, PTH118, PTH120 - paths stay the texts that were configured: they name source partitions

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from fetchers.file.disk import ByteSource, FileLook, Opener, open_if_there
from fetchers.file.mark import EDGE_BYTES, Mark, StoredOffset


@dataclass(frozen=True, slots=True)
class Opened:
    """A file to read, and from where; no ``source``: nothing is there."""

    source: ByteSource | None
    mark: Mark = Mark()  # noqa: RUF009 - frozen
    misfit: str | None = None
    """Why it is read from its beginning though there is an offset: truncated | unknown."""


class Opening:
    """Compares a stored offset with the files it may be of; owns them until it has decided."""

    def __init__(self, stored: StoredOffset, at_path: ByteSource | None, moved: Sequence[ByteSource] = ()) -> None:
        """``moved``: files of the offset's inode under other names; they go first."""
        self._stored = stored
        self._at_path = at_path
        self._moved = list(moved)

    @property
    def identity(self) -> tuple[int, int] | None:
        """The file at the path, if the offset's inode is its own."""
        return self._at_path.identity if self._at_path is not None and _is_inode(self._stored, self._at_path) else None

    def is_of(self, look: FileLook | None) -> bool:
        """Whether the path still leads where it led."""
        return (look and look.identity) == (self._at_path and self._at_path.identity)

    def go_on(self) -> Opened | None:
        """Do a share of the work; None while there is more of it. Files that are not the one are closed."""
        while self._moved:
            if not is_ready(self._moved[0], self._stored.position):
                return None
            source = self._moved.pop(0)
            mark = self._stored.mark_in(source.read_at)
            if mark is not None:
                self.close()
                return Opened(source, mark)
            source.close()
        return self._decide_on(self._at_path) if self._at_path is not None else Opened(None)

    def _decide_on(self, source: ByteSource) -> Opened | None:
        is_same = _is_inode(self._stored, source)
        mark = None
        # The same content in another inode: a copy was moved over the file (rsync, sed -i, a restored volume).
        if is_same or self._stored.signature is not None:
            if not is_ready(source, self._stored.position):
                return None
            mark = self._stored.mark_in(source.read_at)
        self._at_path = None
        is_misfit = mark is None and self._stored.position > 0
        return Opened(source, mark or Mark(), ("truncated" if is_same else "unknown") if is_misfit else None)

    def close(self) -> None:
        """Close all files that were opened and not taken over."""
        for source in (*self._moved, *filter(None, [self._at_path])):
            source.close()
        self._moved, self._at_path = [], None


def begin_opening(path: str, stored: StoredOffset, opener: Opener) -> Opening:
    """Open what is at the path, and where the offset is of another inode, what may be its file. Raises OSError."""
    at_path = open_if_there(path, opener)
    if at_path is not None and _is_inode(stored, at_path):
        return Opening(stored, at_path)
    try:
        return Opening(stored, at_path, open_moved(path, stored, opener))
    except OSError:
        if at_path is not None:
            at_path.close()
        raise


def open_moved(path: str, stored: StoredOffset, opener: Opener) -> list[ByteSource]:
    """Open what has the offset's inode in the folder of ``path``: its file may have got another name."""
    folder = os.path.dirname(path) or "."
    # At position 0 nothing was read that could tell the file from one that was given its inode since.
    if stored.inode is None or stored.signature is None or not stored.position or not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        candidates = [
            os.path.join(os.path.dirname(path), entry.name) for entry in entries if entry.inode() == stored.inode
        ]
    sources: list[ByteSource] = []
    try:
        for candidate in filter(os.path.isfile, candidates):
            source = open_if_there(candidate, opener)
            sources += [source] if source is not None else []
    except OSError:
        for source in sources:
            source.close()
        raise
    return sources


def is_ready(source: ByteSource, position: int) -> bool:
    """Do a share of what must be done before a mark at ``position`` is read; whether that is all."""
    return source.is_checked() and source.is_near(max(0, position - EDGE_BYTES))


def _is_inode(stored: StoredOffset, source: ByteSource) -> bool:
    return stored.inode in {None, source.identity[1]}
