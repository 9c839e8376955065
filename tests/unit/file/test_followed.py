"""One followed file: faults, rotation, truncation, and what is told of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fetchers.file.disk import PlainFile
from fetchers.file.followed import DENIED_SECONDS_MAX, FollowedFile
from fetchers.file.mark import StoredOffset, stored_offset
from fetchers.file.reading import FileMissing, FileRestarted, LastLineGivenUp, Reading, ReadResult, UnfinishedLineLost
from fetchers.sdk import Fatal, Page

MakeReading = Callable[..., Reading]
ReadAll = Callable[..., list[ReadResult]]
LinesOf = Callable[..., list[bytes]]
SPARSE_BYTES = 3 << 30


def last_stored(results: list[ReadResult]) -> StoredOffset | None:
    """The offset of the last page."""
    pages = [result.page for result in results if result.page is not None]
    return stored_offset(pages[-1].offset)


def events_of(results: list[ReadResult]) -> list[str]:
    """Names of what happened."""
    return [type(event).__name__ for result in results for event in result.events]


def test_a_line_without_end_in_a_sparse_file_of_3_gb_fails_in_bounded_memory(
    log: Path, reading: MakeReading, read_all: ReadAll
) -> None:
    """The task says which file and byte, having read no more than the limit."""
    log.write_bytes(b"first\n")
    os.truncate(log, SPARSE_BYTES)
    read: list[int] = []

    class Counted(PlainFile):
        def read_at(self, bytes_max: int, position: int) -> bytes:
            block = super().read_at(bytes_max, position)
            read.append(len(block))
            return block

    followed = FollowedFile(str(log), reading(opener=Counted, page_bytes=1 << 20, line_bytes_max=1 << 22))
    first = followed.read_once(0.0)
    assert first.page is not None
    assert list(first.page.values()) == [b"first"]
    with pytest.raises(Fatal, match=r"app.log.*byte 6 .*file.line.bytes.max"):
        read_all(followed)
    assert sum(read) < 3 * (1 << 22)


def test_a_directory_is_refused(tmp_path: Path, reading: MakeReading) -> None:
    """No wait turns it into a file."""
    with pytest.raises(Fatal, match="not a regular file"):
        FollowedFile(str(tmp_path), reading()).read_once(0.0)


def test_a_named_pipe_is_refused_and_does_not_block(tmp_path: Path, reading: MakeReading) -> None:
    """Opening one for reading waits for a writer, unless told not to."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Fatal, match="standard input"):
        FollowedFile(str(tmp_path / "pipe"), reading()).read_once(0.0)


def test_permission_denied_is_waited_for_and_then_raised(log: Path, reading: MakeReading) -> None:
    """Whoever makes a file may give the right to read it a moment later; not ten seconds later."""

    def refuse(path: str) -> PlainFile:
        raise PermissionError(13, "Permission denied", path)

    followed = FollowedFile(str(log), reading(opener=refuse))
    assert followed.read_once(0.0).is_waiting
    assert followed.needs_turn(None)
    assert followed.read_once(DENIED_SECONDS_MAX - 1).is_waiting
    with pytest.raises(PermissionError):
        followed.read_once(DENIED_SECONDS_MAX)


