"""The files of a pattern: gone and back, and what is known of them after a restart."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from fetchers.file.copies import former_names
from fetchers.file.fetcher import open_source
from fetchers.file.fileset import GONE_MAX, FileSet
from fetchers.file.mark import StoredOffset, stored_offset
from fetchers.file.turn import Reading
from fetchers.sdk import Page

MakeReading = Callable[..., Reading]
LinesOf = Callable[..., list[bytes]]


class Task:
    """Looks, arranges and reads, in time that passes only when told; remembers the offsets that were given."""

    def __init__(self, pattern: Path, reading: Reading) -> None:
        self.pattern = pattern
        self.reading = reading
        self.now = 0.0
        self.stored: dict[str, StoredOffset] = {}
        self.restart()

    def restart(self) -> None:
        """Begin from the offsets."""
        self.files = FileSet(str(self.pattern), self.reading, stored=self.stored, is_from_end=False)

    def read(self, *, seconds: float = 0.0) -> list[Page]:
        """What one look brings, and the turns after it."""
        self.now += seconds
        looks = self.files.look()
        pages = [] if self.files.is_arranged(looks) else list(self.files.arrange(looks, self.now))
        for followed in self.files.needing_turn(looks):
            has_more = True
            while has_more:
                turn = followed.turn(self.now)
                has_more = turn.has_more
                pages += [turn.page] if turn.page is not None else []
        for page in pages:
            offset = stored_offset(page.offset)
            assert page.partition is not None
            assert offset is not None
            self.stored[str(page.partition["filename"])] = offset
        return pages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files are."""
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def task(folder: Path, reading: MakeReading) -> Task:
    """Follows all of them."""
    return Task(folder / "app*log*", reading(opener=lambda path: open_source(path, stopping=Event())))


def look_away(task: Task) -> list[Page]:
    """Long enough for files that are gone to be given up."""
    return [page for _ in range(3) for page in task.read(seconds=2.0)]


