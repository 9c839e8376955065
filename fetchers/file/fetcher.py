"""``FileStreamSource``: the lines of a file, of all files of a pattern, or of standard input.

Source partition ``{"filename": path}``, source offset ``{"position": bytes, …}`` (see ``mark``); positions of
records are bytes too. Values are the lines' bytes as they are, keys and timestamps null, as in Kafka Connect.
"""

from __future__ import annotations

import glob
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import Event
from typing import ClassVar, TypeVar

from fetchers.file.calls import LOOK_SECONDS_MAX, FileCalls, shared_changes
from fetchers.file.config import FileStreamConfig
from fetchers.file.disk import ANY_PATH, ByteSource, FileLook, Opener, PlainFile, fetch_error, look_at
from fetchers.file.fileset import OPEN_MAX, FileSet, Looks
from fetchers.file.followed import FollowedFile
from fetchers.file.gz import GzipFile
from fetchers.file.lines import LineAssembler
from fetchers.file.mark import StoredOffset, stored_offset
from fetchers.file.reading import Reading, ReadResult
from fetchers.file.stdin import read_standard_input
from fetchers.sdk import (
    FetchContext,
    FetchError,
    Finding,
    Offset,
    Page,
    Partition,
    PayloadKind,
    Retriable,
    Severity,
    SourceConnector,
)
from fetchers.sdk.reach import AllowedPaths

T = TypeVar("T")
_END = object()


