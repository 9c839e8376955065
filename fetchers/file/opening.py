"""Which file to read: the one that a stored offset was taken from, or the one that came after a file that has left.

A stored offset is of the file at its path, or of one in its folder under another name. An archive shows what it holds
only when it is checked, so finding out may take many calls.

What was at a path after a file that has left it is the file that is there now, or one that has left it too. A rotated
file shows by its own new name how its rotator names files. Two ways of naming say themselves which file came next, and
are believed where the times of modification say the same: numbers that count up with age (``app.log.2`` →
``app.log.1`` → ``app.log``) and stamps of a date (``app.log-20260131`` → ``app.log-20260201`` → ``app.log``). Anything
else would be a guess, which could repeat or skip lines: it is only told.
"""

# ruff: noqa: PTH112, PTH118, PTH120, PTH207 - paths stay the texts that were configured: they name source partitions

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fetchers.file.disk import ABSENT, DENIED, ByteSource, FileLook, Opener, look_at, look_from, open_if_there
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


NUMBER = re.compile(r"\.[1-9]\d*")
STAMP = re.compile(r"[-._]\d{4}(?:[-._T:]?\d\d){2,5}")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Next:
    """The path to read next, and what is known of the files that were there in between."""

    path: str
    identity: tuple[int, int] | None = None
    """The file that is meant, when it is no longer at the path that is followed."""
    names: tuple[str, ...] = ()
    """Files that are likely to have been at the path in between."""


@dataclass(frozen=True, slots=True)
class Departed:
    """The file that was last at a path where nothing is now."""

    seen: FileLook | None
    """At its path."""
    left: FileLook
    """Where it went."""
    mark: Mark


def next_after(left: FileLook, path: str, pattern: str) -> Next:
    """Find what was at ``path`` after ``left``. What matches ``pattern`` is read on its own. Blocks; raises OSError."""
    folder, name = os.path.split(path)
    try:
        own, others = _likely_rotated(folder or ".", name, left, but=_names_listed(folder, pattern))
    except OSError as error:
        if error.errno in ABSENT | DENIED:
            return Next(path)  # a folder that is gone, or may be passed through but not listed
        raise
    later = {other: look for other, look in others.items() if look.modified_ns >= left.modified_ns}
    found = _certain_next(name, own, left, later)
    names = tuple(sorted(other for other, look in later.items() if look.size))
    if found is not None:
        return Next(os.path.join(folder, found), later[found].identity, names)
    return Next(path, names=names)


def _names_listed(folder: str, pattern: str) -> set[str]:
    paths = (os.path.split(path) for path in glob.glob(pattern, recursive=True))
    return {name for head, name in paths if head == folder}


def _likely_rotated(
    folder: str, name: str, left: FileLook, *, but: Collection[str]
) -> tuple[str | None, dict[str, FileLook]]:
    """The name that the file has now, and what else has such a name."""
    with os.scandir(folder) as found:
        entries = [entry for entry in found if entry.name != name and entry.is_file(follow_symlinks=False)]
    own = next((entry.name for entry in entries if entry.inode() == left.inode), None)
    alike = [entry for entry in entries if _is_rotated(entry.name, name, own) and entry.name not in but]
    looks = {entry.name: look_from(entry.stat(follow_symlinks=False)) for entry in alike}
    at_path = look_at(os.path.join(folder, name))
    known = {left.identity, at_path and at_path.identity}
    return own, {other: look for other, look in looks.items() if look.identity not in known}


def _is_rotated(other: str, name: str, own: str | None) -> bool:
    """Whether a name differs only in numbers from that which the rotator gave, or might have given."""
    if own is not None:
        return _DIGITS.sub("0", other) == _DIGITS.sub("0", own)
    suffix = other.removeprefix(name)
    return suffix != other and bool(NUMBER.fullmatch(suffix) or STAMP.fullmatch(suffix))


def _certain_next(name: str, own: str | None, left: FileLook, later: Mapping[str, FileLook]) -> str | None:
    """The name that came next, when the names of all later files tell their order, and their times agree."""
    if own is None or not own.startswith(name) or not later:
        return None
    names = _in_order(name, own, tuple(later))
    times = [left.modified_ns, *(later[other].modified_ns for other in names)]
    is_rising = all(before < after for before, after in pairwise(times))
    return names[0] if names and is_rising else None


def _in_order(name: str, own: str, later: Sequence[str]) -> list[str]:
    """Names of all files that followed ``own``, oldest first; none when the names do not tell."""
    suffixes = [other.removeprefix(name) for other in (own, *later)]
    if all(map(STAMP.fullmatch, suffixes)):
        return sorted(later) if own < min(later) else []
    if all(map(NUMBER.fullmatch, suffixes)):
        age = int(suffixes[0][1:])
        followers = [f"{name}.{number}" for number in range(age - 1, 0, -1)]
        return followers if set(followers) == set(later) else []
    return []
