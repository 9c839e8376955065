"""One path that is followed through growth, truncation, rotation, deletion and return.

::

             file opened                     path leads elsewhere, and nothing new for a while
    absent ──────────────► reading to its end ───────────────────────────────► successor, from byte 0
      ▲                        │      ▲                                              │
      │    path deleted        │      └────────────── truncated: from byte 0 ◄───────┤
      └────────────────────────┴─────────────────────────────────────────────────────┘

Everything here blocks: it runs in the task's file thread, one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from fetchers.file.disk import ByteSource, FileLook, Opener, find_moved, look_at, open_if_there
from fetchers.file.events import FileEvent, FileMissing, FileRestarted, LastLineGivenUp, UnfinishedLineLost
from fetchers.file.lines import LineAssembler, Lines, LineTooLongError
from fetchers.file.mark import Mark, StoredOffset, mark_at, offset_after
from fetchers.sdk import Fatal, Page

PAGE_GROWTH_MAX = 4
"""A page of short reads is filled up to so many times ``page_bytes`` to reach ``batch.size`` lines."""
UNFINISHED_SECONDS_MAX = 60.0
"""So long an unfinished archive may stay as it is before the task says so and tries again."""
DENIED_SECONDS_MAX = 10.0
"""So long a file may refuse to be read before the task fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How files are read; the same for all files of a task."""

    connector: str
    task: int
    opener: Opener
    page_bytes: int
    page_lines: int
    line_bytes_max: int
    rotate_wait_seconds: float
    last_line_idle_seconds: float | None
    """None: a last line without end waits for ever."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of one turn of a file."""

    page: Page | None = None
    events: tuple[FileEvent, ...] = ()
    has_more: bool = False
    """Ask again at once."""
    is_waiting: bool = False
    """Nothing now, but what is here is not done with: the round is not finished."""
    trouble: str | None = None
    """What keeps this file from being read, to be raised when all others are read."""


@dataclass(frozen=True, slots=True)
class _Departed:
    """The file that was last at a path where nothing is now."""

    look: FileLook | None
    mark: Mark
    source_identity: tuple[int, int]


