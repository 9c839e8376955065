"""What is noted beside a sink's file, and what becomes of a file whose writer died at any point of an append."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from service.sinks.contract import Fatal, Partition
from service.sinks.file.note import Written, note_path
from service.sinks.file.writing import FileBusy, SinkFile

PARTITION: Partition = ("lines", 0)


class Dead(BaseException):
    """The writer was killed here."""


def numbered(begin: int, end: int) -> list[bytes]:
    """The lines of records ``begin`` to ``end``."""
    return [b"line %d\n" % number for number in range(begin, end)]


def append(file: SinkFile, begin: int, end: int) -> None:
    """Append the lines of these records, those that the file does not hold."""

    def lines_of(held: Mapping[Partition, Written]) -> tuple[list[memoryview], Mapping[Partition, tuple[int, ...]]]:
        known = held.get(PARTITION, Written(0)).next_offset
        return [memoryview(b"".join(numbered(max(begin, known), max(end, known))))], {}

    file.append({PARTITION: begin}, {PARTITION: end}, lines_of)


def opened(path: Path, committed: int | None = None, connector: str = "sink") -> SinkFile:
    """A task's way to the file, after it was given the partition."""
    file = SinkFile(path, connector)
    file.begin({PARTITION: committed})
    return file


def die_while_appending(path: Path, begin: int, end: int, *, written_bytes: int) -> None:
    """Append these records, and be killed after so many bytes."""

    def write_some(descriptor: int, pieces: list[memoryview]) -> None:
        os.write(descriptor, b"".join(pieces)[:written_bytes])
        raise Dead

    file = opened(path)
    file.write = write_some
    with pytest.raises(Dead):
        append(file, begin, end)


@pytest.mark.parametrize("written_bytes", [0, 1, 6, 7, 20, 50, 51, 52])
def test_a_half_written_append_is_cut_off_or_completed(tmp_path: Path, written_bytes: int) -> None:
    """At whatever byte the writer died: put again, the records stand in the file once."""
    path = tmp_path / "out.txt"
    append(opened(path), 0, 5)
    die_while_appending(path, 5, 12, written_bytes=written_bytes)
    append(opened(path), 5, 12)
    append(opened(path), 12, 14)
    assert path.read_bytes() == b"".join(numbered(0, 14))


@pytest.mark.parametrize("written_bytes", [0, 3, 51])
def test_another_task_mends_the_file(tmp_path: Path, written_bytes: int) -> None:
    """One that has never had the partition, and will not get it, finds the file as whole as the next owner does."""
    path = tmp_path / "out.txt"
    other = opened(path, connector="other")
    die_while_appending(path, 5, 12, written_bytes=written_bytes)
    append(other, 0, 2)
    append(opened(path), 5, 12)
    assert sorted(path.read_bytes().splitlines(keepends=True)) == sorted([*numbered(0, 2), *numbered(5, 12)])


def test_records_that_come_again_are_passed_over(tmp_path: Path) -> None:
    """By this task, a next one, or one that still believes to have the partition."""
    path = tmp_path / "out.txt"
    file, zombie = opened(path), opened(path)
    append(file, 0, 5)
    append(file, 3, 7)
    append(zombie, 0, 6)
    append(opened(path), 0, 8)
    assert path.read_bytes() == b"".join(numbered(0, 8))


def test_a_reset_writes_the_lines_again(tmp_path: Path) -> None:
    """A group's offset that is lower than the last one heard of was set back by someone."""
    path = tmp_path / "out.txt"
    file = opened(path)
    append(file, 0, 5)
    file.note_committed({PARTITION: 5})
    append(opened(path, committed=2), 2, 5)
    assert path.read_bytes() == b"".join([*numbered(0, 5), *numbered(2, 5)])


def test_a_removed_group_writes_the_lines_again(tmp_path: Path) -> None:
    """Offsets that are gone were reset too, once there were any."""
    path = tmp_path / "out.txt"
    file = opened(path)
    append(file, 0, 2)
    file.note_committed({PARTITION: 2})
    append(opened(path, committed=None), 0, 2)
    assert path.read_bytes() == b"".join(numbered(0, 2) * 2)


