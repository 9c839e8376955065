"""``FileSystemSink``: topics as files of HDFS, folders or object storage, each record in exactly one of them.

The log beside the files says what is committed (``commit_log``). ``open`` begins where the group says, even where the
log is further: what was refused there is still to be told, or to be written where it is fit by now. What was gathered
and not committed is given up with the task, and its records come again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import Form, RefusalReason
from service.sinks.bound_clients import check_host
from service.sinks.contract import (
    Fatal,
    Finding,
    Offsets,
    Partition,
    PutLimits,
    SinkBatch,
    SinkConnector,
    SinkContext,
    StartAnew,
)
from service.sinks.file.text_form import texts_of
from service.sinks.filesystem.compatibility import begins_file, projected
from service.sinks.filesystem.config import FilesConfig, FileSystemSinkConfig
from service.sinks.filesystem.folders import Placed, placed
from service.sinks.filesystem.formats import unfit_for_orc
from service.sinks.filesystem.object_store import ObjectStore
from service.sinks.filesystem.stores import HdfsStore, LocalStore, Store
from service.sinks.filesystem.writing import Moment, PartitionFiles
from service.sinks.json_columns import json_texts
from service.sinks.own_thread import DISK_MENDS, OwnThread
from service.sinks.shapes import NO_SHAPE, Shape, ShapeError, column_of_json, mask_of, shape_of

T = TypeVar("T")
_FLUSH_SECONDS = 60.0


class FilesSink(SinkConnector[FilesConfig]):
    """Writes files to whatever store its config names."""

    def __init__(self, config: FilesConfig) -> None:
        """Prepare; nothing is looked at before the first partitions."""
        super().__init__(config)
        self.put_limits = PutLimits(records_max=50_000)
        by_clock = [ms for ms in (config.rotate_schedule_interval_ms, config.rotate_idle_interval_ms) if ms > 0]
        if by_clock:
            self.flush_interval_seconds = min(_FLUSH_SECONDS, max(0.1, min(by_clock) / 2000))
        self._thread = OwnThread("sink-files")
        self._store: Store | None = None
        self._context: SinkContext | None = None
        self._partitions: dict[Partition, PartitionFiles] = {}

    def findings(self) -> Sequence[Finding]:
        """Those of the config; and folders of this machine only where connectors may write."""
        parts = urlsplit(self.config.url)
        refusal = self.allowed_paths.refusal(parts.path) if parts.scheme == "file" else None
        own = tuple(self.config.own_findings())
        return own if refusal is None else (*own, Finding(self.config.url_key, self.config.url, refusal))

    def check_offsets(self, offsets: Mapping[Partition, int | None]) -> None:
        """Refuse to begin before the end of the files: what is there is looked at again, and not written."""
        try:
            store = self._opened()
            for partition, offset in offsets.items():
                end = PartitionFiles(store, self.config, partition, lambda: None).end()
                if end is not None and (offset or 0) < end:
                    raise ValueError(self._is_in_files(partition, end))
        except (OSError, Fatal, StartAnew) as error:
            message = (
                f"{self.config.url} cannot be asked how far its files go, which decide it (if it is gone for good, set "
                f"another '{self.config.url_key}' first): {error}"
            )
            raise ValueError(message) from error

    def _is_in_files(self, partition: Partition, end: int) -> str:
        topic, number = partition
        return (
            f"partition {number} of topic {topic} is in files to offset {end}, and what is there is not written again: "
            "set that offset or a greater one; to have it written again, remove its files together with "
            f"'{self.config.logs_dir}/{topic}/{number}' below {self.config.url} first"
        )

    async def start(self, context: SinkContext) -> None:
        """Find the store."""
        self._context = context
        self._store = await self._run(self._opened)

    def _opened(self) -> Store:
        parts = urlsplit(self.config.url)
        if parts.scheme == "hdfs":
            if not self.allowed_addresses.is_internal_free:
                check_host(parts.hostname or "", parts.port, self.allowed_addresses)
            return HdfsStore(self.config.url)
        if parts.scheme == "s3a":
            return ObjectStore(self.config, self.allowed_addresses)
        return LocalStore(Path(unquote(parts.path)), self.allowed_paths)

    async def open(self, partitions: Mapping[Partition, int | None]) -> Offsets:
        """Take the partitions over from whoever had them, and begin behind what is committed."""
        return await self._run(lambda: self._claim(partitions))

    def _claim(self, partitions: Mapping[Partition, int | None]) -> dict[Partition, int]:
        begins: dict[Partition, int] = {}
        if self._store is None or self._context is None:
            raise StartAnew("the sink is not started")
        for partition, group_offset in partitions.items():
            files = PartitionFiles(self._store, self.config, partition, self._context.note_progress)
            begin = files.claim(group_offset)
            if begin is not None:
                begins[partition] = begin
            self._partitions[partition] = files
        return begins

    async def put(self, batch: SinkBatch) -> None:
        """Gather; files that are full are committed."""
        now = self._now()
        await self._run(lambda: self._put(batch, now))
        self._request_flush()

    def _request_flush(self) -> None:
        """Have the worker flush at the moment at which the clock ends files, also where no record comes then."""
        now = self._now()  # again, for a commit may have taken long
        waits = [files.seconds_until_due(now) for files in tuple(self._partitions.values())]
        known = [seconds for seconds in waits if seconds is not None]
        if known and self._context is not None:
            self._context.request_flush(min(known))

    def _put(self, batch: SinkBatch, now: Moment) -> None:
        for partition, part in batch.by_partition():
            files = self._partitions.get(partition)
            if files is None:
                raise StartAnew("records of a partition that is not open")
            offsets: npt.NDArray[np.int64] = part.records.column("offset").to_numpy()
            if offsets[0] < files.begin:
                raise Fatal(self._of_another_topic(partition, int(offsets[0]), files.begin))
            noted = _noting(part, files, offsets)
            first = int(np.searchsorted(offsets, files.next_offset))
            if first and files.pending:
                again = np.flatnonzero(np.isin(offsets[:first], list(files.pending)))
                self._take(files, noted.take(again), offsets[again], now, into=files.take_refused)
                files.pending.difference_update(offsets[again].tolist())
            if first < len(offsets):
                self._take(files, noted.slice(first, len(offsets) - first), offsets[first:], now, into=files.take)
                files.next_offset = int(offsets[-1]) + 1

    def _of_another_topic(self, partition: Partition, offset: int, begin: int) -> str:
        topic, number = partition
        return (
            f"partition {number} of topic {topic} has a record of offset {offset}, and its files go to offset {begin}: "
            f"if the topic was made anew, move its files away and remove '{self.config.logs_dir}/{topic}' below "
            f"{self.config.url}, then restart the task"
        )

    def _take(
        self,
        files: PartitionFiles,
        batch: SinkBatch,
        offsets: npt.NDArray[np.int64],
        now: Moment,
        *,
        into: Callable[..., None],
    ) -> None:
        fitting = self._fitting(files, batch, now) if len(offsets) else None
        if fitting is None:
            return
        written, found, shape, is_fit = fitting
        if not is_fit.all():
            times = None if found.times_ms is None else found.times_ms[is_fit]
            found = replace(found, codes=found.codes[is_fit], times_ms=times)
            written, offsets = written.filter(pa.array(is_fit)), offsets[is_fit]
        if len(offsets):
            into(written, offsets, found, shape=shape, now=now)

    def _fitting(
        self, files: PartitionFiles, batch: SinkBatch, now: Moment
    ) -> tuple[Any, Placed, Shape, npt.NDArray[np.bool_]] | None:
        """The values as they are written, their folders, their shape, and which of them go to files.

        Others are refused. None: they all are.
        """
        is_fit = self._with_values(batch)
        try:
            shape = shape_of(batch.value, self.config.format)
            typed, written = self._columns(batch, shape, is_fit)
            if shape != files.shape and files.shape is not NO_SHAPE and self._is_projected(files.shape, shape):
                written, unfit = projected(written, shape, files.shape)
                _refuse(batch, unfit, is_fit, "its value has no place in the file's schema")
                shape = files.shape
            if self.config.format == "orc":
                message = "it has a time before 1970 with a fraction of a second, of which ORC files are read by nobody"
                _refuse(batch, unfit_for_orc(written), is_fit, message)
            return written, placed(batch, typed, self.config, now_ms=now.ms, is_fit=is_fit), shape, is_fit
        except ShapeError as error:
            for row in np.flatnonzero(is_fit).tolist():
                batch.refuse(row, error.reason, str(error))
            return None

    def _is_projected(self, current: Shape, found: Shape) -> bool:
        return not begins_file(current, found, self.config.schema_compatibility)

    def _with_values(self, batch: SinkBatch) -> npt.NDArray[np.bool_]:
        """Which rows have a value; the others are refused or passed over."""
        column: Any = batch.records.column("value")
        has_value: npt.NDArray[np.bool_] = np.array(column.is_valid().to_numpy(), dtype=bool)
        if self.config.behavior_on_null_values == "fail":
            for row in np.flatnonzero(~has_value).tolist():
                batch.refuse(row, RefusalReason.NULL_VALUE, "the value is null, and behavior.on.null.values=fail")
        return has_value

    def _columns(self, batch: SinkBatch, shape: Shape, is_fit: npt.NDArray[np.bool_]) -> tuple[Any, Any]:
        """The values with their fields, and as they are written; refuses those that are not of their schema."""
        chunked: Any = batch.records.column("value")
        column = chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
        if self.config.format == "string":
            texts, misfits = texts_of(batch)
            _refuse(batch, mask_of(misfits, len(batch)), is_fit, misfits.__getitem__)
            return column, texts.combine_chunks()
        if self.config.format == "json":
            lines = column if batch.value.form is Form.JSON else json_texts(column)
            # Between the tokens of JSON a line end is a blank; within them there is none.
            return column, pc.replace_substring(lines, "\n", " ")
        if batch.value.form is not Form.JSON:
            return column, column
        typed, misfits = column_of_json(column, shape)
        _refuse(batch, mask_of(misfits, len(batch)), is_fit, misfits.__getitem__)
        return typed, typed

    async def flush(self, offsets: Offsets) -> Offsets:
        """Say how far the files are committed; what is due by the clock is committed now."""
        now = self._now()
        safe = await self._run(lambda: self._flush(offsets, now))
        self._request_flush()
        return safe

    def _flush(self, offsets: Offsets, now: Moment) -> dict[Partition, int]:
        safe: dict[Partition, int] = {}
        for partition, offset in offsets.items():
            files = self._partitions.get(partition)
            if files is not None:
                files.commit_if_due(now)
                known = files.safe(offset)
                if known is not None:
                    safe[partition] = known
        return safe

    async def committed(self, offsets: Offsets) -> None:
        """Forget what was refused before: its dead letters are written."""

        def forget() -> None:
            for partition, offset in offsets.items():
                if partition in self._partitions:
                    self._partitions[partition].forget_refused(offset)

        await self._run(forget)

    async def close(self, partitions: Collection[Partition]) -> None:
        """Give up what is not committed: its records come again, to whoever gets the partitions."""
        await self._thread.run_always(lambda: self._give_up(partitions))

    def _give_up(self, partitions: Collection[Partition]) -> None:
        """In the thread, behind a put that nobody waits for any more but that still gathers for these partitions."""
        _drop([self._partitions.pop(each) for each in partitions if each in self._partitions])

    async def stop(self) -> None:
        """Drop what is open; a put under way ends first, by itself."""
        files = list(self._partitions.values())
        self._partitions = {}
        self._thread.end(lambda: _drop(files))

    def _now(self) -> Moment:
        if self._context is None:
            raise StartAnew("the sink is not started")
        clock = self._context.clock
        return Moment(int(clock.now().timestamp() * 1000), int(clock.monotonic() * 1000))

    async def _run(self, work: Callable[[], T]) -> T:
        """Do it in the thread. Raises Fatal where a person must act, and StartAnew where waiting may mend it."""
        try:
            return await self._thread.run(work)
        except OSError as error:
            mend = DISK_MENDS.get(error.errno or 0)
            where = f"{self.config.url}: {error.filename}" if error.filename else self.config.url
            if mend is not None:
                raise Fatal(f"{where}: {mend}, then restart the task") from error
            raise StartAnew(f"{where}: {error.strerror or error}") from error
        except pa.ArrowException as error:
            raise Fatal(f"these values make no {self.config.format} file: {error}") from error


class FileSystemSink(FilesSink):
    """Writes files to HDFS, to folders or to object storage."""

    config_class = FileSystemSinkConfig


def _noting(batch: SinkBatch, files: PartitionFiles, offsets: npt.NDArray[np.int64]) -> SinkBatch:
    """The records of a partition; which of them are refused is noted with its files."""

    def refuse(row: int, reason: str, message: str) -> None:
        files.refused.add(int(offsets[row]))
        batch.refuse(row, reason, message)

    return replace(batch, refuse=refuse)


def _drop(partitions: Sequence[PartitionFiles]) -> None:
    for files in partitions:
        files.drop()


def _refuse(
    batch: SinkBatch, unfit: npt.NDArray[np.bool_], is_fit: npt.NDArray[np.bool_], message: str | Callable[[int], str]
) -> None:
    for row in np.flatnonzero(unfit & is_fit).tolist():
        batch.refuse(row, RefusalReason.WRONG_TYPE, message if isinstance(message, str) else message(row))
    is_fit &= ~unfit
