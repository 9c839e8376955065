"""Rotations that nobody saw: what is read in between, and what is only told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fetchers.file.followed import FollowedFile
from fetchers.file.mark import stored_offset
from fetchers.file.reading import FilesMissed, Reading, ReadResult

MakeReading = Callable[..., Reading]
ReadAll = Callable[..., list[ReadResult]]
LinesOf = Callable[..., list[bytes]]
LATE = (0.0, 1.0, 2.0, 3.0, 4.0)
"""Moments of looks, each long enough after the other to leave a rotated file."""


def write(path: Path, content: bytes, *, second: int) -> None:
    """Give a file content, and the time when it was modified last."""
    path.write_bytes(content)
    touch(path, second)


def touch(path: Path, second: int) -> None:
    """Set the time of the last modification."""
    os.utime(path, (second, second))


def missed_in(results: list[ReadResult]) -> list[str]:
    """What was told."""
    return [event.names for result in results for event in result.events if isinstance(event, FilesMissed)]


@pytest.fixture
def follow_on(log: Path, reading: MakeReading, read_all: ReadAll) -> Callable[..., list[ReadResult]]:
    """Read the first line, let the worker be down while ``happens``, and read all that is there then."""

    def follow(happens: Callable[[], object], **changes: object) -> list[ReadResult]:
        write(log, b"1\n", second=10)
        followed = FollowedFile(str(log), reading(**changes))
        pages = [result.page for result in read_all(followed) if result.page is not None]
        followed.close()
        happens()
        stored = stored_offset(pages[-1].offset)
        followed = FollowedFile(str(log), reading(**changes), stored=stored)
        return [result for now in LATE for result in read_all(followed, now)]

    return follow


@pytest.mark.parametrize(
    "names",
    [
        (".3", ".2", ".1"),
        ("-20260130", "-20260131", "-20260201"),
        (".2026-01-31_23", ".2026-02-01_00", ".2026-02-01_01"),
    ],
)
def test_files_between_are_read_where_names_and_times_tell_their_order(
    log: Path, follow_on: Callable[..., list[ReadResult]], lines_of: LinesOf, *, names: tuple[str, str, str]
) -> None:
    """Three rotations while nobody read: each line once, in order, and nothing to tell."""
    oldest, middle, newest = (Path(f"{log}{name}") for name in names)

    def rotate() -> None:
        with log.open("ab") as file:
            file.write(b"2\n")
        touch(log, 20)
        log.rename(oldest)
        write(middle, b"3\n", second=30)
        write(newest, b"4\nwithout end", second=40)
        write(log, b"5\n", second=50)
        # Not of this rotation, and rotated long ago.
        write(Path(f"{log}.wf"), b"other\n", second=60)
        write(Path(f"{log}.4"), b"older\n", second=5)

    results = follow_on(rotate)
    assert lines_of(results) == [b"2", b"3", b"4", b"without end", b"5"]
    assert missed_in(results) == []


def test_a_file_between_is_read_though_nothing_is_at_the_path_yet(
    log: Path, follow_on: Callable[..., list[ReadResult]], lines_of: LinesOf
) -> None:
    """Its writer has nothing to say for now."""

    def rotate() -> None:
        log.rename(f"{log}.2")
        write(Path(f"{log}.1"), b"2\n", second=20)

    assert lines_of(follow_on(rotate)) == [b"2"]


def test_a_crash_while_a_file_between_is_read_loses_and_repeats_nothing(
    log: Path, follow_on: Callable[..., list[ReadResult]], reading: MakeReading, read_all: ReadAll, *, lines_of: LinesOf
) -> None:
    """Its offset finds it again."""

    def rotate() -> None:
        log.rename(f"{log}.2")
        write(Path(f"{log}.1"), b"2\n" + b"x" * 100 + b"\n", second=20)
        write(log, b"3\n", second=30)

    results = follow_on(rotate)
    pages = [result.page for result in results if result.page is not None]
    assert len(pages) == 3
    for count, page in enumerate(pages, 1):
        followed = FollowedFile(str(log), reading(), stored=stored_offset(page.offset))
        rest = [result for now in LATE for result in read_all(followed, now)]
        assert lines_of(pages[:count]) + lines_of(rest) == lines_of(pages)


@pytest.mark.parametrize(
    ("left", "others", "told"),
    [
        (".1", {".2": 20}, "app.log.2"),
        (".2", {".1": 10}, "app.log.1"),
        (".3", {".1": 20}, "app.log.1"),
        (".3", {".1": 20, ".2": 30}, "app.log.1, app.log.2"),
        (".2", {".1": 20, ".3": 30}, "app.log.1, app.log.3"),
        ("-20260131", {"-20260130": 20}, "app.log-20260130"),
        (".old1", {".old2": 20}, "app.log.old2"),
    ],
    ids=["counted_up", "same_time", "gap", "times_disagree", "both_sides", "earlier_stamp", "other_names"],
)
def test_what_may_be_between_is_told_and_not_read(
    log: Path,
    follow_on: Callable[..., list[ReadResult]],
    lines_of: LinesOf,
    *,
    left: str,
    others: dict[str, int],
    told: str,
) -> None:
    """A guess could repeat lines that were read long ago."""

    def rotate() -> None:
        log.rename(f"{log}{left}")
        for name, second in others.items():
            write(Path(f"{log}{name}"), b"between?\n", second=second)
        write(log, b"2\n", second=50)

    results = follow_on(rotate)
    assert lines_of(results) == [b"2"]
    assert missed_in(results) == [told]


@pytest.mark.parametrize("pattern", ["app.log*", "app.log.1"])
def test_what_matches_the_pattern_is_read_on_its_own(
    log: Path, follow_on: Callable[..., list[ReadResult]], lines_of: LinesOf, *, pattern: str
) -> None:
    """And not a second time in place of another."""

    def rotate() -> None:
        log.rename(f"{log}.2")
        write(Path(f"{log}.1"), b"on its own\n", second=20)
        write(log, b"2\n", second=30)

    results = follow_on(rotate, pattern=str(log.with_name(pattern)))
    assert lines_of(results) == [b"2"]
    assert missed_in(results) == []


def test_files_that_came_and_went_while_nothing_was_at_the_path_are_told(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Between two looks of a task that was held up."""
    write(log, b"1\n", second=10)
    followed = FollowedFile(str(log), reading())
    results = read_all(followed)
    log.rename(f"{log}.1")
    results += read_all(followed, 1.0) + read_all(followed, 2.0)
    Path(f"{log}.1").rename(f"{log}.2")
    write(Path(f"{log}.1"), b"missed\n", second=20)
    write(log, b"2\n", second=30)
    results += read_all(followed, 3.0)
    assert lines_of(results) == [b"1", b"2"]
    assert missed_in(results) == ["app.log.1"]


def test_one_rotation_has_nothing_to_tell(
    log: Path, follow_on: Callable[..., list[ReadResult]], lines_of: LinesOf
) -> None:
    """The file at the path came next."""

    def rotate() -> None:
        write(Path(f"{log}.2"), b"older\n", second=5)
        log.rename(f"{log}.1")
        write(log, b"2\n", second=50)

    results = follow_on(rotate)
    assert lines_of(results) == [b"2"]
    assert missed_in(results) == []


def test_a_folder_that_is_gone_ends_nothing(log: Path, reading: MakeReading, read_all: ReadAll) -> None:
    """The file is missing, as any other."""
    folder = log.parent / "folder"
    folder.mkdir()
    path = folder / "app.log"
    path.write_bytes(b"1\n")
    followed = FollowedFile(str(path), reading())
    read_all(followed)
    path.unlink()
    folder.rmdir()
    read_all(followed, 0.0)
    assert followed.identity is not None
    read_all(followed, 1.0)
    assert followed.identity is None
