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
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial

import pyarrow as pa

from fetchers.file.disk import ByteSource, FileLook, look_at, look_from, open_if_there
from fetchers.file.followed import DENIED_SECONDS_MAX, FollowedFile
from fetchers.file.mark import Mark, StoredOffset, mark_at
from fetchers.file.opening import is_ready
from fetchers.file.reading import FileEvent, FileFollowed, FilePassedOver, Reading
from fetchers.sdk import Offset, Page

OPEN_MAX = 512
"""Files that one task holds open at once."""

Looks = Mapping[str, FileLook | None]
"""What is at each path; None: a single configured path where nothing is, or a file of a pattern that is passed over."""


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
        self._denied_at: float | None = None
        self._is_pattern: bool | None = None
        self._is_first = True
        self._files: dict[str, FollowedFile] = {}
        self._passed_over: set[str] = set()

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
        return looks.keys() <= self._files.keys() | self._passed_over and not self._renamed(looks)

    @property
    def has_begun(self) -> bool:
        """Whether files were arranged once: at a first start from the end, that all of them could be opened."""
        return not self._is_first

    def arrange(self, looks: Looks, now: float = 0.0) -> Iterator[Page | None]:
        """Bring the set in line with what is there; the pages must go out in this order. Blocks, page by page.

        None: there is more to do, which may take long. At a first start from the end, a file that refuses to be read
        ends it early: it is to be called again. ``now``: monotonic seconds. Raises PermissionError when it still does
        after ``DENIED_SECONDS_MAX``.
        """
        if self._is_first and self._is_pattern:
            yield from self._arrange_stored(looks)
        if self._is_first and self._is_from_end:
            try:
                markers = yield from self._begin_at_ends(looks)
            except PermissionError:
                self._denied_at = now if self._denied_at is None else self._denied_at
                if now - self._denied_at < DENIED_SECONDS_MAX:
                    return
                raise
            yield from markers
        yield from self._follow_renamed(looks)
        if self._is_pattern:
            self._pass_over({path for path, look in looks.items() if look is None})
        new = looks.keys() - self._files.keys() - self._passed_over
        for path in sorted(new, key=lambda path: _age_order(path, looks)):
            self._files[path] = FollowedFile(path, self._reading, stored=self._stored.get(path))
        self._is_first = False
        self._stored.clear()

    def _pass_over(self, paths: set[str]) -> None:
        """Tell of those that are new; one that was renamed meanwhile is forgotten."""
        tell = partial(FilePassedOver, self._reading.connector, self._reading.task)
        self.events += (tell(file=_printable(path)) for path in sorted(paths - self._passed_over))
        self._passed_over = paths

    def _begin_at_ends(self, looks: Looks) -> Generator[None, None, list[Page]]:
        """Set offsets behind the last line of each file, and give the pages that store them.

        They are one transaction of the source: had a crash stored but some, the files of the others would count as
        new at the next start, and be read from their beginning.
        """
        stored: dict[str, StoredOffset] = {}
        for path, look in looks.items():
            source = open_if_there(path, self._reading.opener) if look is not None else None
            if source is not None:
                with closing(source):
                    stored[path] = yield from _end_of(source)
        self._stored.update(stored)
        if not stored:
            return [_marker(self.name, {"position": 0})]
        pages = [_marker(path, offset.offset) for path, offset in stored.items()]
        return [*(replace(page, ends_transaction=False) for page in pages[:-1]), pages[-1]]

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

    def unread(self, looks: Looks) -> dict[FollowedFile, FileLook]:
        """The files that are there and not read to their end, as they looked; of one not opened, its size tells."""
        files = [(self._files[path], look) for path, look in looks.items() if look is not None and path in self._files]
        return {file: look for file, look in files if file.is_pending and (file.is_open or file.position < look.size)}

    @property
    def holds_many(self) -> bool:
        """Whether more than half of the files that may be open are."""
        return sum(file.is_open for file in self._files.values()) > self._open_max // 2

    def rest(self) -> None:
        """Give back the files that are read to their end. Blocks."""
        for file in self._files.values():
            file.rest()

    def close(self) -> None:
        """Close every file that is open."""
        for file in self._files.values():
            file.close()

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

    def _follow_renamed(self, looks: Looks) -> Iterator[Page | None]:
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

    def _arrange_stored(self, looks: Looks) -> Iterator[Page | None]:
        """Give each file found the offset of its former name, where the stored inode and content say so."""
        former: dict[str, str] = {}
        for path, look in looks.items():
            name = (yield from self._former_name(path, look, looks)) if look is not None else None
            if name is not None:
                former[path] = name
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
            while True:
                result = file.read_once(0.0)
                self.events.extend(result.events)
                yield result.page
                if result.page is not None or not result.has_more:
                    break

    def _former_name(self, path: str, look: FileLook, looks: Looks) -> Generator[None, None, str | None]:
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
            if stored.position and stored.signature is not None and (yield from self._is_content(path, stored)):
                return name
        return None

    def _is_content(self, path: str, stored: StoredOffset) -> Generator[None, None, bool]:
        source = open_if_there(path, self._reading.opener)
        if source is None:
            return False
        with closing(source):
            while not is_ready(source, stored.position):
                yield None
            return stored.mark_in(source.read_at) is not None

    def _tell_followed(self, path: str, former: str, position: int) -> None:
        tell = partial(FileFollowed, self._reading.connector, self._reading.task)
        self.events.append(tell(file=path, former=former, position=position))


def _end_of(source: ByteSource) -> Generator[None, None, StoredOffset]:
    """Where to begin behind the last finished line."""
    while not source.is_checked():
        yield None
    position = source.last_line_end()
    while not is_ready(source, position):
        yield None
    mark = mark_at(source.read_at, position) or Mark()
    return StoredOffset(mark.position, source.identity[1], mark.signature)


def _marker(path: str, offset: Offset) -> Page:
    """A page without records."""
    return Page(pa.array([], pa.binary()), offset=offset, partition={"filename": path})


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
    """Regular files only; a file with several names (links) is there under the first of them.

    A name that is no UTF-8 cannot be told in a source partition; a file without any other is there with None.
    """
    found: dict[tuple[int, int], tuple[str, FileLook]] = {}
    unnamed: dict[tuple[int, int], str] = {}
    for path in sorted(paths, reverse=True):
        try:
            status = os.stat(path)
        except OSError:
            # Gone since it was listed, or not ours to see: the next look decides.
            continue
        if stat.S_ISREG(status.st_mode):
            look = look_from(status)
            if _printable(path) == path:
                found[look.identity] = (path, look)
            else:
                unnamed[look.identity] = path
    passed_over = dict.fromkeys(path for identity, path in unnamed.items() if identity not in found)
    return {**dict(sorted(found.values())), **passed_over}


def _printable(path: str) -> str:
    r"""The path with every byte that is no UTF-8 as ``\xNN``; equal to the path where it has none."""
    return path.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="backslashreplace")
