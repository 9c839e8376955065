"""Which new path is a copy of what was read already: ``copytruncate`` of logrotate, or ``gzip`` in a file's place.

A copy has a name made of its original's (``app.log`` → ``app.log.1``, ``app-2026.log``; ``app.log.1`` →
``app.log.1.gz``) in the same folder, and holds at least all that was read. That alone proves nothing: files may begin
alike. So a file is taken for a copy only when its original was truncated, or, for an archive, is gone; and never on the
word of a single short line, which may be a heading. Until that is known it is held back, for a while: what is merely a
second file is then read from its beginning.
"""

# ruff: noqa: PTH118, PTH119, PTH120 - paths stay the texts that were configured: they name source partitions

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from fetchers.file.disk import ByteSource, FileLook, Looks, open_if_there
from fetchers.file.followed import UNFINISHED_SECONDS_MAX, FollowedFile
from fetchers.file.mark import Mark, StoredOffset, mark_at
from fetchers.file.turn import Left, Reading

_ARCHIVE = ".gz"
_EDGE_OF_A_PART = re.compile(r"[._-]")
_NUMBERED = re.compile(r"(.*[.-])(\d+)")


@dataclass(frozen=True, slots=True)
class Copy:
    """What a new path was found to be a copy of."""

    former: str
    offset: StoredOffset
    """Where to read on; of no inode."""


@dataclass(slots=True)
class _Held:
    look: FileLook
    since: float
    """When it was last seen to change."""
    alike: Mark | None = None
    """Its whole content, when that was the beginning of its original."""


class Copies:
    """Judges new paths, one arrangement after the other."""

    def __init__(self, reading: Reading) -> None:
        """Nothing is held back yet."""
        self._reading = reading
        self._held: dict[str, _Held] = {}

    @property
    def is_holding(self) -> bool:
        """Whether there are files of which it is not known yet what they are."""
        return bool(self._held)

    def is_held(self, path: str) -> bool:
        """Whether the last judgement was to wait."""
        return path in self._held

    def forget_absent(self, looks: Looks) -> None:
        """Hold back only what is still there."""
        self._held = {path: held for path, held in self._held.items() if path in looks}

    def judge(
        self, path: str, looks: Looks, files: Mapping[str, FollowedFile], left: Sequence[Left], *, now: float
    ) -> Copy | None:
        """What a new path is a copy of. None: ask ``is_held``; if it is not, it is a file of its own."""
        names = former_names(path)
        originals = [files[name] for name in names if name in files and files[name].is_read]
        left = [each for each in left if each.path in names and (each.is_truncated or path.endswith(_ARCHIVE))]
        look = looks[path]
        held = self._held.pop(path, None)
        if look is None or not (originals or left):
            return None
        if held is None or held.look != look:
            held = _Held(look, now)
        try:
            source = open_if_there(path, self._reading.opener)
            if source is None:
                return None
            with closing(source):
                copy = _copy_of(source, left) or _shorter_copy_of(source, held, left)
                if copy is None and any(
                    self._may_be_copy(source, held, file, there=looks.get(file.path), waited=now - held.since)
                    for file in originals
                ):
                    self._held[path] = held
                return copy
        except PermissionError:
            # Not to be compared: a file of its own, whose turn waits for the right to read it.
            return None

    def _may_be_copy(
        self, source: ByteSource, held: _Held, original: FollowedFile, *, there: FileLook | None, waited: float
    ) -> bool:
        """Whether a file is to be held back until more is known of its original, whose path looks like ``there``."""
        if source.is_archive and not (source.read_at(1, 0) and source.is_finished()):
            return waited < UNFINISHED_SECONDS_MAX
        if original.is_unopened:
            return waited < UNFINISHED_SECONDS_MAX
        if there is None or there.identity != original.identity:
            # It is read to its end first; then it is known where the archive goes on.
            return source.is_archive and original.mark.is_in(source.read_at)
        opened = open_if_there(original.path, self._reading.opener)
        if opened is None:
            return True
        with closing(opened):
            if not original.mark.is_in(opened.read_at):
                # It was truncated a moment ago, which its next turn finds out.
                return waited < UNFINISHED_SECONDS_MAX
            return waited < self._reading.rotate_wait_seconds and _is_alike(source, held, original.mark, opened)


def _is_alike(source: ByteSource, held: _Held, mark: Mark, original: ByteSource) -> bool:
    """Whether a file is the beginning of its original, or an archive of all that was read."""
    if source.is_archive:
        return mark.is_in(source.read_at)
    alike = mark_at(source.read_at, held.look.size)
    held.alike = alike if alike == mark_at(original.read_at, held.look.size) else None
    return held.alike is not None


def _copy_of(source: ByteSource, left: Sequence[Left]) -> Copy | None:
    """The file furthest read whose content this one begins with."""
    for each in sorted(left, key=lambda each: each.offset.position, reverse=True):
        mark = each.offset.mark_in(source.read_at) if each.offset.signature is not None else None
        if mark is not None and mark.is_telling:
            return Copy(each.path, StoredOffset(mark.position, None, mark.signature))
    return None


def _shorter_copy_of(source: ByteSource, held: _Held, left: Sequence[Left]) -> Copy | None:
    """A copy that lacks what was written and read between the copying and the truncation: all of it was read."""
    alike = held.alike
    if alike is None or not alike.is_telling or alike != mark_at(source.read_at, alike.position):
        return None
    longer = [each for each in left if each.offset.position >= alike.position]
    if not longer or source.read_at(1, alike.position):
        return None
    return Copy(longer[0].path, StoredOffset(alike.position, None, alike.signature))


def former_names(path: str) -> set[str]:
    """The paths of which ``path`` may be the copy or the archive, by its name."""
    folder, name = os.path.dirname(path), os.path.basename(path)
    plain = name.removesuffix(_ARCHIVE)
    names = {plain, *_shorter_names(plain)}
    number = _NUMBERED.fullmatch(plain)
    if plain != name and number is not None and int(number[2]):
        # Compressed, then moved on by one.
        names.add(f"{number[1]}{int(number[2]) - 1}")
    return {os.path.join(folder, each) for each in names if each and each != name}


def _shorter_names(name: str) -> Iterator[str]:
    """Without a part at the end or in the middle: ``app.1.log`` → ``app``, ``app.1``, ``app.log``."""
    edges = [found.start() for found in _EDGE_OF_A_PART.finditer(name)]
    for begin in edges:
        yield name[:begin]
        yield from (name[:begin] + name[end:] for end in edges if end > begin and name[end] == ".")
