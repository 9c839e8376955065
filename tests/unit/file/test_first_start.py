"""``file.start=end``: all files that are there begin at their ends, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from fetchers.file import fetcher
from fetchers.file.disk import ByteSource, PlainFile
from fetchers.file.fetcher import FileStreamSource, open_source
from fetchers.file.fileset import FileSet
from fetchers.file.followed import DENIED_SECONDS_MAX
from fetchers.file.reading import Reading, ReadResult
from fetchers.sdk import Fatal, Page
from fetchers.sdk.reach import AllowedPaths
from fetchers.sdk.testing import FakeContext, collect

MakeReading = Callable[..., Reading]
LinesOf = Callable[..., list[bytes]]
FOR_EVER = 1_000


@pytest.fixture
def begin(tmp_path: Path, reading: MakeReading) -> Callable[..., FileSet]:
    """The files of a folder, from their ends."""

    def make(**changes: object) -> FileSet:
        return FileSet(str(tmp_path / "*.log"), reading(**changes), stored={}, is_from_end=True)

    return make


def arrange(files: FileSet, now: float = 0.0) -> list[Page]:
    """The pages that come before all others."""
    return [page for page in files.arrange(files.look(), now) if page is not None]


def test_no_file_begins_before_all_can_be_opened(tmp_path: Path, begin: Callable[..., FileSet]) -> None:
    """One that is denied holds the others up, and then fails the task; nothing is stored that would forget it."""
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b"old\n")
    denied = {"b.log"}

    def open_allowed(path: str) -> PlainFile:
        if Path(path).name in denied:
            raise PermissionError(13, "Permission denied", path)
        return PlainFile(path)

    files = begin(opener=open_allowed)
    assert arrange(files) == []
    assert not files.has_begun
    with pytest.raises(PermissionError):
        arrange(files, DENIED_SECONDS_MAX)
    denied.clear()
    assert [(page.partition, page.offset["position"]) for page in arrange(files)] == [
        ({"filename": str(tmp_path / name)}, 4) for name in ("a.log", "b.log")
    ]
    assert files.has_begun


def test_the_offsets_of_a_first_start_are_one_transaction(tmp_path: Path, begin: Callable[..., FileSet]) -> None:
    """After a crash all of them are stored, or none; they bear no records."""
    for name in ("a.log", "b.log", "c.log"):
        (tmp_path / name).write_bytes(b"old\n")
    assert [(len(page), page.ends_transaction) for page in arrange(begin())] == [(0, False), (0, False), (0, True)]


def test_a_file_begins_behind_its_last_finished_line(
    tmp_path: Path, begin: Callable[..., FileSet], read_all: Callable[..., list[ReadResult]], lines_of: LinesOf
) -> None:
    """The line being written comes whole."""
    log = tmp_path / "a.log"
    log.write_bytes(b"old\nhal")
    files = begin()
    assert [page.offset["position"] for page in arrange(files)] == [4]
    (followed,) = files.needing_turn(files.look())
    with log.open("ab") as file:
        file.write(b"f\n")
    assert lines_of(read_all(followed)) == [b"half"]


@pytest.mark.parametrize("refused", [3, FOR_EVER])
async def test_a_file_that_is_denied_is_waited_for_and_then_named(
    source: Callable[..., FileStreamSource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, refused: int
) -> None:
    """The round is not finished before; after ten seconds it needs a person."""
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b"old\n")
    refusals = [PermissionError(13, "Permission denied", str(tmp_path / "b.log"))] * refused

    def open_later(path: str, *, stopping: Event, allowed: AllowedPaths) -> ByteSource:
        if path.endswith("b.log") and refusals:
            raise refusals.pop()
        return open_source(path, stopping=stopping, allowed=allowed)

    monkeypatch.setattr(fetcher, "open_source", open_later)
    pages = collect(source(file=tmp_path / "*.log", file_start="end"), FakeContext())
    if refused == FOR_EVER:
        with pytest.raises(Fatal, match=r"b\.log.*let the worker's user read it"):
            await pages
    else:
        assert [page.offset["position"] for page in await pages] == [4, 4]
