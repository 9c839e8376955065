"""The files of one task: one path, or all that match a pattern; and which of them is which after a rename.

A file that gets another name inside the pattern (``app.log`` → ``app.log.1``) is read on under the new name. Source
offsets are stored by name, so the new name's offset is written first, by a page without records, before anything can
overwrite the old one's: a crash in between loses and repeats nothing.
"""

# ruff: noqa: PTH116, PTH207 - paths stay the texts that were configured: they name source partitions

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa

from fetchers.file.disk import FileLook, look_at, open_if_there
from fetchers.file.events import FileEvent, FileFollowed
from fetchers.file.followed import FollowedFile, Reading
from fetchers.file.mark import StoredOffset
from fetchers.sdk import Page

OPEN_MAX = 512
"""Files that one task holds open at once."""

Looks = Mapping[str, FileLook | None]
"""What is at each path; a single configured path is there with None when nothing is."""


class FileSet:
    """Finds files and keeps one ``FollowedFile`` for each. Not for concurrent use."""

    def __init__(
        self,
        name: str,
        reading: Reading,
        *,
        stored: Mapping[str, StoredOffset],
        is_from_end: bool,
        open_max: int = OPEN_MAX,
    ) -> None:
        """``stored``: source offsets by path. ``is_from_end``: where to begin when there are none at all."""
        self.name = name
        self.events: list[FileEvent] = []
        """What happened; whoever tells it takes it out."""
        self.has_more = False
        """Whether the last answer of ``needing_turn`` left files out, since too many would be open at once."""
        self._reading = reading
        self._open_max = open_max
        self._stored = dict(stored)
        self._is_from_end = is_from_end and not stored
        self._is_pattern: bool | None = None
        self._is_first = True
        self._files: dict[str, FollowedFile] = {}

    def look(self) -> Looks:
        """Look at all paths. Blocks."""
        if self._is_pattern is None:
            self._is_pattern = glob.has_magic(self.name) and not os.path.lexists(self.name)
        if not self._is_pattern:
            return {self.name: look_at(self.name)}
        return _one_name_each(glob.glob(self.name, recursive=True))

    def is_arranged(self, looks: Looks) -> bool:
        """Whether every path found has its file, and no file changed its name."""
        if self._is_first:
            return False
        if not self._is_pattern:
            return True
        return all(path in self._files for path in looks) and not self._renamed(looks)

    def arrange(self, looks: Looks) -> Iterator[Page]:
        """Bring the set in line with what is there; the pages must go out in this order. Blocks, page by page."""
        if self._is_first and self._is_pattern:
            yield from self._arrange_stored(looks)
        yield from self._follow_renamed(looks)
        is_from_end = self._is_first and self._is_from_end
        if is_from_end and not any(looks.values()):
            yield self._first_start()
        for path in sorted(looks.keys() - self._files.keys(), key=lambda path: _age_order(path, looks)):
            stored = self._stored.get(path)
            is_there = looks[path] is not None
            self._files[path] = FollowedFile(path, self._reading, stored=stored, is_from_end=is_from_end and is_there)
        self._is_first = False
        self._stored.clear()

    def needing_turn(self, looks: Looks) -> list[FollowedFile]:
        """The files that may have something to read. Forgets files of a pattern that are gone and read."""
        for path in [path for path, file in self._files.items() if file.identity is None and not file.is_pending]:
            if path not in looks:
                del self._files[path]
        needing = [file for path, file in self._files.items() if file.needs_turn(looks.get(path))]
        # Those that hold a descriptor already come first: they can only become fewer.
        needing.sort(key=lambda file: not file.is_open)
        self.has_more = len(needing) > self._open_max
        return needing[: max(self._open_max, sum(file.is_open for file in needing) + 1)]

    @property
    def holds_many(self) -> bool:
        """Whether more than half of the files that may be open are."""
        return sum(file.is_open for file in self._files.values()) > self._open_max // 2

    def rest(self) -> None:
        """Give back the files that are read to their end. Blocks."""
        for file in self._files.values():
            file.rest()

    def close(self) -> None:
        """Give all files back."""
        for file in self._files.values():
            file.close()

    def _first_start(self) -> Page:
        """A page without records that tells the next start that it is not the first: no file is there to tell it."""
        return Page(pa.array([], pa.binary()), offset={"position": 0}, partition={"filename": self.name})

    # --- names that changed ----------------------------------------------------------------------

    def _renamed(self, looks: Looks) -> dict[str, FollowedFile]:
        """New path → the file that was followed under another one."""
        owners = {file.identity: file for file in self._files.values() if file.identity is not None}
        renamed = {}
        for path, look in looks.items():
            owner = owners.get(look.identity) if look else None
            if owner is not None and owner.path != path and not _is_at(owner.path, owner.identity, looks):
                renamed[path] = owner
        return renamed

    def _follow_renamed(self, looks: Looks) -> Iterator[Page]:
        renamed = self._renamed(looks)
        moving = set(renamed.values())
        former = {path: file.path for path, file in renamed.items()}
        for path in in_safe_order(former):
            displaced = self._files.get(path)
            if displaced is not None and displaced not in moving:
                yield from displaced.finish()
                self.events.extend(displaced.take_events())
            file = renamed[path]
            if self._files.get(file.path) is file:
                del self._files[file.path]
            self._tell_followed(path, file.path, file.position)
            file.path = path
            self._files[path] = file
            yield file.marker()

    # --- names that changed while nobody looked --------------------------------------------------

    def _arrange_stored(self, looks: Looks) -> Iterator[Page]:
        """Give each file found the offset of its former name, where the stored inode and content say so."""
        former = {path: name for path, look in looks.items() if look and (name := self._former_name(path, look, looks))}
        offsets = {path: self._stored[name] for path, name in former.items()}
        inodes = {look.inode: path for path, look in looks.items() if look}
        for name, stored in tuple(self._stored.items()):
            if stored.inode is not None and inodes.get(stored.inode, name) != name:
                # The file has another name in the pattern, and is read there; here is another one, to be read anew.
                del self._stored[name]
        for path in in_safe_order(former):
            self._stored.pop(path, None)
            file = FollowedFile(path, self._reading, stored=offsets[path], owes_marker=True)
            self._files[path] = file
            self._tell_followed(path, former[path], offsets[path].position)
            turn = file.turn(0.0)
            self.events.extend(turn.events)
            if turn.page is not None:
                yield turn.page

    def _former_name(self, path: str, look: FileLook, looks: Looks) -> str | None:
        """The name whose offset is furthest in this very file; None when that is its own, or there is none."""
        own = self._stored.get(path)
        if own is not None and own.inode is None:
            return None
        names = [
            name
            for name, stored in self._stored.items()
            if stored.inode == look.inode and (name == path or not _is_at(name, look.identity, looks))
        ]
        # A name that was rotated on keeps an older offset of the file until its next file is read.
        for name in sorted(names, key=lambda name: self._stored[name].position, reverse=True):
            if name == path:
                return None
            stored = self._stored[name]
            if stored.position and stored.signature is not None and self._is_content(path, stored):
                return name
        return None

    def _is_content(self, path: str, stored: StoredOffset) -> bool:
        source = open_if_there(path, self._reading.opener)
        if source is None:
            return False
        try:
            return stored.mark_in(source.read_at) is not None
        finally:
            source.close()

    def _tell_followed(self, path: str, former: str, position: int) -> None:
        tell = partial(FileFollowed, self._reading.connector, self._reading.task)
        self.events.append(tell(file=path, former=former, position=position))


