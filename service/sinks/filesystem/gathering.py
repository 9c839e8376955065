"""Rows that wait for their files: in memory, and above a bound in one file without a name, sorted by their folders.

It is a sort that has more rows than room (merge sort with runs on disk; Knuth, The Art of Computer Programming 3, 5.4):
what is spilled at once is a run in the order of the folders, and whoever writes the files reads all runs side by side.
So the number of folders costs neither open files nor small pieces in memory.
"""

from __future__ import annotations

import errno
import heapq
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.sinks.contract import Fatal
from service.sinks.filesystem.formats import FormatWriter

_MESSAGE_BYTES = 262_144
"""Of rows that are written to the file, and read, together. Of each run one such message is in memory while the runs
are read."""
_CHUNK_BYTES = 33_554_432
"""Of rows of one folder that its file is given at once."""
_PIECE_BYTES = 4096
"""Of memory that a column of few values takes beside its values, about: what is put may be a few records each time."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows in the order of their folders."""

    values: Any
    folders: npt.NDArray[np.int64]
    """Numbers of the folders, ascending, each once."""
    ends: npt.NDArray[np.int64]
    """For each folder the row behind its last one."""

    def parts(self) -> Iterator[tuple[int, Any]]:
        """Folders and their rows."""
        begin = 0
        for folder, end in zip(self.folders.tolist(), self.ends.tolist(), strict=True):
            yield folder, self.values.slice(begin, end - begin)
            begin = end


@dataclass(frozen=True, slots=True)
class _Message:
    """Rows in the file."""

    position: int
    size_bytes: int
    folders: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


@dataclass(slots=True)
class Gathered:
    """Rows of one Kafka partition that are in no file yet. Numbers of folders are whatever the caller counts."""

    held_bytes: int = 0
    """In memory."""
    _pieces: list[_Sorted] = field(default_factory=list)
    _file: Any = None
    """Goes with the process, however it ends: it never had a name."""
    _runs: list[list[_Message]] = field(default_factory=list)

    def add(self, values: Any, folders: npt.NDArray[np.int64]) -> None:
        """Take rows, each with the number of its folder; their order within a folder stays."""
        if (np.diff(folders) < 0).any():
            order = np.argsort(folders, kind="stable")
            values, folders = values.take(pa.array(order)), folders[order]
        lasts = np.append(np.flatnonzero(np.diff(folders)), len(folders) - 1)
        self._pieces.append(_Sorted(values, folders[lasts], lasts + 1))
        self.held_bytes += values.nbytes + _PIECE_BYTES

    def spill(self, writer_of: Callable[[int, int], FormatWriter | None]) -> None:
        """Let go of what is in memory.

        ``writer_of`` is asked for each folder, with the bytes of its rows. None: they go to the file of no name, and so
        do all later rows of this folder, until `take_all`. Raises Fatal where that file has no room.
        """
        run: list[_Message] = []
        waiting: list[tuple[int, Any]] = []
        waiting_bytes = 0
        for folder, parts in _merged(self._pieces):
            rows = list(parts)
            writer = writer_of(folder, sum(each.nbytes for each in rows))
            if writer is not None:
                for chunk in _joined(rows, _CHUNK_BYTES):
                    writer.write(chunk)
                continue
            for part in _cut(rows):
                waiting.append((folder, part))
                waiting_bytes += part.nbytes
                if waiting_bytes >= _MESSAGE_BYTES:
                    run.append(self._written(waiting))
                    waiting, waiting_bytes = [], 0
        if waiting:
            run.append(self._written(waiting))
        if run:
            self._runs.append(run)
        self._pieces, self.held_bytes = [], 0

    def take_all(self) -> Iterator[tuple[int, Iterator[Any]]]:
        """Each folder once, in the order of the numbers, with its rows in pieces. `clear` when all are taken."""
        for folder, parts in _merged([*map(self._read, self._runs), *self._pieces]):
            yield folder, _joined(parts, _CHUNK_BYTES)

    def clear(self) -> None:
        """Forget all rows."""
        self._pieces, self._runs, self.held_bytes = [], [], 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def _written(self, parts: list[tuple[int, Any]]) -> _Message:
        folders = np.array([folder for folder, _ in parts], np.int64)
        ends = np.cumsum([len(rows) for _, rows in parts])
        lasts = np.append(np.flatnonzero(np.diff(folders)), len(folders) - 1)
        batch = pa.record_batch([pa.concat_arrays([rows for _, rows in parts])], ["value"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as stream:
            stream.write_batch(batch)
        text = sink.getvalue()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `clear`
            position = self._file.seek(0, os.SEEK_END)
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise Fatal(
                    f"{tempfile.gettempdir()}: no room for records that wait for their files: make room, or let TMPDIR "
                    "of the worker lead to a larger disk, then restart the task"
                ) from error
            raise
        return _Message(position, text.size, folders[lasts], ends[lasts])

    def _read(self, run: Iterable[_Message]) -> Iterator[tuple[int, Any]]:
        for message in run:
            self._file.seek(message.position)
            batch = pa.ipc.open_stream(self._file.read(message.size_bytes)).read_next_batch()
            yield from _Sorted(batch.column(0), message.folders, message.ends).parts()


def _merged(runs: Iterable[_Sorted | Iterator[tuple[int, Any]]]) -> Iterator[tuple[int, Iterator[Any]]]:
    """Each folder once, with its rows from all runs, the older first."""
    parts = (run.parts() if isinstance(run, _Sorted) else run for run in runs)
    for folder, found in groupby(heapq.merge(*parts, key=itemgetter(0)), key=itemgetter(0)):
        yield folder, (rows for _, rows in found)


def _cut(parts: Iterable[Any]) -> Iterator[Any]:
    """The rows in pieces of a message at most, or of one row."""
    for rows in parts:
        count = max(1, len(rows) * _MESSAGE_BYTES // max(rows.nbytes, 1))
        for begin in range(0, len(rows), count):
            yield rows.slice(begin, count)


def _joined(parts: Iterable[Any], bytes_max: int) -> Iterator[Any]:
    """The rows in few pieces, each of not much more than so many bytes."""
    held: list[Any] = []
    held_bytes = 0
    for rows in parts:
        held.append(rows)
        held_bytes += rows.nbytes
        if held_bytes >= bytes_max:
            yield held[0] if len(held) == 1 else pa.concat_arrays(held)
            held, held_bytes = [], 0
    if held:
        yield held[0] if len(held) == 1 else pa.concat_arrays(held)
