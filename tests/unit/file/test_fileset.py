"""The files of a pattern: gone and back, and what is known of them after a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
        pages = [] if self.files.is_arranged(looks) else list(self.files.arrange(looks))
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
    return Task(folder / "app.log*", reading())


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
    assert lines_of(task.read()) == [b"same", b"more"]


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