@pytest.mark.parametrize("at_rest", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_folder_moved_away_and_back_is_not_read_again(
    task: Task, folder: Path, lines_of: LinesOf, *, at_rest: bool, restarted: bool
) -> None:
    """Its files are the same, untouched; also where the task was started while they were away."""
    (folder / "app.log").write_bytes(b"a\n")
    (folder / "app.log.1").write_bytes(b"b\n")
    assert sorted(lines_of(task.read())) == [b"a", b"b"]
    if at_rest:
        task.files.rest()
    away = folder.rename(folder.with_name("away"))
    assert lines_of(look_away(task)) == []
    if restarted:
        task.restart()
        task.read()
    away.rename(folder)
    assert lines_of(task.read()) == []
    with (folder / "app.log").open("ab") as file:
        file.write(b"c\n")
    assert lines_of(task.read()) == [b"c"]


def test_a_file_that_comes_back_under_another_name_is_read_on_there(
    task: Task, folder: Path, lines_of: LinesOf
) -> None:
    """Where it goes on is stored by its new name, before anything else."""
    (folder / "app.log").write_bytes(b"a\n")
    task.read()
    away = (folder / "app.log").rename(folder / "away")
    look_away(task)
    with away.open("ab") as file:
        file.write(b"b\n")
    away.rename(folder / "app.log.1")
    marker, page = task.read()
    assert (len(marker), lines_of([page])) == (0, [b"b"])
    assert {page.partition["filename"] for page in (marker, page) if page.partition} == {str(folder / "app.log.1")}


def test_another_file_in_the_place_of_one_that_is_gone_is_read(task: Task, folder: Path, lines_of: LinesOf) -> None:
    """It was deleted, whatever inode its successor is given."""
    (folder / "app.log").write_bytes(b"same\n")
    task.read()
    (folder / "app.log").unlink()
    look_away(task)
    (folder / "app.log").write_bytes(b"same\nmore\n")
    assert lines_of(look_away(task)) == [b"same", b"more"]


def test_a_file_that_was_absent_at_the_start_is_read_on_when_it_comes(
    task: Task, folder: Path, lines_of: LinesOf
) -> None:
    """Other files were there; its offset was kept all the same."""
    (folder / "app.log").write_bytes(b"a\n")
    (folder / "app.log.1").write_bytes(b"b\n")
    task.read()
    away = (folder / "app.log").rename(folder / "away")
    task.restart()
    assert lines_of(look_away(task)) == []
    away.rename(folder / "app.log")
    assert lines_of(task.read()) == []


def test_only_so_many_files_that_are_gone_are_known(
    task: Task, folder: Path, lines_of: LinesOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first to go is read again when it comes back."""
    assert GONE_MAX > 1
    monkeypatch.setattr("fetchers.file.fileset.GONE_MAX", 1)
    for name in ("app.log.1", "app.log.2"):
        (folder / name).write_bytes(name.encode() + b"\n")
        task.read()
        (folder / name).rename(folder / f"away.{name}")
        look_away(task)
    for name in ("app.log.1", "app.log.2"):
        (folder / f"away.{name}").rename(folder / name)
    assert lines_of(task.read()) == [b"app.log.1"]


def append(path: Path, content: bytes) -> None:
    """Write at the end."""
    with path.open("ab") as file:
        file.write(content)


def compress(path: Path) -> Path:
    """As gzip does: the archive first, then the file goes."""
    archive = path.with_name(path.name + ".gz")
    archive.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return archive


@pytest.mark.parametrize("name", ["app.log.1", "app.log-2026-01-01", "app-2026.log"])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("at_rest", [False, True])
def test_what_copytruncate_leaves_is_not_read_again(
    task: Task, folder: Path, lines_of: LinesOf, *, name: str, restarted: bool, at_rest: bool
) -> None:
    """Only what nobody had read: it is in the copy, and no longer in the original."""
    log = folder / "app.log"
    log.write_bytes(b"a\nb\n")
    task.read()
    append(log, b"unread\n")
    if at_rest:
        task.files.rest()
    shutil.copy(log, folder / name)
    log.write_bytes(b"new\n")
    if restarted:
        task.restart()
    pages = look_away(task)
    assert sorted(lines_of(pages)) == [b"new", b"unread"]
    task.restart()
    assert lines_of(look_away(task)) == []


def test_a_copy_is_held_back_while_it_is_made(task: Task, folder: Path, lines_of: LinesOf) -> None:
    """It may be seen half made, and before its original is truncated; and lack what was written meanwhile."""
    log, copy = folder / "app.log", folder / "app.log.1"
    log.write_bytes(b"a\nb\nc\n")
    task.read()
    for part in (b"", b"a\nb", b"\nc\n"):
        append(copy, part)
        assert task.read(seconds=0.5) == []
    append(log, b"d\n")
    assert lines_of(task.read(seconds=0.5)) == [b"d"]
    log.write_bytes(b"new\n")
    assert lines_of(look_away(task)) == [b"new"]


def test_a_second_file_with_the_same_content_is_read(task: Task, folder: Path, lines_of: LinesOf) -> None:
    """Its original was not truncated: somebody wanted two."""
    (folder / "app.log").write_bytes(b"a\nb\n")
    task.read()
    shutil.copy(folder / "app.log", folder / "app.log.1")
    assert lines_of(task.read()) == []
    assert task.files.is_holding
    assert lines_of(task.read(seconds=2.0)) == [b"a", b"b"]
    assert not task.files.is_holding


@pytest.mark.parametrize("content", [b"heading\n1\n", b"other\nheading\n", b"heading\n"])
def test_a_heading_does_not_make_a_copy(task: Task, folder: Path, lines_of: LinesOf, *, content: bytes) -> None:
    """Nothing is skipped on the word of one line, even where the original was truncated."""
    log = folder / "app.log"
    log.write_bytes(b"heading\n")
    task.read()
    (folder / "app.log.1").write_bytes(content)
    log.write_bytes(b"")
    assert lines_of(look_away(task)) == content.splitlines()


def test_another_file_is_no_copy_whatever_its_name(task: Task, folder: Path, lines_of: LinesOf) -> None:
    """It lacks what was read."""
    log = folder / "app.log"
    log.write_bytes(b"1\n2\n3\n")
    task.read()
    (folder / "app.log.1").write_bytes(b"1\n2\n4\n")
    log.write_bytes(b"")
    assert lines_of(look_away(task)) == [b"1", b"2", b"4"]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("at_rest", [False, True])
@pytest.mark.parametrize("renamed", [False, True])
def test_what_gzip_leaves_is_not_read_again(
    task: Task, folder: Path, lines_of: LinesOf, *, restarted: bool, at_rest: bool, renamed: bool
) -> None:
    """The archive is read on where the file was, also where the file had another name a moment ago."""
    log = folder / "app.log"
    log.write_bytes(b"a\nb\n")
    task.read()
    if at_rest:
        task.files.rest()
    if not renamed:
        log.rename(folder / "app.log.1")
        task.read()
        compress(folder / "app.log.1")
    else:
        compress(log.rename(folder / "app.log.1"))
        log.write_bytes(b"new\n")
    if restarted:
        task.restart()
    assert lines_of(look_away(task)) == [b"new"] * renamed
    task.restart()
    assert lines_of(look_away(task)) == []


def test_a_copy_is_known_though_its_original_was_away(task: Task, folder: Path, lines_of: LinesOf) -> None:
    """It came back truncated, and a copy with it."""
    log = folder / "app.log"
    log.write_bytes(b"a\nb\n")
    task.read()
    away = folder.rename(folder.with_name("away"))
    look_away(task)
    shutil.copy(away / "app.log", away / "app.log.1")
    (away / "app.log").write_bytes(b"new\n")
    away.rename(folder)
    assert lines_of(look_away(task)) == [b"new"]


def test_an_archive_holds_what_was_not_read_of_the_file(task: Task, folder: Path, lines_of: LinesOf) -> None:
    """The task was not there to read it."""
    log = folder / "app.log"
    log.write_bytes(b"a\nb\n")
    task.read()
    append(log, b"unread\n")
    compress(log)
    task.restart()
    assert lines_of(look_away(task)) == [b"unread"]


def test_an_archive_beside_its_file_is_read(task: Task, folder: Path, lines_of: LinesOf) -> None:
    """``gzip --keep``: a second file."""
    log = folder / "app.log"
    log.write_bytes(b"a\nb\n")
    task.read()
    (folder / "app.log.gz").write_bytes(gzip.compress(log.read_bytes()))
    assert lines_of(task.read()) == []
    assert lines_of(task.read(seconds=2.0)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("name", "former", "strange"),
    [
        ("app.log.1", "app.log", "ap.log"),
        ("app-2026-01-01.log", "app.log", "app-2025.log"),
        ("app.log-2026.gz", "app.log", "app.log.gz"),
        ("app.log.2.gz", "app.log.1", "app.log.3"),
        ("log.1", "log", "log.0"),
        ("app.log2", "app", "app.log"),
    ],
)
def test_the_names_of_copies(name: str, former: str, strange: str) -> None:
    """They are made of the names of their originals, in the same folder."""
    assert f"/x/{former}" in former_names(f"/x/{name}")
    assert f"/x/{strange}" not in former_names(f"/x/{name}")
    assert f"/y/{former}" not in former_names(f"/x/{name}")
