"""One path that is followed through growth, truncation, rotation, deletion and return.

::

             file opened                     path leads elsewhere, and nothing new for a while
    absent ──────────────► reading to its end ───────────────────────────────► successor, from byte 0
      ▲                        │      ▲                                              │
      │    path deleted        │      └────────────── truncated: from byte 0 ◄───────┤
      └────────────────────────┴─────────────────────────────────────────────────────┘

Everything here blocks: it runs in a thread of the worker, one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from fetchers.file.disk import ByteSource, FileLook, look_at, open_if_there
from fetchers.file.lines import LineAssembler, Lines, LineTooLongError
from fetchers.file.mark import Mark, StoredOffset, offset_after
from fetchers.file.opening import Departed, Next, Opened, Opening, begin_opening, is_ready, next_after, open_moved
from fetchers.file.reading import (
    FileEvent,
    FileMissing,
    FileRestarted,
    FilesMissed,
    LastLineGivenUp,
    Reading,
    ReadResult,
    UnfinishedLineLost,
)
from fetchers.sdk import Fatal, Page

PAGE_GROWTH_MAX = 4
"""A page of short reads is filled up to so many times ``page_bytes`` to reach ``batch.size`` lines."""
UNFINISHED_SECONDS_MAX = 60.0
"""So long an unfinished archive may stay as it is before the task says so and tries again."""
NAMES_MAX = 5
"""So many names are told of files that were missed."""
DENIED_SECONDS_MAX = 10.0
"""So long a file may refuse to be read before the task fails."""


class FollowedFile:
    """Reads whatever file is at ``path``, at most one page each time."""

    def __init__(
        self,
        path: str,
        reading: Reading,
        *,
        stored: StoredOffset | None = None,
        owes_marker: bool = False,
    ) -> None:
        """``owes_marker``: the first read that finds the file stores its offset, whether there is a line or not."""
        self.path = path
        self._reading = reading
        self._stored = stored
        self._owes_marker = owes_marker
        self._source: ByteSource | None = None
        self._opening: Opening | None = None
        self._successor: ByteSource | None = None
        self._resting: tuple[int, int] | None = None
        self._departed: Departed | None = None
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
        """Which file is being read, or rests; None when there is none, or it is not known yet."""
        if self._opening is not None:
            return self._opening.identity
        return self._source.identity if self._source else self._resting

    @property
    def is_pending(self) -> bool:
        """Whether it must be read however its path looks."""
        return self._is_pending

    @property
    def position(self) -> int:
        """Byte at which the next read begins, counted from the beginning of the file."""
        return self._stored.position if self._stored is not None else self._mark.position

    @property
    def offset(self) -> dict[str, str | int]:
        """The source offset to store: where a restart goes on in this file."""
        if self._stored is not None:
            return self._stored.offset
        return offset_after(self._mark, self.identity[1] if self.identity else 0)

    def needs_turn(self, look: FileLook | None) -> bool:
        """Whether a path that looks like this may have something to read."""
        return self._is_pending or look != self._seen

    def read_once(self, now: float) -> ReadResult:
        """Read one page, or find out that there is none now. ``now``: monotonic seconds.

        Raises OSError, and Fatal for a line that is too long or a path that is no file.
        """
        if self._source is None and not self._open(now):
            is_waiting = self._denied_at is not None or self._opening is not None
            return self._done(is_waiting=is_waiting, is_pending=is_waiting, has_more=self._opening is not None)
        if self._owes_marker:
            self._owes_marker = False
            return self._done(self.marker(), has_more=True)
        return self._read(self._opened, now)

    def _read(self, source: ByteSource, now: float) -> ReadResult:
        if not (source.is_checked() and source.is_near(self._assembler.end)):
            return self._done(has_more=True, is_waiting=True)
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
        return self._source is not None or self._opening is not None

    def rest(self) -> None:
        """Give a file back that is read to its end, until its path looks different."""
        if self._source is not None and not self._is_pending and not self._assembler.unfinished:
            self._resting = self._source.identity
            self._stored = StoredOffset(self._mark.position, self._resting[1], self._mark.signature)
            self.close()

    def finish(self) -> Iterator[Page | None]:
        """Read what is left of a file whose name now belongs to another one, and close it. None: there is more."""
        if self._source is None and self._stored is not None:
            self.close()
            moved = open_moved(self.path, self._stored, self._reading.opener)
            opening = self._opening = Opening(self._stored, None, moved)
            while (opened := opening.go_on()) is None:
                yield None
            self._take(opened)
        while self._source is not None:
            if not (self._source.is_checked() and self._source.is_near(self._assembler.end)):
                yield None
                continue
            block = self._read_block(self._source)
            if not block:
                break
            yield self._page(self._feed(block))
        yield self._give_up_last_line("rotated") if self._source is not None else None
        self.close()

    def take_events(self) -> tuple[FileEvent, ...]:
        """What happened and was not told with what was read."""
        events, self._events = tuple(self._events), []
        return events

    def close(self) -> None:
        """Close the file; what was read of it stays known."""
        for held in (self._source, self._opening, self._successor):
            if held is not None:
                held.close()
        self._source = self._opening = self._successor = None

    # --- opening ---------------------------------------------------------------------------------

    @property
    def _opened(self) -> ByteSource:
        if self._source is None:
            message = f"'{self.path}' is not open"
            raise RuntimeError(message)
        return self._source

    def _open(self, now: float) -> bool:
        try:
            opened = self._find()
        except PermissionError:
            # Whoever makes a file may give the right to read it a moment later.
            self._denied_at = now if self._denied_at is None else self._denied_at
            if now - self._denied_at < DENIED_SECONDS_MAX:
                return False
            raise
        self._denied_at = None
        if opened is None:
            return False
        self._grown_at = now
        self._take(opened)
        if opened.source is None:
            self._miss()
        return opened.source is not None

    def _find(self) -> Opened | None:
        """Open the file to read; None while it has to be found out which one it is."""
        if self._stored is None:
            source = open_if_there(self.path, self._reading.opener)
            return Opened(source, self._mark_on_return(source) if source is not None else Mark())
        if self._opening is not None and not self._opening.is_of(look_at(self.path)):
            self.close()
        if self._opening is None:
            self._opening = begin_opening(self.path, self._stored, self._reading.opener)
        return self._opening.go_on()

    def _take(self, opened: Opened) -> None:
        self._source, self._opening, self._resting = opened.source, None, None
        if opened.source is None:
            return
        if opened.misfit is not None:
            self._tell(FileRestarted, reason=opened.misfit, position=self.position)
        self._stored = None
        self._is_missed = False
        self._begin(opened.mark)

    def _mark_on_return(self, source: ByteSource) -> Mark:
        """A file is where none was: the same one, untouched, is read on; any other is new."""
        departed, self._departed = self._departed, None
        if departed is None:
            return Mark()
        if source.identity == departed.left.identity and look_at(self.path) == departed.seen:
            return departed.mark
        self._tell_missed(next_after(departed.left, self.path, self._reading.pattern).names)
        return Mark()

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

    def _restart(self, reason: str) -> ReadResult:
        """The file is another one now: read it from byte 0."""
        self._tell(FileRestarted, reason=reason, position=self._mark.position)
        if self._assembler.unfinished:
            lost = len(self._assembler.unfinished)
            self._tell(UnfinishedLineLost, position=self._mark.position, bytes=lost)
        self._opened.begin_again()
        self._begin(Mark())
        return self._done(has_more=True)

    # --- at the end ------------------------------------------------------------------------------

    def _at_end(self, source: ByteSource, now: float) -> ReadResult:
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

    def _retire(self, source: ByteSource, look: FileLook | None) -> ReadResult:
        """Leave a file that is read to its end and is no longer at the path."""
        following = next_after(source.look(), self.path, self._reading.pattern)
        successor = self._open_next(following, look)
        if successor is None and (look is not None or following.identity is not None):
            return self._done(is_waiting=True)
        if successor is not None and source.is_unlinked() and not is_ready(successor, self._mark.position):
            self._successor = successor
            return self._done(has_more=True, is_waiting=True)
        if following.identity is None:
            self._tell_missed(following.names)
        if successor is not None and source.is_unlinked() and self._is_copy(successor):
            # A longer copy was moved over the file (rsync, an editor): what was read is not read again.
            self._assembler.drop_unfinished()
            page = None
        else:
            page = self._give_up_last_line("rotated")
            if successor is None:
                self._departed = Departed(self._seen, source.look(), self._mark)
            self._begin(Mark())
        source.close()
        self._source = successor
        self._retire_at = None
        if successor is None:
            self._miss()
        return self._done(page, has_more=successor is not None, is_pending=successor is not None)

    def _open_next(self, following: Next, look: FileLook | None) -> ByteSource | None:
        """Open the successor, or that of an earlier read again; None when it is not there, or no longer."""
        identity = following.identity or (look and look.identity)
        successor, self._successor = self._successor, None
        if successor is None and identity is not None:
            successor = open_if_there(following.path, self._reading.opener)
        if successor is not None and successor.identity != identity:
            successor.close()
            successor = None
        return successor

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

    def _tell_missed(self, names: Sequence[str]) -> None:
        if names:
            self._tell(FilesMissed, names=", ".join(names[:NAMES_MAX]))

    def _done(
        self,
        page: Page | None = None,
        *,
        has_more: bool = False,
        is_waiting: bool = False,
        is_pending: bool = True,
        trouble: str | None = None,
    ) -> ReadResult:
        self._is_pending = is_pending
        return ReadResult(page, self.take_events(), has_more=has_more, is_waiting=is_waiting, trouble=trouble)
