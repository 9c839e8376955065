"""The files of one Kafka partition between two commits: gathered, written, closed and committed together.

Where files end follows from the records alone (their number, their bytes, their times, their schemas), so that records
that come again make the same files. Only the two keys that go by the clock are another matter.

Rows wait in ``gathering``. Those of a folder that has many of them go to its temporary file before the commit; the
files of the others are written one after another at the commit.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.sinks.contract import Fatal, Partition
from service.sinks.filesystem.commit_log import CommitLog, Entry
from service.sinks.filesystem.config import FilesConfig, FileSystemSinkConfig
from service.sinks.filesystem.folders import Placed
from service.sinks.filesystem.formats import FormatWriter, writer_of
from service.sinks.filesystem.gathering import Gathered
from service.sinks.filesystem.hive import HiveStatements
from service.sinks.filesystem.sizes import Sizes, rows_within, sizes_of
from service.sinks.filesystem.stores import Store
from service.sinks.shapes import NO_SHAPE, Shape, shape_from

FOLDERS_MAX = 30_000
"""Of one commit: its entry in the log names the file of each, and is read and written whole (some megabytes)."""
_OWN_SHARE = 1 / 64
"""Of the buffer, that a folder must have before its file is begun; below it, files would be of very small pieces."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happens."""

    ms: int
    """Since 1970, by the machine's clock, which somebody may set."""
    steady_ms: int
    """Since some moment; they only ever go on."""


@dataclass(frozen=True, slots=True)
class _Writing:
    """A temporary file."""

    path: str
    file: IO[bytes]
    writer: FormatWriter


@dataclass(slots=True)
class _OpenFile:
    """Of one folder, until the next commit."""

    number: int
    """Of the folder, counted from the last commit."""
    begin: int
    """Offset of the first record."""
    end: int
    """Offset of the last."""
    size_bytes: int = 0
    """As they count for ``flush.size.bytes``; 0 where that is not given."""
    writing: _Writing | None = None
    """None as long as all of its rows are gathered."""
    is_waiting: bool = False
    """Its rows wait for the commit: it has had too few of them."""