class FileStreamSource(SourceConnector[FileStreamConfig]):
    """Follows files, and never reads a byte twice or not at all."""

    payload_kind: ClassVar[PayloadKind] = PayloadKind.TEXT
    version: ClassVar[str] = "4.1.1"
    """Version of the Kafka Connect for whose connector it stands: clients compare it with configs and other workers."""
    standard_input: int = 0
    """Descriptor that is read when no file is configured."""

    files_open_max: int = OPEN_MAX
    """Files of a pattern that are held open at once."""

    def __init__(self, config: FileStreamConfig) -> None:
        """Keep the line that standard input has begun: a retry cannot read it again."""
        super().__init__(config)
        self._begun = LineAssembler(position=0, line_bytes_max=config.file_line_bytes_max)

    def partition(self) -> Partition:
        """The file as configured; nothing for standard input, where no offset makes sense."""
        return {} if self.config.file is None else {"filename": self.config.file}

    def taken_by_reading(self) -> str | None:
        """A file stays as it is."""
        return "lines of standard input" if self.config.file is None else None

    def check_offsets(self, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """As Kafka Connect's file source does: positions of files, and none for standard input."""
        if self.config.file is None:
            raise ValueError(
                "Offsets cannot be modified if the 'file' configuration is unspecified. This is because stdin is used "
                "for input and offsets are not tracked."
            )
        for partition, offset in offsets:
            _check_offset(partition, offset)

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Open the file, or the first that matches the pattern; that none is there yet is no error."""
        file = self.config.file
        if file is None:
            return ()
        try:
            with _classing_errors(file):
                is_there = await context.run_blocking(partial(_can_be_opened, file, self.allowed_paths), subject=file)
        except FetchError as error:
            return (Finding("file", file, f"{error}; Expected a file that can be read"),)
        text = "no such file is there; it is waited for"
        return () if is_there else (Finding("file", file, text, Severity.WARNING),)

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Yield pages of whole lines, one file after the other; for ever, except from standard input."""
        if self.config.file is None:
            page_bytes = self.config.file_page_bytes
            pages = read_standard_input(self.standard_input, self._begun, context, page_bytes=page_bytes)
        else:
            pages = self._read_files(self.config.file, context)
        async with aclosing(pages):
            async for page in pages:
                yield page

    async def _read_files(self, file: str, context: FetchContext) -> AsyncGenerator[Page]:
        stopping = Event()
        reading = _reading(self.config, context, partial(open_source, stopping=stopping, allowed=self.allowed_paths))
        stored = _stored_offsets(file, context)
        files = FileSet(
            file, reading, stored=stored, is_from_end=self.config.file_start == "end", open_max=self.files_open_max
        )
        calls = FileCalls(context, file, stopping=stopping, close=files.close)
        try:
            async with aclosing(self._follow(files, calls, context)) as pages:
                async for page in pages:
                    yield page
        finally:
            await calls.stop()

    async def _follow(self, files: FileSet, calls: FileCalls, context: FetchContext) -> AsyncGenerator[Page]:
        backlog = Backlog()
        found = await _look(files, calls)
        while True:
            if not files.is_arranged(found):
                async with aclosing(_arrange(files, found, calls, context)) as pages:
                    async for page in pages:
                        yield page
                if not files.has_begun:
                    await context.clock.sleep(self.config.poll_interval)
                    found = await _look(files, calls)
                    continue
            active = files.needing_turn(found)
            outcome = _Outcome()
            if active:
                # Before anything is read: a queue that is full may hold up the first page for long.
                context.report_lag(backlog.seconds(files.unread(found), context.clock.now()))
                async with aclosing(
                    _read_by_and_by(active, calls, context, seconds=self.config.poll_interval)
                ) as results:
                    async for result in results:
                        outcome.heed(result)
                        if result.page is not None:
                            yield result.page
            context.report_lag(backlog.seconds(files.unread(found), context.clock.now()))
            if not active and files.holds_many:
                await _run(calls, files.rest, files.name)
            if not active and not (files.has_more and outcome.has_settled):
                outcome.is_finished = outcome.is_finished and not files.has_more
                outcome.tell(context)
                found = await self._next_look(files, found, calls, context)
            else:
                found = await _look(files, calls)

    async def _next_look(self, files: FileSet, found: Looks, calls: FileCalls, context: FetchContext) -> Looks:
        """After ``poll.interval.ms``; where there is nothing to do before something changes, when it has."""
        if files.needing_turn(found):
            await context.clock.sleep(self.config.poll_interval)
            return await _look(files, calls)
        every_seconds = self.config.poll_interval
        with _classing_errors(files.name):
            return await shared_changes().wait(
                files.look, since=found, subject=files.name, context=context, every_seconds=every_seconds
            )


@dataclass(slots=True)
class _Outcome:
    """What the reads since the last look amount to."""

    is_finished: bool = True
    has_settled: bool = False
    """Whether a file gave something, or was found to have nothing: others may have its place."""
    trouble: str | None = None

    def heed(self, result: ReadResult) -> None:
        """Take what one read gave into account."""
        self.is_finished = self.is_finished and not result.is_waiting
        self.has_settled = self.has_settled or not result.is_waiting
        self.trouble = result.trouble or self.trouble

    def tell(self, context: FetchContext) -> None:
        """Say what all files being read to their end means. Raises Retriable for what keeps one from it."""
        if self.trouble is not None:
            raise Retriable(self.trouble)
        if self.is_finished:
            context.finish_round()


async def _read_by_and_by(
    active: list[FollowedFile], calls: FileCalls, context: FetchContext, *, seconds: float
) -> AsyncGenerator[ReadResult]:
    """One page of each file after the other, for about ``seconds``; takes out of ``active`` what is read to its end."""
    end = context.clock.monotonic() + seconds
    while active and context.clock.monotonic() < end:
        for followed in tuple(active):
            result = await _read_once(followed, calls, context)
            if not result.has_more:
                active.remove(followed)
            yield result


async def _look(files: FileSet, calls: FileCalls) -> Looks:
    with _classing_errors(files.name):
        return await calls.run(files.look, seconds_max=LOOK_SECONDS_MAX)


async def _arrange(files: FileSet, found: Looks, calls: FileCalls, context: FetchContext) -> AsyncGenerator[Page]:
    pages = files.arrange(found, context.clock.monotonic())
    while (step := await _run(calls, lambda: next(pages, _END), files.name)) is not _END:
        if isinstance(step, Page):
            yield step
    for event in files.events:
        context.emit(event)
    files.events.clear()


async def _run(calls: FileCalls, call: Callable[[], T], path: str) -> T:
    with _classing_errors(path):
        return await calls.run(call)


@contextmanager
def _classing_errors(path: str) -> Iterator[None]:
    """What the operating system says becomes an error by recovery."""
    try:
        yield
    except OSError as error:
        raise fetch_error(error, str(error.filename or path)) from error


def _stored_offsets(file: str, context: FetchContext) -> dict[str, StoredOffset]:
    """Stored source offsets by path: those of the files of a pattern, or of the one file."""
    partitions = [dict(partition) for partition in context.offsets] or [{"filename": file}]
    offsets = {
        str(partition["filename"]): stored_offset(context.offset_of(partition))
        for partition in partitions
        if partition.keys() == {"filename"}
    }
    return {path: offset for path, offset in offsets.items() if offset is not None}


async def _read_once(followed: FollowedFile, calls: FileCalls, context: FetchContext) -> ReadResult:
    """Read one page, and tell what happened."""
    now = context.clock.monotonic()
    result = await _run(calls, lambda: followed.read_once(now), followed.path)
    for event in result.events:
        context.emit(event)
    return result


def open_source(path: str, *, stopping: Event, allowed: AllowedPaths = ANY_PATH) -> ByteSource:
    """Open a file as what its name says it is: ``.gz`` is gzip."""
    return GzipFile(path, stopping, allowed=allowed) if path.endswith(".gz") else PlainFile(path, allowed)


def _reading(config: FileStreamConfig, context: FetchContext, opener: Opener) -> Reading:
    idle_seconds = config.file_last_line_idle_ms / 1000 if config.file_last_line == "deliver" else None
    return Reading(
        connector=context.connector,
        task=context.task,
        opener=opener,
        page_bytes=config.file_page_bytes,
        page_lines=config.batch_size,
        line_bytes_max=config.file_line_bytes_max,
        rotate_wait_seconds=config.file_rotate_wait_ms / 1000,
        last_line_idle_seconds=idle_seconds,
        pattern=config.file or "",
    )


def _can_be_opened(file: str, allowed: AllowedPaths) -> bool:
    """Whether there is such a file, or one that matches. Raises OSError, Fatal where it cannot be opened. Blocks."""
    is_pattern = glob.has_magic(file) and look_at(file) is None
    path = next(glob.iglob(file, recursive=True), None) if is_pattern else file  # noqa: PTH207 - paths stay texts
    if path is None or look_at(path) is None:
        return False
    with PlainFile(path, allowed):
        return True


def _check_offset(partition: Partition, offset: Offset | None) -> None:
    """Texts are Kafka Connect's; forgetting is allowed whatever the partition is."""
    if offset is None:
        return
    if "position" not in offset:
        raise ValueError("Offset objects should either be null or contain the key 'position'")
    position = offset["position"]
    if isinstance(position, bool) or not isinstance(position, int):
        raise ValueError("The value for the 'position' key in the offset is expected to be a Long value")  # noqa: TRY004
    if position < 0:
        raise ValueError("The value for the 'position' key in the offset should be a non-negative value")
    if "filename" not in partition:
        raise ValueError("Partition objects should contain the key 'filename'")


@dataclass(frozen=True, slots=True)
class _Unread:
    since_ns: int
    look: FileLook
    """When this much of the file is read, what is left was written after it."""


class Backlog:
    """Remembers of each file that is not read to its end how it looked. Not for concurrent use.

    What is unread when a file is first seen to have more counts from the file's modification time, which is all that
    is known of it. A file that grows while it is read is never older by that time, so its size is remembered with it.
    """

    def __init__(self) -> None:
        self._unread: dict[FollowedFile, _Unread] = {}

    def seconds(self, unread: Mapping[FollowedFile, FileLook], now: datetime) -> float:
        """Age of the oldest of what is left in these files; all others are read. 0 where there is none."""
        self._unread = {file: self._updated(file, look) for file, look in unread.items()}
        oldest_ns = min((each.since_ns for each in self._unread.values()), default=None)
        return 0.0 if oldest_ns is None else max(0.0, now.timestamp() - oldest_ns / 1e9)

    def _updated(self, file: FollowedFile, look: FileLook) -> _Unread:
        known = self._unread.get(file)
        if known is None:
            return _Unread(look.modified_ns, look)
        return _Unread(known.look.modified_ns, look) if file.position >= known.look.size else known
