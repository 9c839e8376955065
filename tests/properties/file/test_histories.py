"""Random histories of files: whatever is written, rotated, truncated and restarted, each line comes once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fetchers.file.disk import PlainFile
from fetchers.file.fileset import FileSet
from fetchers.file.followed import FollowedFile
from fetchers.file.mark import StoredOffset, stored_offset
from fetchers.file.reading import Reading
from fetchers.sdk import Page

READING = Reading(
    connector="test",
    task=0,
    opener=PlainFile,
    page_bytes=48,
    page_lines=1,
    line_bytes_max=10_000,
    rotate_wait_seconds=1.0,
    last_line_idle_seconds=None,
)
COUNTS = st.integers(min_value=1, max_value=8)


class Writer:
    """Writes numbered lines of several widths, so that no two are equal and characters are cut."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def next_line(self) -> bytes:
        """A line, which counts as written."""
        number = len(self.lines)
        self.lines.append(f"{number} é🙂{'x' * (number * 7 % 40)}".encode())
        return self.lines[-1]

    def next_lines(self, count: int) -> bytes:
        """Several lines with their ends."""
        return b"".join(self.next_line() + (b"\r\n" if number % 2 else b"\n") for number in range(count))


class OneFile(RuleBasedStateMachine):
    """A single file; what lies between two looks is at most one rotation, more than that needs a pattern."""

    @initialize()
    def begin(self) -> None:
        """Nothing is there yet."""
        self.folder = Path(tempfile.mkdtemp(prefix="file-history-"))
        self.path = self.folder / "app.log"
        self.writer = Writer()
        self.half: bytes = b""
        self.rotations = 0
        self.now = 0.0
        self.stored: StoredOffset | None = None
        self.committed: list[bytes | None] = []
        self.waiting: list[Page] = []
        self.followed = FollowedFile(str(self.path), READING)

    def teardown(self) -> None:
        """Read to the end: everything that was written has come, in order."""
        if not hasattr(self, "folder"):
            return
        if self.half:
            self.finish_line()
        for _ in range(4 + self.rotations):
            self.read(1_000)
            self.now += 2.0
        self.commit(1_000)
        self.followed.close()
        shutil.rmtree(self.folder)
        assert self.committed == self.writer.lines

    def append(self, content: bytes) -> None:
        """Write to whatever file is at the path."""
        with self.path.open("ab") as file:
            file.write(content)

    @rule(count=COUNTS)
    @precondition(lambda self: not self.half)
    def write(self, count: int) -> None:
        """Whole lines."""
        self.append(self.writer.next_lines(count))

    @rule(share=st.floats(min_value=0.1, max_value=0.9))
    @precondition(lambda self: not self.half)
    def begin_line(self, share: float) -> None:
        """A part of a line, cut anywhere."""
        line = self.writer.next_line()
        cut = max(1, int(len(line) * share))
        self.append(line[:cut])
        self.half = line[cut:] + b"\r\n"

    @rule()
    @precondition(lambda self: self.half)
    def finish_line(self) -> None:
        """The rest of it."""
        self.append(self.half)
        self.half = b""

    @rule(count=st.integers(min_value=1, max_value=6))
    def read(self, count: int) -> None:
        """Read some times."""
        for _ in range(count):
            result = self.followed.read_once(self.now)
            if result.page is not None:
                self.waiting.append(result.page)
            if not result.has_more:
                break

    @rule(count=COUNTS)
    def commit(self, count: int) -> None:
        """Pages reach Kafka, in order."""
        done, self.waiting = self.waiting[:count], self.waiting[count:]
        for page in done:
            self.committed += page.values()
            self.stored = stored_offset(page.offset)

    @rule()
    def restart(self) -> None:
        """Whatever was not committed is forgotten."""
        self.followed.close()
        self.waiting = []
        self.followed = FollowedFile(str(self.path), READING, stored=self.stored)

    @rule()
    def pass_time(self) -> None:
        """Longer than a rotated file is waited for."""
        self.now += 2.0

    def is_known(self) -> bool:
        """Whether the file at the path is known by a committed offset, so that it is found again wherever it goes."""
        if self.stored is None or not self.path.exists() or self.stored.inode != self.path.stat().st_ino:
            return False
        with PlainFile(str(self.path)) as file:
            return self.stored.mark_in(file.read_at) is not None

    def is_read(self) -> bool:
        """Whether everything in the file at the path was read and committed."""
        return self.is_known() and not self.waiting and self.committed == self.writer.lines

    @rule(count=st.integers(min_value=0, max_value=8))
    @precondition(lambda self: not self.half and self.is_known() and not self.waiting)
    def rename(self, count: int) -> None:
        """Rotation; the new file may come at once or later."""
        self.rotations += 1
        self.path.rename(self.folder / f"app.log.{self.rotations}")
        if count:
            self.write(count)

    @rule(count=COUNTS)
    @precondition(lambda self: not self.half and self.is_read())
    def copy_truncate(self, count: int) -> None:
        """What was not read before a truncation is lost to everyone, so all was read."""
        self.rotations += 1
        shutil.copy(self.path, self.folder / f"app.log.{self.rotations}")
        self.path.write_bytes(self.writer.next_lines(count))

    @rule(count=COUNTS)
    @precondition(lambda self: not self.half and self.is_read())
    def remove_and_write(self, count: int) -> None:
        """The inode may be used again at once."""
        self.path.unlink()
        self.write(count)

    @rule(count=COUNTS)
    @precondition(lambda self: not self.half and self.is_read())
    def replace_by_longer_copy(self, count: int) -> None:
        """As rsync and editors do."""
        copy = self.folder / "copy"
        shutil.copy(self.path, copy)
        with copy.open("ab") as file:
            file.write(self.writer.next_lines(count))
        copy.replace(self.path)

    @invariant()
    def order_is_kept(self) -> None:
        """What came is what was written first, without gap or repeat."""
        if hasattr(self, "committed"):
            assert self.committed == self.writer.lines[: len(self.committed)]