@dataclass(slots=True)
class PartitionFiles:
    """One Kafka partition that this task has. Everything blocks; raises OSError as the store does."""

    store: Store
    config: FilesConfig
    partition: Partition
    note_progress: Callable[[], None]
    """Called after each step: what is to be committed may be many thousands of files."""
    shape: Shape = NO_SHAPE
    """Of the values of the open files, and of those committed last."""
    begin: int = 0
    """Where the task was told to begin: what comes from before is another topic of the same name."""
    next_offset: int = 0
    """Of the first record that it has not taken; those before it are passed over."""
    committed: int | None = None
    """The offset before which all is in files that are committed."""
    refused: set[int] = field(default_factory=set)
    """Offsets of records that were refused since the group has committed."""
    pending: set[int] = field(default_factory=set)
    """Those of them that whoever had the partition before has noted, and that have not come again."""
    records: int = 0
    """In open files."""
    is_full: bool = False
    """Whether one of the open files takes no more bytes."""
    taken_at: Moment = Moment(0, 0)
    """When records came last."""
    begun_at_ms: int = 0
    """When the first record of the open files came, by the machine's clock."""
    _files: dict[str, _OpenFile] = field(default_factory=dict)
    """By their folders, in the order of their numbers."""
    _gathered: Gathered = field(default_factory=Gathered)
    _first_time_ms: int | None = None
    _last_offset: int = -1
    _retaken: set[int] = field(default_factory=set)
    """What `take_refused` has in hand."""
    _claimed: int = 0
    """Number of this task's claim; names of its temporary files begin with it."""
    _log: CommitLog = field(init=False)
    _hive: HiveStatements | None = None

    def __post_init__(self) -> None:
        """Nothing is looked at before `claim`."""
        self._log = CommitLog(self.store, f"{self.config.logs_dir}/{self._name}", self.note_progress)
        if isinstance(self.config, FileSystemSinkConfig) and self.config.hive_integration:
            self._hive = HiveStatements(self.store, self.config, FOLDERS_MAX, self.note_progress)

    @property
    def _name(self) -> str:
        topic, number = self.partition
        return f"{topic}/{number}"

    @property
    def _temporary(self) -> str:
        return f"{self.config.topics_dir}/+tmp/{self._name}"

    def claim(self, group_offset: int | None) -> int | None:
        """Take the partition over; the offset to begin at, None where there is none.

        ``group_offset``: what the group has committed. All before it is in files, or was refused and told, or is to be
        skipped because somebody says so. Of what lies between it and the files' end only that is taken which was
        refused: it may still have to be told, or have been what failed the task, and be fit by a config of now.
        """
        entry: Entry = self._log.claim(self._adopted)
        self._claimed = entry.number
        self._remove_older()
        if entry.shape is not None and self.config.schema_compatibility != "NONE":
            self.shape = shape_from(entry.shape, self.config.format)
        known = [offset for offset in (entry.next_offset, group_offset) if offset is not None]
        self.committed = max(known, default=None)
        self.next_offset = self.committed or 0
        begin = self.committed if group_offset is None else group_offset
        self.begin = begin or 0
        self.pending = {offset for offset in entry.refused if offset >= (group_offset or 0)}
        self.refused = set(self.pending)
        return begin

    def end(self) -> int | None:
        """Where the files end, looked at by one who takes nothing over; None where nothing was ever committed."""
        entry = self._log.last()
        return self._adopted() if entry is None else entry.next_offset

    def _remove_older(self) -> None:
        """Remove what older claims have left. A younger one may be at work already, and its files are its own."""
        names = {*self.store.names(self._temporary), *self.store.unfinished(self._temporary)}
        for name in sorted(names):
            if name < f"{self._claimed:020}":
                self.store.remove(f"{self._temporary}/{name}")
                self.note_progress()

    def _adopted(self) -> int | None:
        """How far files go that others have committed by their names alone, such as Confluent's connector."""
        if not self.config.is_end_in_name:
            return None
        topic, number = self.partition
        ends = []
        for path in self.store.walk(f"{self.config.topics_dir}/{topic}"):
            name = path.rpartition("/")[2].rsplit(".", 1)[0].split("+")
            if len(name) == 4 and name[:2] == [topic, str(number)] and name[3].isdigit():  # noqa: PLR2004 - parts of a name
                ends.append(int(name[3]))
        return max(ends) + 1 if ends else None

    def commit_if_due(self, now: Moment) -> None:
        """Commit where the clock says so. One that is set back, or ahead, holds no file open."""
        config = self.config
        if not self._files:
            return
        silent_ms = now.steady_ms - self.taken_at.steady_ms
        is_idle = 0 < config.rotate_idle_interval_ms <= silent_ms
        if is_idle or self._schedule(now.ms) != self._schedule(self.begun_at_ms):
            self.commit()

    def seconds_until_due(self, now: Moment) -> float | None:
        """How long until the clock says that the open files are to be committed; None where it never will."""
        if not self._files:
            return None
        waits_ms = []
        if self.config.rotate_idle_interval_ms > 0:
            waits_ms.append(self.taken_at.steady_ms + self.config.rotate_idle_interval_ms - now.steady_ms)
        if self.config.rotate_schedule_interval_ms > 0:
            interval_ms = self.config.rotate_schedule_interval_ms
            is_over = self._schedule(now.ms) != self._schedule(self.begun_at_ms)
            waits_ms.append(0 if is_over else interval_ms - self._local_ms(now.ms) % interval_ms)
        return max(0, min(waits_ms)) / 1000 if waits_ms else None

    def _schedule(self, at_ms: int) -> int:
        """How many intervals of the schedule there were, in local time."""
        interval_ms = self.config.rotate_schedule_interval_ms
        return self._local_ms(at_ms) // interval_ms if interval_ms > 0 else 0

    def _local_ms(self, at_ms: int) -> int:
        offset = datetime.fromtimestamp(at_ms / 1000, self.config.zone).utcoffset() or timedelta()
        return at_ms + int(offset.total_seconds() * 1000)

    def take(self, values: Any, offsets: npt.NDArray[np.int64], placed: Placed, *, shape: Shape, now: Moment) -> None:
        """Add records, ascending, all of them fit and new; closes and commits files where it is time."""
        self.commit_if_due(now)
        self.taken_at = now
        if shape != self.shape:
            self.commit()
        self.shape = shape
        sizes = sizes_of(values, self.config.format) if self.config.flush_size_bytes > 0 else None
        begin = 0
        while begin < len(offsets):
            end = self._room(begin, placed, sizes)
            if end > begin:
                self._add(values, offsets, placed, sizes, begin=begin, end=end)
            if end < len(offsets) or self.records >= self._records_max or self.is_full:
                self.commit()
            begin = end
        if self._gathered.held_bytes > self.config.buffer_bytes:
            self._spill()

    @property
    def _records_max(self) -> int:
        return self.config.flush_size or sys.maxsize

    def _room(self, begin: int, placed: Placed, sizes: Sizes | None) -> int:
        """The row before which the files are full; ``begin`` where they are already."""
        end = min(len(placed.codes), begin + self._records_max - self.records)
        times = placed.times_ms
        if times is not None and self.config.rotate_interval_ms > 0:
            first = self._first_time_ms if self._first_time_ms is not None else int(times[begin])
            is_late = times[begin:end] - first >= self.config.rotate_interval_ms
            end = begin + int(np.argmax(is_late)) if is_late.any() else end
        if len(self._files) + len(placed.names) > FOLDERS_MAX:
            end = self._before_folders(placed, begin, end)
        if sizes is not None:
            held = np.array([self._files[each].size_bytes if each in self._files else 0 for each in placed.names])
            limit = self.config.flush_size_bytes
            end = begin + rows_within(limit, sizes[begin:end], folders=placed.codes[begin:end], held=held)
        return end

    def _before_folders(self, placed: Placed, begin: int, end: int) -> int:
        codes, firsts = np.unique(placed.codes[begin:end], return_index=True)
        new = sorted(
            int(first) for code, first in zip(codes, firsts, strict=True) if placed.names[code] not in self._files
        )
        left = FOLDERS_MAX - len(self._files)
        return begin + new[left] if len(new) > left else end

    def _add(
        self,
        values: Any,
        offsets: npt.NDArray[np.int64],
        placed: Placed,
        sizes: Sizes | None,
        *,
        begin: int,
        end: int,
    ) -> None:
        if placed.times_ms is not None:
            time_ms = int(placed.times_ms[begin])
            # A clock that is set back would hold the files open until it is where it was.
            is_set_back = self.config.extractor == "Wallclock" and time_ms < (self._first_time_ms or 0)
            if self._first_time_ms is None or is_set_back:
                self._first_time_ms = time_ms
        codes, own = placed.codes[begin:end], offsets[begin:end]
        # Later values replace earlier ones: for each folder the last offset, and, backwards, the first.
        firsts, lasts = np.full(len(placed.names), -1, np.int64), np.full(len(placed.names), -1, np.int64)
        firsts[codes[::-1]], lasts[codes] = own[::-1], own
        numbers, added = np.zeros((2, len(placed.names)), np.int64)
        if sizes is not None:
            np.add.at(added, codes, sizes[begin:end])
        for code in np.flatnonzero(lasts >= 0).tolist():
            first, last = int(firsts[code]), int(lasts[code])
            file = self._files.setdefault(placed.names[code], _OpenFile(len(self._files), first, last))
            # Null and an empty text are two codes and one folder.
            file.begin, file.end, numbers[code] = min(file.begin, first), max(file.end, last), file.number
            file.size_bytes += int(added[code])
            self.is_full |= 0 < self.config.flush_size_bytes <= file.size_bytes
        self._gathered.add(values.slice(begin, end - begin), numbers[codes])
        if not self.records:
            self.begun_at_ms = self.taken_at.ms
        self.records += end - begin
        self._last_offset = int(offsets[end - 1])

    def _spill(self) -> None:
        """Write what is held, so that it stays bounded: to the files of folders that have much of it."""
        files = list(self._files.values())
        own_bytes = self.config.buffer_bytes * _OWN_SHARE
        open_max = self.config.max_open_files_per_partition
        room = FOLDERS_MAX if open_max < 0 else open_max - sum(each.writing is not None for each in files)

        def own(number: int, size_bytes: int) -> FormatWriter | None:
            nonlocal room
            self.note_progress()
            file = files[number]
            if file.writing is None:
                file.is_waiting |= size_bytes < own_bytes or not room
                if file.is_waiting:
                    return None
                room -= 1
            return self._begun(file).writer

        self._gathered.spill(own)

    def _begun(self, file: _OpenFile) -> _Writing:
        if file.writing is None:
            name = f"{self._claimed:020}_{uuid.uuid4().hex}_tmp{self.config.extension}"
            path = f"{self._temporary}/{name}"
            opened = self.store.create(path)
            file.writing = _Writing(path, opened, writer_of(opened, self.shape, self.config))
        return file.writing

    def commit(self) -> None:
        """Close the open files, and commit them all at once. Raises StartAnew when another task has taken over."""
        if not self._files:
            return
        files = list(self._files.items())
        moves: dict[int, tuple[str, str]] = {}
        for number, pieces in self._gathered.take_all():
            folder, file = files[number]
            writing = self._begun(file)
            for values in pieces:
                writing.writer.write(values)
                self.note_progress()
            moves[number] = self._finished(folder, file, writing)
        for folder, file in files:
            if file.writing is not None and file.number not in moves:
                moves[file.number] = self._finished(folder, file, file.writing)
        if self._hive is not None:
            self._hive.tell(self._files, self.shape)
        # From here on the files are the log's: an error does not tell whether they are committed.
        self._files, self.records, self.is_full, self._first_time_ms = {}, 0, False, None
        self._gathered.clear()
        end = max(self._last_offset + 1, self.committed or 0)  # what was refused before may lie behind
        self.refused -= {offset for offset in self._retaken if offset <= self._last_offset}
        refused = sorted(offset for offset in self.refused if offset < end)
        self._log.commit(end, list(moves.values()), self.shape.text(), refused)
        self.committed = end

    def take_refused(
        self, values: Any, offsets: npt.NDArray[np.int64], placed: Placed, *, shape: Shape, now: Moment
    ) -> None:
        """Add records that were refused before and are fit now, and commit them: what comes behind them is in files."""
        self._retaken.update(offsets.tolist())
        self.take(values, offsets, placed, shape=shape, now=now)
        self.commit()
        self._retaken.clear()

    def forget_refused(self, before: int) -> None:
        """The group has committed, and the dead letters were written before that."""
        self.refused = {offset for offset in self.refused if offset >= before}

    def _finished(self, folder: str, file: _OpenFile, writing: _Writing) -> tuple[str, str]:
        """Its path, and the name that it gets."""
        writing.writer.close()
        self.store.finish(writing.file)
        self.note_progress()
        return writing.path, self._final(folder, file)

    def _final(self, folder: str, file: _OpenFile) -> str:
        width, (topic, number) = self.config.filename_offset_zero_pad_width, self.partition
        end = f"+{file.end:0{width}}" if self.config.is_end_in_name else ""
        name = f"{topic}+{number}+{file.begin:0{width}}{end}{self.config.extension}"
        return f"{self.config.topics_dir}/{folder}/{name}"

    def drop(self) -> None:
        """Give up what is not committed: whoever comes next gets those records again."""
        self._gathered.clear()
        for file in self._files.values():
            if file.writing is not None:
                # What is given up may be a file that cannot be written any more.
                with suppress(OSError, ValueError, pa.ArrowException):
                    file.writing.writer.close()
                with suppress(OSError, ValueError, Fatal):
                    file.writing.file.close()
                with suppress(OSError, Fatal):
                    self.store.remove(file.writing.path)
        self._files = {}

    def safe(self, offset: int) -> int | None:
        """How far everything before ``offset`` is durable, or never will be written."""
        return min(offset, self.next_offset) if not self._files else self.committed
