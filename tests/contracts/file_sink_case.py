"""The contract suite's target for ``FileStreamSink``: a file in a folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from service.sinks.file.sink import FileStreamSink
from service.sinks.testing import SinkCase, Target


class LinesFile(Target):
    """A file of lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def properties(self) -> Mapping[str, str]:
        """The one key."""
        return {"file": str(self._path)}

    async def written(self) -> Sequence[str]:
        """The lines."""
        return self._path.read_text(encoding="utf-8").split("\n")[:-1]


class FileSinkCase(SinkCase):
    """``FileStreamSink`` as the suite sees it; no text is a wrong name of a file."""

    connector = FileStreamSink
    is_exactly_once = True
    tombstone = "null"

    @asynccontextmanager
    async def target(self, folder: Path) -> AsyncIterator[Target]:
        """A file that is not there yet."""
        yield LinesFile(folder / "out.txt")


CASE = FileSinkCase()