def in_safe_order(former: Mapping[str, str]) -> Iterator[str]:
    """New names in the order in which their offsets can be written: ``former`` is new name → former name.

    A name's offset is written only when the file that had the name has written its own under its new name.
    """
    left = dict(former)
    while left:
        still_needed = set(left.values())
        free = [path for path in left if path not in still_needed] or list(left)[:1]
        for path in free:
            del left[path]
            yield path


def _age_order(path: str, looks: Looks) -> tuple[int, str]:
    """Oldest first, as rotation leaves them."""
    look = looks[path]
    return (look.modified_ns if look else 0, path)


def _is_at(path: str, identity: tuple[int, int] | None, looks: Looks) -> bool:
    look = looks.get(path)
    return look is not None and look.identity == identity


def _one_name_each(paths: Iterable[str]) -> dict[str, FileLook | None]:
    """Regular files only; a file with several names (links) is there under the first of them."""
    found: dict[tuple[int, int], tuple[str, FileLook]] = {}
    for path in sorted(paths, reverse=True):
        try:
            status = os.stat(path)
        except OSError:
            # Gone since it was listed, or not ours to see: the next look decides.
            continue
        if stat.S_ISREG(status.st_mode):
            look = FileLook(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            found[look.identity] = (path, look)
    return dict(sorted(found.values()))