def test_a_commit_behind_the_file_is_no_reset(tmp_path: Path) -> None:
    """It is what a crash between writing and committing leaves."""
    path = tmp_path / "out.txt"
    file = opened(path)
    append(file, 0, 3)
    file.note_committed({PARTITION: 3})
    append(file, 3, 6)
    append(opened(path, committed=3), 3, 7)
    assert path.read_bytes() == b"".join(numbered(0, 7))


def test_a_topic_made_anew_begins_anew(tmp_path: Path) -> None:
    """Records before the place where the task began to read are none that it has written."""
    path = tmp_path / "out.txt"
    append(opened(path), 0, 5)
    file = opened(path, committed=5)
    append(file, 0, 2)
    assert path.read_bytes() == b"".join([*numbered(0, 5), *numbered(0, 2)])


def test_connectors_do_not_mistake_each_other(tmp_path: Path) -> None:
    """Two connectors may read the same partition into the same file."""
    path = tmp_path / "out.txt"
    one, other = opened(path, connector="one"), opened(path, connector="other")
    append(one, 0, 2)
    append(other, 0, 2)
    append(one, 2, 3)
    assert path.read_bytes() == b"".join([*numbered(0, 2), *numbered(0, 2), *numbered(2, 3)])


def test_what_others_append_is_never_cut_off(tmp_path: Path) -> None:
    """Not after a whole append, and not after a broken one either."""
    path = tmp_path / "out.txt"
    append(opened(path), 0, 2)
    with path.open("ab") as stream:
        stream.write(b"by hand\n")
    append(opened(path), 2, 3)
    die_while_appending(path, 3, 4, written_bytes=2)
    with path.open("ab") as stream:
        stream.write(b"by hand, far longer than the append\n")
    append(opened(path), 3, 4)
    assert path.read_bytes() == (b"line 0\nline 1\nby hand\nline 2\nliby hand, far longer than the append\nline 3\n")


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_rotated_file_goes_on_empty(tmp_path: Path, *, is_removed: bool) -> None:
    """Removed, or replaced by another: what comes next stands in the new one, once."""
    path = tmp_path / "out.txt"
    file = opened(path)
    append(file, 0, 3)
    path.rename(tmp_path / "out.txt.1")
    if not is_removed:
        path.touch()
    append(file, 3, 5)
    append(opened(path, committed=3), 3, 6)
    assert path.read_bytes() == b"".join(numbered(3, 6))


def test_a_file_in_the_hands_of_another_writer_is_busy(tmp_path: Path) -> None:
    """Nobody waits in a thread for it."""
    path = tmp_path / "out.txt"
    holder, waiting = opened(path), opened(path)
    with holder._locked(), pytest.raises(FileBusy):
        append(waiting, 0, 1)
    append(waiting, 0, 1)
    assert path.read_bytes() == b"line 0\n"


def test_a_device_gets_the_lines_and_no_note(tmp_path: Path) -> None:
    """Where nothing can be looked at, nothing is noted."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        append(opened(pipe), 0, 2)
        assert os.read(reader, 100) == b"line 0\nline 1\n"
    finally:
        os.close(reader)
    assert not note_path(pipe).exists()


def test_a_broken_note_is_told_of(tmp_path: Path) -> None:
    """Guessing would lose or repeat lines."""
    path = tmp_path / "out.txt"
    note_path(path).write_text("{}", encoding="utf-8")
    with pytest.raises(Fatal, match="remove it to begin anew"):
        opened(path)


@pytest.mark.parametrize("place", ["missing/out.txt", "."])
def test_a_file_that_cannot_be_made_is_fatal(tmp_path: Path, place: str) -> None:
    """A missing folder, a folder in its place."""
    with pytest.raises(Fatal, match="cannot be opened for appending"):
        opened(tmp_path / place)
