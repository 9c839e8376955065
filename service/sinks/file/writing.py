"""The writer of one task's lines to one file that other tasks, and older incarnations, may be writing to as well.

Every change is made under the file's lock. All calls block: run them in a thread.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fetchers.sdk.reach import AllowedPaths, PathRefusedError
from service.sinks.batch import Partition
from service.sinks.contract import Fatal, Retriable
from service.sinks.file.note import Note, Written, checksum_of, read_note, settled, with_committed, write_note

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class FileBusy(Retriable):
    """Another task is writing to the file at this moment."""


def write_pieces(descriptor: int, pieces: list[memoryview]) -> None:
    """Write the pieces one after another to a file descriptor, each as a whole. Raises OSError."""
    for piece in pieces:
        at = 0
        while at < len(piece):
            at += os.write(descriptor, piece[at:])


@dataclass(slots=True)
class SinkFile:
    """One task's way to its file."""

    path: Path
    connector: str
    allowed: AllowedPaths = AllowedPaths()  # noqa: RUF009 - frozen
    """Files that the worker allows; where it bounds them, only regular ones are written to."""
    write: Callable[[int, list[memoryview]], None] = write_pieces
    """How pieces get into the open file; replaced in tests by one that dies half-way."""
    _began_at: dict[Partition, int] = field(default_factory=dict)
    """Where this task began to read its partitions; records before mean that a topic was made anew."""
    _last: Note | None = None
    """Of this task's last append, which is known to be whole."""

    def begin(self, partitions: Mapping[Partition, int | None]) -> None:
        """Partitions have come, with the group's offsets; where these were reset, lines will be written again."""
        with self._locked() as descriptor:
            if _is_regular(descriptor):
                known = self._settled(descriptor)
                for (topic, number), committed in partitions.items():
                    written = known.get((self.connector, topic, number))
                    if written is not None and _is_reset(committed, written):
                        del known[self.connector, topic, number]
                self._write_note(Note(os.fstat(descriptor).st_size, before=known))
        self._began_at = {partition: committed or 0 for partition, committed in partitions.items()}

    def append(
        self,
        begins: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        lines_of: Callable[[Mapping[Partition, Written]], tuple[list[memoryview], Mapping[Partition, tuple[int, ...]]]],
    ) -> None:
        """Append what the file does not hold yet of the records from ``begins`` to ``ends``.

        ``lines_of`` gives the lines of those that are not held by what it is given, and which are refused from now on.
        It is asked under the lock, because only then it is known what others have written.
        """
        with self._locked() as descriptor:
            if not _is_regular(descriptor):
                self.write(descriptor, lines_of({})[0])
                return
            known = self._settled(descriptor)
            for partition, begin in begins.items():
                if begin < self._began_at.get(partition, 0):
                    known.pop((self.connector, *partition), None)  # the topic was made anew
            held = {
                partition: known[self.connector, *partition]
                for partition in ends
                if (self.connector, *partition) in known
            }
            pieces, refused = lines_of(held)
            after = {
                (self.connector, *partition): _after(held.get(partition), end, refused.get(partition, ()))
                for partition, end in ends.items()
            }
            note = Note(os.fstat(descriptor).st_size, sum(map(len, pieces)), checksum_of(pieces), known, after)
            self._write_note(note)
            self.write(descriptor, pieces)
            os.fsync(descriptor)
            self._last = note

    def note_committed(self, offsets: Mapping[Partition, int]) -> None:
        """The group's offsets are these now."""
        with self._locked() as descriptor:
            if _is_regular(descriptor):
                known = with_committed(self._settled(descriptor), self.connector, offsets)
                self._write_note(Note(os.fstat(descriptor).st_size, before=known))

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop what was remembered of partitions that go to another task."""
        self._began_at = {key: value for key, value in self._began_at.items() if key not in partitions}

    def _settled(self, descriptor: int) -> dict[tuple[str, str, int], Written]:
        """What the file holds; its end is read only where somebody else may have written it."""
        note = read_note(self.path)
        if note is not None and note == self._last and os.fstat(descriptor).st_size >= note.length + note.appended:
            return {**note.before, **note.after}
        return dict(settled(note, descriptor))

    def _write_note(self, note: Note) -> None:
        try:
            write_note(self.path, note)
        except PermissionError as error:
            message = (
                f"what {self.path} holds is noted in a file beside it, and {self.path.parent} may not be written to: "
                "allow it, or write to a file in another folder"
            )
            raise Fatal(message) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, open and locked; made if it is missing, found again if it was rotated."""
        while True:
            descriptor = self._opened()
            try:
                if _is_regular(descriptor):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_still(descriptor, self.path):
                    continue
                yield descriptor
                return
            except BlockingIOError as error:
                raise FileBusy(f"{self.path} is locked by another writer", wait_seconds=0.05) from error
            finally:
                os.close(descriptor)

    def _opened(self) -> int:
        try:
            if self.allowed.roots is None:
                return os.open(self.path, _FLAGS, 0o666)
            return self._opened_within()
        except PathRefusedError as error:
            raise Fatal(str(error)) from error
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
            raise Fatal(f"{self.path} cannot be opened for appending: {error.strerror}") from error

    def _opened_within(self) -> int:
        """The note stands beside the name, so both the name and what it leads to must be allowed."""
        self.allowed.check(self.path)
        self.allowed.check(self.path.parent.resolve() / self.path.name)
        descriptor = os.open(self.path.resolve(), _FLAGS | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            self.allowed.check_open(descriptor, self.path, is_regular=True)
        except (PathRefusedError, OSError):
            os.close(descriptor)
            raise
        return descriptor


def _is_reset(committed: int | None, written: Written) -> bool:
    """Offsets of a group go back only when someone resets them."""
    return written.committed is not None and (committed is None or committed < written.committed)


def _after(held: Written | None, end: int, refused: tuple[int, ...]) -> Written:
    held = Written(end) if held is None else held
    return Written(max(end, held.next_offset), held.committed, refused)


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
