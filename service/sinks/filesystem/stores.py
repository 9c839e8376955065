"""Where files are: folders of this machine, and HDFS. What the sink needs of a file system, and nothing else.

Object storage is in ``object_store``.
Paths are relative to the store's root, their parts separated by ``/``. Everything blocks: it is called in the sink's
thread. Errors are ``OSError`` of Python's classes.
"""

from __future__ import annotations

import errno
import io
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol, cast
from urllib.parse import urlsplit

import hdfs_native

from fetchers.sdk import Fatal
from fetchers.sdk.reach import AllowedPaths, PathRefusedError

SCHEMES = ("file", "hdfs", "s3a")
_MISSING = re.compile(r"FileNotFound|does not exist|not found", re.IGNORECASE)
_THERE = re.compile(r"AlreadyExists|already exists", re.IGNORECASE)
_DENIED = re.compile(r"AccessControl|Permission denied|SafeMode|read-only", re.IGNORECASE)
_FULL = re.compile(r"Quota|could only be written to 0", re.IGNORECASE)


class Store(Protocol):
    """A file system below one folder."""

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder; none where there is no such folder."""

    def walk(self, folder: str) -> Iterator[str]:
        """Paths of all files below a folder."""

    def create(self, path: str) -> IO[bytes]:
        """A new file, opened for writing; its folders are made."""

    def finish(self, file: IO[bytes]) -> None:
        """Close a file that was created; what was written is durable then."""

    def put_new(self, path: str, content: bytes) -> bool:
        """Make a file, whole or not at all, if there is none of the name; whether it was made.

        Of two that call it at the same time one makes it.
        """

    def move(self, source: str, target: str) -> None:
        """Give a file another name. Raises FileNotFoundError, and FileExistsError where there is one of that name."""

    def read(self, path: str) -> bytes:
        """A whole small file."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def unfinished(self, folder: str) -> list[str]:
        """Names of the files in a folder that somebody has begun to write, and which `names` does not have yet."""


class LocalStore:
    """Folders of this machine, or what is mounted there; hard links are needed for names that are taken once."""

    def __init__(self, root: Path, allowed: AllowedPaths) -> None:
        """``allowed``: what the worker lets connectors write; looked at with every file."""
        self._root = root
        self._allowed = allowed

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder; none where there is no such folder."""
        try:
            with os.scandir(self._path(folder)) as entries:
                return [entry.name for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []

    def walk(self, folder: str) -> Iterator[str]:
        """Paths of all files below a folder."""
        for place, _, names in os.walk(self._path(folder)):
            for name in names:
                yield str((Path(place) / name).relative_to(self._root))

    def create(self, path: str) -> IO[bytes]:
        """A new file, opened for writing; its folders are made."""
        place = self._path(path)
        self._make_folder(place.parent)
        return place.open("xb")

    def finish(self, file: IO[bytes]) -> None:
        """Close a file that was created; what was written is durable then, and under its name.

        A file that somebody has removed meanwhile takes what is written as if nothing were the matter.
        """
        file.flush()
        os.fsync(file.fileno())
        links = os.fstat(file.fileno()).st_nlink
        file.close()
        if not links:
            raise FileNotFoundError(errno.ENOENT, "somebody has removed the file while it was written", str(file.name))
        self._sync(Path(file.name).parent)

    def put_new(self, path: str, content: bytes) -> bool:
        """Make a file, whole or not at all, if there is none of the name; whether it was made."""
        return _put_new(self, path, content)

    def move(self, source: str, target: str) -> None:
        """Give a file another name, by a link: a rename would replace what is there."""
        place = self._path(target)
        self._make_folder(place.parent)
        try:
            os.link(self._path(source), place)
        except FileExistsError:
            # Whoever died between the two steps, or does the same at this moment, has made the same link.
            if not place.samefile(self._path(source)):
                raise
        self._sync(place.parent)
        self.remove(source)

    def read(self, path: str) -> bytes:
        """A whole small file."""
        return self._path(path).read_bytes()

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self._path(path).unlink(missing_ok=True)

    def unfinished(self, folder: str) -> list[str]:
        """None: a file is there from its first byte on."""
        del folder
        return []

    def _path(self, path: str) -> Path:
        place = self._root / path
        try:
            self._allowed.check(place)
        except PathRefusedError as error:
            raise Fatal(str(error)) from error
        return place

    def _make_folder(self, folder: Path) -> None:
        """Make it durable, with its parents: a synced file in a folder that is lost is lost too."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        self._sync(folder.parent)

    def _sync(self, folder: Path) -> None:
        """Make names durable."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _HdfsFile(io.RawIOBase):
    """A file of HDFS that is being written; its errors are Python's."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self.name = path
        self._file = file
        # The client's own file never counts as closed, and who forgets it would close it: it counts from the beginning.
        io.RawIOBase.close(cast("io.RawIOBase", file))

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """All of it."""
        with _hdfs_errors(self.name):
            return self._file.write(bytes(data))

    def close(self) -> None:
        """Once, whether it fails or not; the name node then knows of every block."""
        if self.closed:
            return
        try:
            with _hdfs_errors(self.name):
                self._file.close()
        finally:
            super().close()

    def __del__(self) -> None:
        """Ask nobody. ``IOBase`` would close the file here, in whatever thread forgets it last.

        An error that has passed through the sink's thread is forgotten by the event loop, which would stand still for
        the minutes that the client tries to reach a name node. The next claim removes the file.
        """


