"""The files of one Kafka partition between two commits: gathered, written, closed and committed together.

Where files end follows from the records alone (their number, their times, their schemas, the number of folders), so
that records that come again make the same files. Only the two keys that go by the clock are another matter.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
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
from service.sinks.filesystem.hive import HiveStatements
from service.sinks.filesystem.shapes import NO_SHAPE, Shape, shape_from
from service.sinks.filesystem.stores import Store

_SPILLED_SHARE = 0.5
"""Of the buffer, that is left after a spill."""


@dataclass(frozen=True, slots=True)
class _Writing:
    """A temporary file."""

    path: str
    file: IO[bytes]
    writer: FormatWriter


@dataclass(slots=True)
class _OpenFile:
    """Records of one folder."""

    begin: int
    """Offset of the first."""
    end: int = 0
    """Offset of the last."""
    held: list[Any] = field(default_factory=list)
    """Columns that are not yet written."""
    size_bytes: int = 0
    """Of them."""
    writing: _Writing | None = None


@dataclass(slots=True)
class PartitionFiles:
    """One Kafka partition that this task has. Everything blocks; raises OSError as the store does."""

    store: Store
    config: FilesConfig
    partition: Partition
    shape: Shape = NO_SHAPE
    """Of the values of the open files, and of those committed last."""
    begin: int = 0
    """Where the task was told to begin: what comes from before is another topic of the same name."""
    next_offset: int = 0
    """Of the first record that it has not taken; those before it are passed over."""
    committed: int | None = None
    """The offset before which all is in files that are committed."""
    records: int = 0
    """In open files."""
    taken_at_ms: int = 0
    """When records came last."""
    begun_at_ms: int = 0
    """When the first record of the open files came."""
    _files: dict[str, _OpenFile] = field(default_factory=dict)
    _first_time_ms: int | None = None
    _last_offset: int = -1
    _held_bytes: int = 0
    _claimed: int = 0
    """Number of this task's claim; names of its temporary files begin with it."""
    _log: CommitLog = field(init=False)
    _hive: HiveStatements | None = None

    def __post_init__(self) -> None:
        """Nothing is looked at before `claim`."""
        self._log = CommitLog(self.store, f"{self.config.logs_dir}/{self._name}")
        if isinstance(self.config, FileSystemSinkConfig) and self.config.hive_integration:
            self._hive = HiveStatements(self.store, self.config)

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
        skipped because somebody says so. What lies between it and the files' end is not written again, but looked at:
        what was refused there may still have to be told.
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
        return begin

    def _remove_older(self) -> None:
        """Remove what older claims have left. A younger one may be at work already, and its files are its own."""
        names = {*self.store.names(self._temporary), *self.store.unfinished(self._temporary)}
        for name in sorted(names):
            if name < f"{self._claimed:020}":
                self.store.remove(f"{self._temporary}/{name}")

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

    def commit_if_due(self, now_ms: int) -> None:
        """Commit where the clock says so."""
        config = self.config
        if not self._files:
            return
        is_idle = config.rotate_idle_interval_ms > 0 and now_ms - self.taken_at_ms >= config.rotate_idle_interval_ms
        if is_idle or self._schedule(now_ms) != self._schedule(self.begun_at_ms):
            self.commit()

    def _schedule(self, at_ms: int) -> int:
        """How many intervals of the schedule there were, in local time."""
        if self.config.rotate_schedule_interval_ms <= 0:
            return 0
        local = datetime.fromtimestamp(at_ms / 1000, self.config.zone)
        offset = local.utcoffset() or timedelta()
        return (at_ms + int(offset.total_seconds() * 1000)) // self.config.rotate_schedule_interval_ms

    def take(self, values: Any, offsets: npt.NDArray[np.int64], placed: Placed, *, shape: Shape, now_ms: int) -> None:
        """Add records, ascending, all of them fit and new; closes and commits files where it is time."""
        self.commit_if_due(now_ms)
        self.taken_at_ms = now_ms
        if shape != self.shape:
            self.commit()
        self.shape = shape
        begin = 0
        while begin < len(offsets):
            end = self._room(begin, placed)
            if end > begin:
                self._add(values, offsets, placed, begin=begin, end=end)
            if end < len(offsets) or self.records >= self.config.flush_size:
                self.commit()
            begin = end
        if self._held_bytes > self.config.buffer_bytes:
            self._spill()

    def _room(self, begin: int, placed: Placed) -> int:
        """The row before which the files are full; ``begin`` where they are already."""
        end = min(len(placed.codes), begin + self.config.flush_size - self.records)
        times = placed.times_ms
        if times is not None and self.config.rotate_interval_ms > 0:
            first = self._first_time_ms if self._first_time_ms is not None else int(times[begin])
            is_late = times[begin:end] - first >= self.config.rotate_interval_ms
            end = begin + int(np.argmax(is_late)) if is_late.any() else end
        folders_max = self.config.max_open_files_per_partition
        if folders_max > 0 and len(self._files) + len(placed.names) > folders_max:
            end = self._before_folders(placed, begin, end)
        return end

    def _before_folders(self, placed: Placed, begin: int, end: int) -> int:
        codes, firsts = np.unique(placed.codes[begin:end], return_index=True)
        new = sorted(
            int(first) for code, first in zip(codes, firsts, strict=True) if placed.names[code] not in self._files
        )
        left = max(self.config.max_open_files_per_partition - len(self._files), 0)
        return begin + new[left] if len(new) > left else end

    def _add(self, values: Any, offsets: npt.NDArray[np.int64], placed: Placed, *, begin: int, end: int) -> None:
        if self._first_time_ms is None and placed.times_ms is not None:
            self._first_time_ms = int(placed.times_ms[begin])
        for code, rows in _by_code(placed.codes[begin:end]):
            piece = values.slice(begin, end - begin) if rows is None else values.take(pa.array(begin + rows))
            own = offsets[begin:end] if rows is None else offsets[begin + rows]
            file = self._files.setdefault(placed.names[code], _OpenFile(int(own[0])))
            file.end = int(own[-1])
            file.held.append(piece)
            file.size_bytes += piece.nbytes
            self._held_bytes += piece.nbytes
        if not self.records:
            self.begun_at_ms = self.taken_at_ms
        self.records += end - begin
        self._last_offset = int(offsets[end - 1])

    def _spill(self) -> None:
        """Write a part of the largest files, so that what is held stays bounded."""
        left = self.config.buffer_bytes * _SPILLED_SHARE
        for file in sorted(self._files.values(), key=lambda each: -each.size_bytes):
            if self._held_bytes <= left:
                return
            self._write(file)

    def _write(self, file: _OpenFile) -> _Writing:
        if file.writing is None:
            name = f"{self._claimed:020}_{uuid.uuid4().hex}_tmp{self.config.extension}"
            path = f"{self._temporary}/{name}"
            opened = self.store.create(path)
            file.writing = _Writing(path, opened, writer_of(opened, self.shape, self.config))
        if file.held:
            file.writing.writer.write(file.held[0] if len(file.held) == 1 else pa.concat_arrays(file.held))
        self._held_bytes -= file.size_bytes
        file.held, file.size_bytes = [], 0
        return file.writing

    def commit(self) -> None:
        """Close the open files, and commit them all at once. Raises StartAnew when another task has taken over."""
        if not self._files:
            return
        moves = []
        for folder, file in self._files.items():
            written = self._write(file)
            written.writer.close()
            self.store.finish(written.file)
            moves.append((written.path, self._final(folder, file)))
        if self._hive is not None:
            self._hive.tell(self._files, self.shape)
        # From here on the files are the log's: an error does not tell whether they are committed.
        self._files, self.records, self._first_time_ms, self._held_bytes = {}, 0, None, 0
        self._log.commit(self._last_offset + 1, moves, self.shape.text())
        self.committed = self._last_offset + 1

    def _final(self, folder: str, file: _OpenFile) -> str:
        width, (topic, number) = self.config.filename_offset_zero_pad_width, self.partition
        end = f"+{file.end:0{width}}" if self.config.is_end_in_name else ""
        name = f"{topic}+{number}+{file.begin:0{width}}{end}{self.config.extension}"
        return f"{self.config.topics_dir}/{folder}/{name}"

    def drop(self) -> None:
        """Give up what is not committed: whoever comes next gets those records again."""
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


def _by_code(codes: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64] | None]]:
    """For each folder its rows, in order; None: all of them."""
    if (codes == codes[0]).all():
        yield int(codes[0]), None
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, bounds):
        yield int(codes[rows[0]]), rows