class NumberedFile(OneFile):
    """A single file whose rotated names count up with age: any number of rotations may lie between two looks."""

    def append(self, content: bytes) -> None:
        """Write, a second after what was written before."""
        super().append(content)
        self.seconds = getattr(self, "seconds", 0) + 1
        os.utime(self.path, (self.seconds, self.seconds))

    @rule(count=COUNTS)
    @precondition(lambda self: not self.half and self.stored is not None and self.path.exists())
    def rename(self, count: int) -> None:
        """All names move on by one."""
        for number in range(self.rotations, -1, -1):
            path = self.folder / f"app.log.{number}" if number else self.path
            path.rename(self.folder / f"app.log.{number + 1}")
        self.rotations += 1
        if count > 1:
            self.write(count)

    @rule()
    def copy_truncate(self) -> None:
        """Not here."""

    @rule()
    def remove_and_write(self) -> None:
        """Not here."""

    @rule()
    def replace_by_longer_copy(self) -> None:
        """Not here."""


class Pattern(RuleBasedStateMachine):
    """All files of a pattern, with any number of rotations between two looks."""

    @initialize()
    def begin(self) -> None:
        """An empty folder."""
        self.folder = Path(tempfile.mkdtemp(prefix="file-history-"))
        self.writer = Writer()
        self.now = 0.0
        self.stored: dict[str, StoredOffset] = {}
        self.committed: Counter[bytes | None] = Counter()
        self.waiting: list[Page] = []
        self.start()

    def start(self) -> None:
        """A task starts from what is stored."""
        self.files = FileSet(str(self.folder / "app.log*"), READING, stored=self.stored, is_from_end=False, open_max=2)

    def teardown(self) -> None:
        """Read to the end: every line once."""
        if not hasattr(self, "folder"):
            return
        for _ in range(20):
            self.read(1_000)
            self.files.rest()
            self.now += 2.0
        self.commit(10_000)
        self.files.close()
        shutil.rmtree(self.folder)
        assert self.committed == Counter(self.writer.lines)

    def path(self, number: int) -> Path:
        """``app.log``, ``app.log.1`` and so on."""
        return self.folder / (f"app.log.{number}" if number else "app.log")

    @rule(count=COUNTS, number=st.integers(min_value=0, max_value=1))
    def write(self, count: int, number: int) -> None:
        """Lines for the newest file, or late ones for the one rotated last."""
        path = self.path(number) if self.path(number).exists() else self.path(0)
        with path.open("ab") as file:
            file.write(self.writer.next_lines(count))

    @rule(count=st.integers(min_value=0, max_value=5))
    @precondition(lambda self: self.path(0).exists())
    def rotate(self, count: int) -> None:
        """All names move on by one."""
        last = 0
        while self.path(last + 1).exists():
            last += 1
        for number in range(last, -1, -1):
            self.path(number).rename(self.path(number + 1))
        if count:
            self.write(count, 0)

    @rule(count=st.integers(min_value=1, max_value=6))
    def read(self, count: int) -> None:
        """One look, and some reads of each file that needs them."""
        looks = self.files.look()
        if not self.files.is_arranged(looks):
            # A page without records, which stores where a renamed file is, is no truth by itself.
            self.waiting += [page for page in self.files.arrange(looks) if page is not None]
        active = self.files.needing_turn(looks)
        for _ in range(count):
            for followed in tuple(active):
                result = followed.read_once(self.now)
                if result.page is not None:
                    self.waiting.append(result.page)
                if not result.has_more:
                    active.remove(followed)

    @rule()
    def rest(self) -> None:
        """Files that are read to their end are given back."""
        self.files.rest()

    @rule(count=COUNTS)
    def commit(self, count: int) -> None:
        """Pages reach Kafka, in order."""
        done, self.waiting = self.waiting[:count], self.waiting[count:]
        for page in done:
            self.committed.update(page.values())
            offset = stored_offset(page.offset)
            assert offset is not None
            assert page.partition is not None
            self.stored[str(page.partition["filename"])] = offset

    @rule()
    def restart(self) -> None:
        """Whatever was not committed is forgotten."""
        self.files.close()
        self.waiting = []
        self.start()

    @rule()
    def pass_time(self) -> None:
        """Longer than a rotated file is waited for."""
        self.now += 2.0

    @invariant()
    def nothing_comes_twice(self) -> None:
        """No line is committed a second time."""
        if hasattr(self, "committed"):
            assert not self.committed or max(self.committed.values()) == 1


TestOneFile = OneFile.TestCase
TestNumberedFile = NumberedFile.TestCase
TestPattern = Pattern.TestCase
TestOneFile.settings = TestPattern.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestNumberedFile.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