class HdfsStore:
    """HDFS by its own protocol, without Java."""

    def __init__(self, url: str) -> None:
        """``url``: ``hdfs://namenode:9000/folder``; no connection is made before the first call."""
        parts = urlsplit(url)
        self._root = parts.path.rstrip("/")
        self._client = hdfs_native.Client(f"{parts.scheme}://{parts.netloc}")

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder; none where there is no such folder."""
        try:
            with _hdfs_errors(folder):
                statuses = list(self._client.list_status(self._path(folder)))
        except FileNotFoundError:
            return []
        return [status.path.rsplit("/", 1)[-1] for status in statuses if not status.isdir]

    def walk(self, folder: str) -> Iterator[str]:
        """Paths of all files below a folder."""
        try:
            with _hdfs_errors(folder):
                statuses = list(self._client.list_status(self._path(folder), recursive=True))
        except FileNotFoundError:
            return
        for status in statuses:
            if not status.isdir:
                yield status.path.removeprefix(f"{self._root}/")

    def create(self, path: str) -> IO[bytes]:
        """A new file, opened for writing; its folders are made."""
        with _hdfs_errors(path):
            file = self._client.create(self._path(path))
        return cast("IO[bytes]", _HdfsFile(path, cast("IO[bytes]", file)))

    def finish(self, file: IO[bytes]) -> None:
        """Close it."""
        file.close()

    def put_new(self, path: str, content: bytes) -> bool:
        """Make a file, whole or not at all, if there is none of the name; whether it was made."""
        return _put_new(self, path, content)

    def move(self, source: str, target: str) -> None:
        """Give a file another name; the name node does it at once, and refuses a name that is taken."""
        with _hdfs_errors(target):
            self._client.mkdirs(self._path(target).rsplit("/", 1)[0], create_parent=True)
            self._client.rename(self._path(source), self._path(target), overwrite=False)

    def read(self, path: str) -> bytes:
        """A whole small file."""
        with _hdfs_errors(path), self._client.read(self._path(path)) as file:
            return cast("bytes", file.read())

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError), _hdfs_errors(path):
            self._client.delete(self._path(path))

    def unfinished(self, folder: str) -> list[str]:
        """None: a file is there from its first byte on."""
        del folder
        return []

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"


class _hdfs_errors:  # noqa: N801 - reads as a verb phrase where it is used
    """The client's errors, which are told apart by their texts, as Python's."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Raise it as the OSError that it stands for."""
        if error is None or isinstance(error, FileNotFoundError | FileExistsError | PermissionError):
            return
        if not isinstance(error, Exception):
            return
        text = str(error)
        numbers = ((_THERE, errno.EEXIST), (_MISSING, errno.ENOENT), (_DENIED, errno.EACCES), (_FULL, errno.EDQUOT))
        number = next((number for pattern, number in numbers if pattern.search(text)), errno.EIO)
        raise OSError(number, text.splitlines()[0] if text else type(error).__name__, self._path) from error


def _put_new(store: Store, path: str, content: bytes) -> bool:
    """By a file of another name, which is written first: nobody ever sees a part of it."""
    folder, _, name = path.rpartition("/")
    beside = f"{folder}/.{name}.{uuid.uuid4().hex}"
    file = store.create(beside)
    file.write(content)
    store.finish(file)
    try:
        store.move(beside, path)
    except FileExistsError:
        store.remove(beside)
        return False
    return True