def test_a_missing_file_is_told_once_and_read_when_it_comes(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Missing is not failed."""
    followed = FollowedFile(str(log), reading())
    results = [followed.read_once(0.0), followed.read_once(1.0)]
    assert events_of(results) == [FileMissing.__name__]
    assert not followed.needs_turn(None)
    log.write_bytes(b"a\n")
    assert lines_of(read_all(followed)) == [b"a"]


def test_truncation_below_the_position_starts_anew(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """The new content is read from byte 0, and what was lost of an unfinished line is told."""
    log.write_bytes(b"old 1\nold 2\nunfin")
    followed = FollowedFile(str(log), reading())
    assert lines_of(read_all(followed)) == [b"old 1", b"old 2"]
    log.write_bytes(b"new\n")
    results = read_all(followed)
    assert lines_of(results) == [b"new"]
    assert events_of(results) == [FileRestarted.__name__, UnfinishedLineLost.__name__]


def test_truncation_is_noticed_though_the_file_has_grown_past_the_position(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Size alone would say that it has only grown."""
    log.write_bytes(b"old 1\nold 2\n")
    followed = FollowedFile(str(log), reading())
    read_all(followed)
    log.write_bytes(b"new 1\nnew 2\nnew 3\n")
    assert lines_of(read_all(followed)) == [b"new 1", b"new 2", b"new 3"]


def test_truncation_while_nobody_looked_is_noticed_by_the_signature(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """The same inode, and longer than the stored position: the content tells."""
    log.write_bytes(b"old 1\nold 2\n")
    stored = last_stored(read_all(FollowedFile(str(log), reading())))
    log.write_bytes(b"new 1\nnew 2\nnew 3\n")
    assert stored is not None
    assert stored.inode == log.stat().st_ino
    results = read_all(FollowedFile(str(log), reading(), stored=stored))
    assert lines_of(results) == [b"new 1", b"new 2", b"new 3"]
    assert [event.reason for result in results for event in result.events if isinstance(event, FileRestarted)] == [
        "truncated"
    ]


def test_truncation_during_a_read_hands_over_nothing_of_the_old_content(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """What was read of a file that is another one by then is thrown away."""
    log.write_bytes(b"old 1\n")
    is_armed = False

    class Truncated(PlainFile):
        def read_at(self, bytes_max: int, position: int) -> bytes:
            nonlocal is_armed
            block = super().read_at(bytes_max, position)
            if is_armed and position:
                is_armed = False
                log.write_bytes(b"new 1\nnew 2\nnew 3\n")
            return block

    followed = FollowedFile(str(log), reading(opener=Truncated))
    read_all(followed)
    with log.open("ab") as file:
        file.write(b"old 2\n")
    is_armed = True
    assert lines_of(read_all(followed)) == [b"new 1", b"new 2", b"new 3"]


def test_an_unfinished_line_that_is_written_anew_is_read_anew(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Some writers allocate zeros first; they must not stay in the line."""
    log.write_bytes(b"a\n\0\0\0\0")
    followed = FollowedFile(str(log), reading())
    assert lines_of(read_all(followed)) == [b"a"]
    log.write_bytes(b"a\nbcd\n")
    assert lines_of(read_all(followed)) == [b"bcd"]


def test_a_renamed_file_is_read_to_its_end_before_its_successor(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Also what its writer adds after the rename, and a last line that gets no end."""
    log.write_bytes(b"old 1\n")
    followed = FollowedFile(str(log), reading(rotate_wait_seconds=1.0))
    results = read_all(followed)
    old = log.rename(log.with_suffix(".1"))
    log.write_bytes(b"new 1\n")
    results += read_all(followed, 10.0)
    assert results[-1].is_waiting
    with old.open("ab") as file:
        file.write(b"old 2\nold 3")
    results += read_all(followed, 10.9)
    results += read_all(followed, 11.8)
    assert lines_of(results) == [b"old 1", b"old 2"]
    results += read_all(followed, 12.8)
    assert lines_of(results) == [b"old 1", b"old 2", b"old 3", b"new 1"]
    assert events_of(results) == [LastLineGivenUp.__name__]


def test_a_file_renamed_while_nobody_looked_is_read_to_its_end_first(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """It is found in its folder by the stored inode and signature."""
    log.write_bytes(b"old 1\n")
    stored = last_stored(read_all(FollowedFile(str(log), reading())))
    with log.open("ab") as file:
        file.write(b"old 2\n")
    log.rename(log.with_suffix(".1"))
    log.write_bytes(b"new 1\n")
    followed = FollowedFile(str(log), reading(), stored=stored)
    results = read_all(followed, 0.0) + read_all(followed, 1.0)
    assert lines_of(results) == [b"old 2", b"new 1"]


def test_a_deleted_file_is_read_to_its_end_and_its_successor_from_the_beginning(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Even when the successor begins as the deleted file did."""
    log.write_bytes(b"same\n")
    followed = FollowedFile(str(log), reading())
    results = read_all(followed)
    with log.open("ab") as file:
        file.write(b"late\n")
    log.unlink()
    results += read_all(followed, 0.0) + read_all(followed, 1.0)
    assert events_of(results) == [FileMissing.__name__]
    assert followed.identity is None, "its space on the disk is given back"
    log.write_bytes(b"same\nlate\nmore\n")
    results += read_all(followed, 2.0)
    assert lines_of(results) == [b"same", b"late", b"same", b"late", b"more"]


def test_a_file_that_was_moved_away_and_back_is_not_repeated(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """It is the same file, untouched."""
    log.write_bytes(b"a\n")
    followed = FollowedFile(str(log), reading())
    results = read_all(followed)
    away = log.rename(log.with_suffix(".away"))
    results += read_all(followed, 0.0) + read_all(followed, 1.0)
    away.rename(log)
    results += read_all(followed, 2.0)
    assert lines_of(results) == [b"a"]


def test_a_longer_copy_moved_over_the_file_is_read_on(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """As rsync does; the unfinished line of the old file is finished in the new one."""
    log.write_bytes(b"a\nb")
    followed = FollowedFile(str(log), reading())
    results = read_all(followed)
    copy = log.with_suffix(".copy")
    copy.write_bytes(b"a\nbc\nd\n")
    copy.replace(log)
    results += read_all(followed, 0.0) + read_all(followed, 1.0)
    assert lines_of(results) == [b"a", b"bc", b"d"]


@pytest.mark.parametrize("heading", [b"", b"heading\n"])
def test_an_unfinished_line_is_not_dropped_for_a_file_that_only_begins_alike(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf, *, heading: bytes
) -> None:
    """What was moved over the file holds another line: the old one is given up, the new file read from byte 0."""
    log.write_bytes(heading + b"state=1")
    followed = FollowedFile(str(log), reading())
    results = read_all(followed)
    other = log.with_suffix(".new")
    other.write_bytes(heading + b"state=2\n")
    other.replace(log)
    results += read_all(followed, 0.0) + read_all(followed, 1.0)
    assert lines_of(results) == [*heading.splitlines(), b"state=1", *heading.splitlines(), b"state=2"]
    assert events_of(results) == [LastLineGivenUp.__name__]


def test_an_offset_that_fits_nothing_is_told_and_the_file_read_from_the_beginning(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Rather twice than never."""
    log.write_bytes(b"a\nb\n")
    stored = StoredOffset(2, inode=log.stat().st_ino + 1, signature="0" * 16)
    results = read_all(FollowedFile(str(log), reading(), stored=stored))
    assert lines_of(results) == [b"a", b"b"]
    assert [event.reason for result in results for event in result.events if isinstance(event, FileRestarted)] == [
        "unknown"
    ]


@pytest.mark.parametrize("size_less_one", [0, 1])
def test_an_offset_of_connect_counts_bytes(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf, *, size_less_one: int
) -> None:
    """``position`` alone resumes there, or at 0 where the file is shorter."""
    log.write_bytes(b"a\nb\n"[: 4 - size_less_one])
    results = read_all(FollowedFile(str(log), reading(), stored=StoredOffset(4)))
    assert lines_of(results) == ([b"a"] if size_less_one else [])


def test_the_last_line_waits_for_its_end(log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf) -> None:
    """However long it takes; then it comes whole."""
    log.write_bytes("a\né".encode()[:-1])
    followed = FollowedFile(str(log), reading())
    assert lines_of(read_all(followed, 0.0) + read_all(followed, 1e6)) == [b"a"]
    with log.open("ab") as file:
        file.write("é\n".encode()[1:])
    assert lines_of(read_all(followed, 2e6)) == ["é".encode()]


def test_the_last_line_can_be_delivered_after_idleness(
    log: Path, reading: MakeReading, read_all: ReadAll, lines_of: LinesOf
) -> None:
    """Not before; growth starts the wait anew; what comes later is a line of its own."""
    log.write_bytes(b"a")
    followed = FollowedFile(str(log), reading(last_line_idle_seconds=5.0))
    assert read_all(followed, 0.0)[-1].is_waiting
    with log.open("ab") as file:
        file.write(b"b")
    assert lines_of(read_all(followed, 4.0) + read_all(followed, 8.0)) == []
    results = read_all(followed, 9.0)
    assert lines_of(results) == [b"ab"]
    stored = last_stored(results)
    assert stored is not None
    assert stored.position == 2
    with log.open("ab") as file:
        file.write(b"c\n")
    assert lines_of(read_all(followed, 10.0)) == [b"c"]


def test_pages_have_about_the_size_asked_for(log: Path, reading: MakeReading, read_all: ReadAll) -> None:
    """Bytes decide; too few lines in them are made up for, up to four times the bytes."""

    def sizes(page_bytes: int, page_lines: int) -> list[int]:
        results = read_all(FollowedFile(str(log), reading(page_bytes=page_bytes, page_lines=page_lines)))
        pages: list[Page] = [result.page for result in results if result.page is not None]
        return [len(page) for page in pages]

    log.write_bytes(b"123456789\n" * 100)
    assert sizes(100, 1) == [10] * 10
    assert sizes(100, 20) == [20] * 5
    assert sizes(100, 1_000) == [40, 40, 20]
