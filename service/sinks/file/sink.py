"""``FileStreamSink``: appends values to a file, a line each, every record once.

A put returns when its lines are on disk, so there is nothing to flush. What the file holds is noted beside it
(``note``): records that come again after a crash are passed over. Offsets that were reset or altered by hand are
obeyed: their lines are written again. Standard output, pipes and devices cannot be looked at, so they get every record
at least once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import RefusalReason
from service.sinks.contract import (
    Fatal,
    Finding,
    Importance,
    Key,
    Offsets,
    Partition,
    Retriable,
    SinkBatch,
    SinkConfig,
    SinkConnector,
    SinkContext,
)
from service.sinks.file.note import Written
from service.sinks.file.text_form import lines, texts_of
from service.sinks.file.writing import FileBusy, SinkFile
from service.sinks.own_thread import DISK_MENDS

T = TypeVar("T")
LOCK_SECONDS_MAX = 10.0
"""How long another writer of the same file is waited for before the put is tried again as a whole."""
_LOCK_POLL_SECONDS = 0.01


class FileStreamSinkConfig(SinkConfig):
    """Appends each value and a line feed to a file; without a file, to standard output."""

    file: Annotated[Path | None, Key(importance=Importance.HIGH, is_path=True)] = None
    """File that lines are appended to; made if it is missing. Standard output when not given.

    It must be given where ``connector.allowed.paths`` bounds what connectors write, and on workers that others reach.
    """


class FileStreamSink(SinkConnector[FileStreamSinkConfig]):
    """Writes values to a file or to standard output."""

    version = "4.1.1"

    def __init__(self, config: FileStreamSinkConfig) -> None:
        """Prepare; the file is opened with the first partitions."""
        super().__init__(config)
        self._thread: ThreadPoolExecutor | None = None
        self._file: SinkFile | None = None
        self._context: SinkContext | None = None

    def findings(self) -> Sequence[Finding]:
        """Standard output is the worker's own, and is written to only where connectors may write anywhere."""
        if self.config.file is not None or self.allowed_paths.roots is None:
            return ()
        text = (
            'Missing required configuration "file": without one values go to the standard output of this worker, which '
            "lets connectors write only below connector.allowed.paths"
        )
        return (Finding("file", None, text),)

    async def start(self, context: SinkContext) -> None:
        """The file itself is made with the first partitions."""
        self._context = context
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sink-file")
        if self.config.file is not None:
            self._file = SinkFile(Path(self.config.file), context.connector, allowed=self.allowed_paths)

    async def open(self, partitions: Mapping[Partition, int | None]) -> Offsets:
        """Begin where the group says, even where the file holds more: what was refused there is still to be told."""
        file = self._file
        if file is not None:
            await self._run(lambda: file.begin(partitions))
        return {}

    async def put(self, batch: SinkBatch) -> None:
        """Append; returns when it is on disk."""
        file = self._file
        texts, misfits = await self._run(lambda: texts_of(batch))
        for row, message in misfits.items():
            batch.refuse(row, RefusalReason.WRONG_TYPE, message)
        if file is None:
            await self._run(lambda: _print(lines(texts)))
            return
        begins, ends = _begins(batch.records), batch.ends
        await self._run(lambda: file.append(begins, ends, lambda held: _lines_of(texts, batch.records, held)))

    async def committed(self, offsets: Offsets) -> None:
        """Note it, to know a reset when it comes."""
        file = self._file
        if file is not None:
            await self._run(lambda: file.note_committed(offsets))

    async def close(self, partitions: Collection[Partition]) -> None:
        """Forget where the partitions began; every line is on disk already."""
        if self._file is not None:
            self._file.forget(partitions)

    async def stop(self) -> None:
        """An append under way ends by itself; whoever comes next waits for its lock."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        """Do it in the thread, waiting a while for other writers."""
        clock = self._context.clock if self._context is not None else None
        until = None if clock is None else clock.monotonic() + LOCK_SECONDS_MAX
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
            except FileBusy:
                if clock is None or until is None or clock.monotonic() > until:
                    raise
                await clock.sleep(_LOCK_POLL_SECONDS)
            except OSError as error:
                where, mend = self.config.file or "standard output", DISK_MENDS.get(error.errno or 0)
                if mend is not None:
                    raise Fatal(f"{where}: {mend}, then restart the task") from error
                raise Retriable(f"{where}: {error.strerror or error}") from error


def _print(pieces: list[memoryview]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _begins(records: pa.Table) -> dict[Partition, int]:
    first: Any = records.group_by(["original_topic", "partition"]).aggregate([("offset", "min")])
    columns = ("original_topic", "partition", "offset_min")
    topics, numbers, offsets = (first.column(name).to_pylist() for name in columns)
    return {(topic, number): offset for topic, number, offset in zip(topics, numbers, offsets, strict=True)}


def _lines_of(
    texts: pa.ChunkedArray[Any], records: pa.Table, held: Mapping[Partition, Written]
) -> tuple[list[memoryview], dict[Partition, tuple[int, ...]]]:
    """Lines of the records that the file does not hold, nearly always all of them, and the offsets that are refused."""
    is_held, is_refused = np.zeros(len(texts), dtype=bool), np.asarray(texts.is_null())
    refused: dict[Partition, tuple[int, ...]] = {}
    topics, numbers = (cast("Any", records.column(name)) for name in ("original_topic", "partition"))
    offsets = records.column("offset").to_numpy()
    for topic, number in _begins(records):
        is_there = pc.and_(pc.equal(topics, pa.scalar(topic)), pc.equal(numbers, pa.scalar(number, pa.int32())))
        here, written = np.asarray(is_there), held.get((topic, number), Written(0))
        before = np.array(written.refused, np.int64)
        is_held |= here & (offsets < written.next_offset) & ~np.isin(offsets, before)
        left = np.union1d(np.setdiff1d(before, offsets[here]), offsets[here & is_refused])
        refused[topic, number] = tuple(left.tolist())
    return lines(texts.filter(pa.array(~is_held)) if is_held.any() else texts), refused