class FollowedFile:
    """Reads whatever file is at ``path``, one page a turn."""

    def __init__(
        self,
        path: str,
        reading: Reading,
        *,
        stored: StoredOffset | None = None,
        is_from_end: bool = False,
        owes_marker: bool = False,
    ) -> None:
        """``owes_marker``: the first turn that finds the file stores its offset, whether there is a line or not."""
        self.path = path
        self._reading = reading
        self._stored = stored
        self._is_from_end = is_from_end
        self._owes_marker = owes_marker
        self._source: ByteSource | None = None
        self._resting: tuple[int, int] | None = None
        self._departed: _Departed | None = None
        self._seen: FileLook | None = None
        self._is_pending = True
        self._is_missed = False
        self._retire_at: float | None = None
        self._denied_at: float | None = None
        self._grown_at = 0.0
        self._events: list[FileEvent] = []
        self._mark = Mark()
        self._assembler = LineAssembler(position=0, line_bytes_max=reading.line_bytes_max)

    @property
    def identity(self) -> tuple[int, int] | None:
        """Which file is being read, or rests; None when there is none."""
        return self._source.identity if self._source else self._resting

    @property
    def is_pending(self) -> bool:
        """Whether it needs a turn however its path looks."""
        return self._is_pending

    @property
    def position(self) -> int:
        """Byte to resume at."""
        return self._mark.position

    @property
    def offset(self) -> dict[str, str | int]:
        """Where to resume."""
        return offset_after(self._mark, self.identity[1] if self.identity else 0)

    def needs_turn(self, look: FileLook | None) -> bool:
        """Whether a path that looks like this may have something to read."""
        return self._is_pending or look != self._seen

    def turn(self, now: float) -> Turn:
        """Read one page, or find out that there is none now. ``now``: monotonic seconds.

        Raises OSError, and Fatal for a line that is too long or a path that is no file.
        """
        if self._source is None and not self._open(now):
            return self._done(is_waiting=self._denied_at is not None, is_pending=self._denied_at is not None)
        if self._owes_marker:
            self._owes_marker = False
            return self._done(self.marker(), has_more=True)
        source = self._opened
        block = self._read_block(source)
        rewritten = source.is_rewritten(self._mark, self._assembler.unfinished_edge, self._assembler.end)
        if rewritten:
            return self._restart("truncated")
        if rewritten is None:
            self._assembler.drop_unfinished()
            return self._done(has_more=True)
        if not block:
            return self._at_end(source, now)
        self._grown_at = now
        self._retire_at = None
        return self._done(self._page(self._feed(block)), has_more=True)

    def marker(self) -> Page:
        """A page without records that stores where this file is read on."""
        return Page(pa.array([], pa.binary()), offset=self.offset, partition={"filename": self.path})

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor."""
        return self._source is not None

    def rest(self) -> None:
        """Give a file back that is read to its end, until its path looks different."""
        if self._source is not None and not self._is_pending and not self._assembler.unfinished:
            self._resting = self._source.identity
            self._stored = StoredOffset(self._mark.position, self._resting[1], self._mark.signature)
            self.close()

    def finish(self) -> Iterator[Page]:
        """Read what is left of a file whose name now belongs to another one, and close it."""
        if self._source is None and self._stored is not None:
            self._source = find_moved(self.path, self._stored, self._reading.opener)
        while self._source is not None and (block := self._read_block(self._source)):
            page = self._page(self._feed(block))
            if page is not None:
                yield page
        page = self._give_up_last_line("rotated") if self._source is not None else None
        if page is not None:
            yield page
        self.close()

    def take_events(self) -> tuple[FileEvent, ...]:
        """What happened and was not told with a turn."""
        events, self._events = tuple(self._events), []
        return events

    def close(self) -> None:
        """Give the file back."""
        if self._source is not None:
            self._source.close()
            self._source = None

    # --- opening ---------------------------------------------------------------------------------

    @property
    def _opened(self) -> ByteSource:
        if self._source is None:
            message = f"'{self.path}' is not open"
            raise RuntimeError(message)
        return self._source

    def _open(self, now: float) -> bool:
        try:
            source = open_if_there(self.path, self._reading.opener)
        except PermissionError:
            # Whoever makes a file may give the right to read it a moment later.
            self._denied_at = now if self._denied_at is None else self._denied_at
            if now - self._denied_at < DENIED_SECONDS_MAX:
                return False
            raise
        self._denied_at = None
        stored, self._stored = self._stored, None
        if stored is not None:
            source = self._resume(source, stored)
        elif source is not None and self._departed is not None:
            self._return(source, self._departed)
        elif source is not None and self._is_from_end:
            # Stored at once: after a crash the lines that came meanwhile are not to be skipped.
            self._owes_marker = True
            self._begin(mark_at(source.read_at, source.last_line_end()) or Mark())
        self._is_from_end = False
        self._resting = None
        self._source = source
        self._grown_at = now
        if source is None:
            self._stored = stored
            self._miss()
            return False
        self._is_missed = False
        return True

    def _resume(self, source: ByteSource | None, stored: StoredOffset) -> ByteSource | None:
        """Find the file that the offset was taken from: at its path, or in its folder under another name."""
        is_same = source is not None and stored.inode in {None, source.identity[1]}
        mark = stored.mark_in(source.read_at) if source is not None and is_same else None
        if mark is None and not is_same:
            moved = find_moved(self.path, stored, self._reading.opener)
            if moved is not None:
                if source is not None:
                    source.close()
                source, mark = moved, stored.mark_in(moved.read_at)
            elif source is not None and stored.signature is not None:
                # The same content in another inode: a copy was moved over the file (rsync, sed -i, a restored volume).
                mark = stored.mark_in(source.read_at)
        if source is not None and mark is None and stored.position:
            self._tell(FileRestarted, reason="truncated" if is_same else "unknown", position=stored.position)
        self._begin(mark or Mark())
        return source

    def _return(self, source: ByteSource, departed: _Departed) -> None:
        """A file is where none was: the same one, untouched, is read on; any other is new."""
        look = look_at(self.path)
        is_same = source.identity == departed.source_identity and look is not None and look == departed.look
        self._begin(departed.mark if is_same else Mark())
        self._departed = None

    def _miss(self) -> None:
        if not self._is_missed:
            self._tell(FileMissing)
        self._is_missed = True
        self._seen = None

    # --- reading ---------------------------------------------------------------------------------

    def _read_block(self, source: ByteSource) -> bytes:
        """About ``page_bytes``, or more when they hold too few lines."""
        page_bytes, end = self._reading.page_bytes, self._assembler.end
        blocks: list[bytes] = []
        size = lines = 0
        while size < page_bytes or (lines < self._reading.page_lines and size < PAGE_GROWTH_MAX * page_bytes):
            block = source.read_at(page_bytes, end + size)
            if not block:
                break
            blocks.append(block)
            size += len(block)
            lines += block.count(b"\n")
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    def _feed(self, block: bytes) -> Lines | None:
        try:
            return self._assembler.feed(block)
        except LineTooLongError as error:
            message = (
                f"'{self.path}': the line at byte {error.position} is longer than file.line.bytes.max="
                f"{self._reading.line_bytes_max}; raise the limit, or set the offset behind the line"
            )
            raise Fatal(message) from error

    def _page(self, lines: Lines | None) -> Page | None:
        if lines is None:
            return None
        self._mark = self._mark.after(lines.raw)
        return Page(lines.payloads, offset=self.offset, partition={"filename": self.path}, positions=lines.positions)

    def _restart(self, reason: str) -> Turn:
        """The file is another one now: read it from byte 0."""
        self._tell(FileRestarted, reason=reason, position=self._mark.position)
        if self._assembler.unfinished:
            lost = len(self._assembler.unfinished)
            self._tell(UnfinishedLineLost, position=self._mark.position, bytes=lost)
        self._opened.begin_again()
        self._begin(Mark())
        return self._done(has_more=True)

    # --- at the end ------------------------------------------------------------------------------

    def _at_end(self, source: ByteSource, now: float) -> Turn:
        look = look_at(self.path)
        if look is None or look.identity != source.identity:
            self._retire_at = now + self._reading.rotate_wait_seconds if self._retire_at is None else self._retire_at
            return self._retire(source, look) if now >= self._retire_at else self._done(is_waiting=True)
        self._retire_at = None
        if look != self._seen:
            self._grown_at = now
        self._seen = look
        if source.is_behind(look, self._assembler.end):
            return self._done(has_more=True)
        if not source.is_finished():
            is_cut = now - self._grown_at >= UNFINISHED_SECONDS_MAX
            trouble = f"'{self.path}' is cut: its gzip trailer is missing and it does not grow" if is_cut else None
            return self._done(is_waiting=True, trouble=trouble)
        idle_seconds = self._idle_seconds(source)
        if idle_seconds is None or not self._assembler.unfinished:
            return self._done(is_pending=False)
        if now - self._grown_at < idle_seconds:
            return self._done(is_waiting=True)
        return self._done(self._give_up_last_line("idle"), is_pending=False)

    def _idle_seconds(self, source: ByteSource) -> float | None:
        return self._reading.rotate_wait_seconds if source.is_archive else self._reading.last_line_idle_seconds

    def _retire(self, source: ByteSource, look: FileLook | None) -> Turn:
        """Leave a file that is read to its end and is no longer at the path."""
        successor = open_if_there(self.path, self._reading.opener) if look is not None else None
        if look is not None and successor is None:
            return self._done(is_waiting=True)
        if successor is not None and source.is_unlinked() and self._is_copy(successor):
            # A longer copy was moved over the file (rsync, an editor): what was read is not read again.
            self._assembler.drop_unfinished()
            page = None
        else:
            page = self._give_up_last_line("rotated")
            if successor is None:
                self._departed = _Departed(self._seen, self._mark, source.identity)
            self._begin(Mark())
        source.close()
        self._source = successor
        self._retire_at = None
        if successor is None:
            self._miss()
        return self._done(page, has_more=successor is not None, is_pending=successor is not None)

    def _is_copy(self, successor: ByteSource) -> bool:
        """Whether a file holds all that was read, its unfinished line as well; one that begins alike is another one."""
        unfinished, position = self._assembler.unfinished, self._mark.position
        # At position 0 there is no finished line that could tell the two apart.
        return (
            position > 0
            and self._mark.is_in(successor.read_at)
            and successor.read_at(len(unfinished), position) == unfinished
        )

    def _give_up_last_line(self, reason: str) -> Page | None:
        lines = self._assembler.give_up_unfinished()
        if lines is not None:
            self._tell(LastLineGivenUp, reason=reason, position=self._mark.position)
        return self._page(lines)

    # --- small parts -----------------------------------------------------------------------------

    def _begin(self, mark: Mark) -> None:
        self._mark = mark
        self._assembler = LineAssembler(position=mark.position, line_bytes_max=self._reading.line_bytes_max)

    def _tell(self, kind: type[FileEvent], **fields: str | int) -> None:
        self._events.append(kind(self._reading.connector, self._reading.task, file=self.path, **fields))

    def _done(
        self,
        page: Page | None = None,
        *,
        has_more: bool = False,
        is_waiting: bool = False,
        is_pending: bool = True,
        trouble: str | None = None,
    ) -> Turn:
        self._is_pending = is_pending
        return Turn(page, self.take_events(), has_more=has_more, is_waiting=is_waiting, trouble=trouble)
