"""The contract suite's source for ``FileStreamSource``: a file that rotates, with text that is not ASCII."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from fetchers.file.fetcher import FileStreamSource
from fetchers.sdk.testing import BadConfig, FetcherCase, ScriptedSource

LINES = 500


class GrowingFile(ScriptedSource):
    """One file; ``add`` ends the line that was left unfinished, and begins another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._read_to = 0
        self._extend(LINES)

    @property
    def properties(self) -> Mapping[str, str]:
        """Small pages, so that there are many offsets."""
        return {"topic": "lines", "file": str(self._path), "batch.size": "10", "file.page.bytes": "700"}

    @property
    def expected(self) -> Sequence[bytes]:
        """All finished lines."""
        return tuple(self._lines)

    @property
    def records_given(self) -> int:
        """Lines that end in what was read of the file."""
        return self._path.read_bytes()[: self._read_to].count(b"\n")

    @contextmanager
    def heeding_reads(self) -> Iterator[None]:
        """Notice how far the file is read, whoever reads it: reads by position leave no trace."""
        read = os.pread

        def pread(descriptor: int, bytes_max: int, position: int) -> bytes:
            block = read(descriptor, bytes_max, position)
            if self._path.exists() and os.path.samestat(os.fstat(descriptor), self._path.stat()):
                self._read_to = max(self._read_to, position + len(block))
            return block

        os.pread = pread
        try:
            yield
        finally:
            os.pread = read

    async def add(self) -> None:
        """Grow."""
        self._extend(3)

    async def hang(self) -> None:
        """A file that does not grow answers nothing."""

    async def wait_until_asked(self) -> None:
        """Wait until somebody has the file open."""
        while not any(_is_open_at(entry, self._path) for entry in Path("/proc/self/fd").iterdir()):
            await asyncio.sleep(0.01)

    async def refuse(self) -> None:
        """Put a folder in the file's place."""
        self._path.unlink()
        self._path.mkdir()

    def _extend(self, count: int) -> None:
        begin = len(self._lines)
        lines = [f"{number} ä€🙂\u2028\r{'x' * (1 + number % 50)}".encode() for number in range(begin, begin + count)]
        ends = [b"\r\n" if number % 3 else b"\n" for number in range(begin, begin + count)]
        with self._path.open("ab") as file:
            # The line begun before is the first of these.
            file.write(b"".join(map(bytes.__add__, lines, ends))[4 if begin else 0 :])
            file.write(f"{begin + count} ä€🙂".encode()[:4])
        self._lines += lines


def _is_open_at(entry: Path, path: Path) -> bool:
    try:
        return entry.samefile(path)
    except OSError:
        return False  # closed since it was listed


class FileCase(FetcherCase):
    """``FileStreamSource`` as the suite sees it."""

    connector = FileStreamSource
    records_ahead_max = 100
    bad_configs = (
        BadConfig({"topic": "", "batch.size": "0"}, frozenset({"topic", "batch.size"})),
        BadConfig(
            {"file.last.line": "drop", "poll.interval.ms": "soon"}, frozenset({"file.last.line", "poll.interval.ms"})
        ),
        BadConfig({"file.start": "middle", "topic": None}, frozenset({"file.start", "topic"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[ScriptedSource]:
        """A file in the folder."""
        file = GrowingFile(folder / "lines.txt")
        with file.heeding_reads():
            yield file


CASE = FileCase()
