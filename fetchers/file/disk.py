"""The only place that opens files: what the operating system says about them, and what to do about its errors."""

# ruff: noqa: PTH116 - paths stay the texts that were configured: they name source partitions

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

from fetchers.file.mark import Mark
from fetchers.sdk import Fatal, FetchError, Retriable
from fetchers.sdk.reach import AllowedPaths, PathRefusedError

ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
DENIED = frozenset({errno.EACCES, errno.EPERM})
SEARCH_BYTES = 1 << 20
HOPELESS = frozenset({errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL})


@dataclass(frozen=True, slots=True)
class FileLook:
    """What one ``stat`` shows; equal looks mean that nothing happened in between."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @property
    def identity(self) -> tuple[int, int]:
        """Which file it is, whatever its name."""
        return self.device, self.inode


def look_at(path: str) -> FileLook | None:
    """Look at a path; None when nothing is there."""
    try:
        return look_from(os.stat(path))
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise


def look_from(status: os.stat_result) -> FileLook:
    """What of a ``stat`` matters."""
    return FileLook(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class ByteSource(Protocol):
    """Bytes of one opened file, by position."""

    path: str
    identity: tuple[int, int]
    is_archive: bool
    """Whether the file was made as a whole: its last line needs no line end."""

    def is_checked(self) -> bool:
        """Check a share of what may be read; whether all that is there is checked. Ask again until it is."""

    def is_near(self, position: int) -> bool:
        """Skip a share of what stands before ``position``; whether a read there is quick. Ask again until it is."""

    def read_at(self, bytes_max: int, position: int) -> bytes:
        """Read what is there at ``position``; empty at the end."""

    def look(self) -> FileLook:
        """Look at the file, whatever its name."""

    def is_rewritten(self, mark: Mark, unfinished_edge: bytes, end: int) -> bool | None:
        """Whether what was read up to ``end`` is no longer in the file; None: only the unfinished line is not."""

    def begin_again(self) -> None:
        """Be ready to be read from byte 0, as another file."""

    def last_line_end(self) -> int:
        """Position behind the last line end that is there now."""

    def is_behind(self, look: FileLook, end: int) -> bool:
        """Whether the file, as it looks, has bytes beyond ``end``."""

    def is_unlinked(self) -> bool:
        """Whether no name leads to the file any more."""

    def is_finished(self) -> bool:
        """Whether what was read so far is all that the file can mean."""

    def close(self) -> None:
        """Release the descriptor; nothing can be read afterwards."""


ANY_PATH = AllowedPaths()


def _demand(check: Callable[[], None]) -> None:
    try:
        check()
    except PathRefusedError as error:
        raise Fatal(str(error)) from error


class PlainFile:
    """A regular file, held open so that a rename does not take it away."""

    is_archive = False

    def __init__(self, path: str, allowed: AllowedPaths = ANY_PATH) -> None:
        """Raise OSError as ``open`` does, Fatal for what is not a regular file or not ``allowed``."""
        _demand(lambda: allowed.check(path))
        # Without O_NONBLOCK a named pipe would block here until someone writes to it.
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.path = path
        try:
            _demand(lambda: allowed.check_open(self.descriptor, path))
        except (Fatal, OSError):
            self.close()
            raise
        status = os.fstat(self.descriptor)
        self.identity = (status.st_dev, status.st_ino)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            message = f"'{path}' is not a regular file; give a file, or pipe it into standard input"
            raise Fatal(message)

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close the descriptor, whatever ended the block."""
        self.close()

    def is_checked(self) -> bool:
        """There is nothing to check."""
        return True

    def is_near(self, position: int) -> bool:
        """Always true: any position of a plain file can be read at once."""
        del position
        return True

    def read_at(self, bytes_max: int, position: int) -> bytes:
        """Read what is there at ``position``; empty at the end."""
        return os.pread(self.descriptor, bytes_max, position)

    def look(self) -> FileLook:
        """Identity, size and times of the file, as ``fstat`` tells them of the open descriptor."""
        return look_from(os.fstat(self.descriptor))

    def is_rewritten(self, mark: Mark, unfinished_edge: bytes, end: int) -> bool | None:
        """Compare the edges of what was read. None: only the unfinished line changed."""
        if self.look().size < mark.position or not mark.is_in(self.read_at):
            return True
        length = len(unfinished_edge)
        return None if self.read_at(length, end - length) != unfinished_edge else False

    def begin_again(self) -> None:
        """Nothing is kept between reads."""

    def last_line_end(self) -> int:
        """Search backwards, block by block."""
        position = self.look().size
        while position:
            start = max(0, position - SEARCH_BYTES)
            found = self.read_at(position - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            position = start
        return 0

    def is_behind(self, look: FileLook, end: int) -> bool:
        """Whether the file has grown."""
        return look.size > end

    def is_unlinked(self) -> bool:
        """Whether it was deleted, or another file was moved over it."""
        return os.fstat(self.descriptor).st_nlink == 0

    def is_finished(self) -> bool:
        """Plain text may end anywhere."""
        return True

    def close(self) -> None:
        """Close the descriptor; nothing can be read afterwards."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


Opener = Callable[[str], ByteSource]


def open_if_there(path: str, opener: Opener) -> ByteSource | None:
    """Open a path; None when nothing is there."""
    try:
        return opener(path)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise


def fetch_error(error: OSError, path: str) -> FetchError:
    """Class an error of the operating system by recovery."""
    reason = f"'{path}': {error.strerror or error}"
    if error.errno in DENIED:
        return Fatal(f"{reason}; let the worker's user read it")
    if error.errno in HOPELESS:
        return Fatal(f"{reason}; set 'file' to a file, or to a pattern of files")
    return Retriable(reason)
