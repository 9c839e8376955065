"""Gzipped files: read as the text they hold; nothing of a member is handed over before its trailer proves it whole.

Positions are those of the decompressed text. Each member is decompressed twice, first to check it (RFC 1952: length and
CRC-32 stand at its end), then to read it, so that memory stays small and a broken file changes no record. Both take
as long as the archive is large: ``is_checked`` and ``is_near`` do them in shares, and keep what is done.
"""

from __future__ import annotations

import errno
import zlib
from dataclasses import dataclass
from threading import Event

from fetchers.file.disk import ANY_PATH, FileLook, PlainFile
from fetchers.file.mark import EDGE_BYTES, Mark, ReadAt
from fetchers.sdk import Fatal
from fetchers.sdk.reach import AllowedPaths

COMPRESSED_BYTES = 1 << 18
CHECK_BYTES = 1 << 20
SHARE_BYTES = 1 << 26
"""Text that one call decompresses at most: an archive may be so large that it takes hours."""
GZIP_FORMAT = 16 + zlib.MAX_WBITS


class GzipStream:
    """Decompresses members one after the other, as far as the file goes; may be asked again when it has grown."""

    def __init__(self, read_at: ReadAt) -> None:
        """Raise zlib.error from ``read`` for what is no gzip, or is damaged."""
        self.position = 0
        """Bytes of text given so far."""
        self.members_end = 0
        """Bytes of text in members that are complete."""
        self.compressed_end = 0
        """Bytes of the file read so far."""
        self._read_at = read_at
        self._pending = b""
        self._member: zlib._Decompress | None = None

    def read(self, bytes_max: int) -> bytes:
        """Some text; empty where the file ends for now."""
        while True:
            data = self._pending or self._read_compressed()
            if self._member is None:
                # Between members, archives may be padded with zeros.
                data = data.lstrip(b"\0") if self.compressed_end > len(data) else data
                if data:
                    self._member = zlib.decompressobj(GZIP_FORMAT)
            if self._member is None:
                self._pending = b""
                if not data and self._is_at_end():
                    return b""
                continue
            text = self._member.decompress(data, bytes_max)
            self._pending = self._member.unconsumed_tail
            self.position += len(text)
            if self._member.eof:
                self._pending = self._member.unused_data
                self._member = None
                self.members_end = self.position
            if text:
                return text
            if not data:
                return b""

    def _read_compressed(self) -> bytes:
        data = self._read_at(COMPRESSED_BYTES, self.compressed_end)
        self.compressed_end += len(data)
        return data

    def _is_at_end(self) -> bool:
        return not self._read_at(1, self.compressed_end)

    @property
    def is_complete(self) -> bool:
        """Whether the file ended with the end of a member."""
        return self._member is None and not self._pending and self.compressed_end > 0


@dataclass(slots=True)
class _LineEnds:
    """Where the last line end is: in all text seen, and in members that are complete."""

    seen: int = 0
    checked: int = 0

    def heed(self, text: bytes, stream: GzipStream) -> None:
        """Take into account the text that ``stream`` gave last, and that a member may have ended before or with it."""
        begin = stream.position - len(text)
        if stream.members_end >= begin:
            self.checked = self.seen
        found = text.rfind(b"\n")
        self.seen = begin + found + 1 if found >= 0 else self.seen
        if stream.members_end == stream.position:
            self.checked = self.seen


class GzipFile:
    """A ``ByteSource`` of the text in a gzipped file."""

    is_archive = True

    def __init__(
        self, path: str, stopping: Event, *, allowed: AllowedPaths = ANY_PATH, share_bytes: int = SHARE_BYTES
    ) -> None:
        """``stopping``: ends a long decompression. Raises as ``PlainFile`` does."""
        self.path = path
        self._file = PlainFile(path, allowed)
        self.identity = self._file.identity
        self._stopping = stopping
        self._share_bytes = share_bytes
        self._piece_bytes = min(CHECK_BYTES, share_bytes)
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what was read: the file is another one now."""
        self._check = GzipStream(self._file.read_at)
        self._first_text = b""
        self._line_ends = _LineEnds()
        self._text = GzipStream(self._file.read_at)
        self._unread = b""
        self._head = self._file.read_at(EDGE_BYTES, 0)

    def is_checked(self) -> bool:
        """Do a share of the check. Raises Fatal for what is not gzip or damaged."""
        try:
            return self._check_on(self._share_bytes)
        except zlib.error as error:
            self._refuse_damage(error)
            return True

    def is_near(self, position: int) -> bool:
        """Do a share of the skipping."""
        try:
            return position >= self._check.members_end or self._skip_to(position, self._share_bytes)
        except zlib.error as error:
            self._refuse_damage(error)
            return True

    def read_at(self, bytes_max: int, position: int) -> bytes:
        """Read checked text at ``position``; empty at the end. Reading on is cheap, going back starts anew.

        Raises Fatal for what is not gzip or damaged.
        """
        try:
            self._check_on(None)
            return self._read_checked(min(bytes_max, self._check.members_end - position), position)
        except zlib.error as error:
            self._refuse_damage(error)
            return b""

    def _refuse_damage(self, error: zlib.error) -> None:
        # If it is another file by now, the comparison that follows every read finds out, and begins again.
        if not self._is_another():
            raise Fatal(f"'{self.path}' is damaged, or not gzip: {error}") from error

    def _check_on(self, share_bytes: int | None) -> bool:
        """Check what is there, or about so much of it; whether that is all."""
        begin = self._check.position
        while share_bytes is None or self._check.position - begin < share_bytes:
            text = self._check.read(self._piece_bytes)
            self._first_text += text[: EDGE_BYTES - len(self._first_text)]
            self._line_ends.heed(text, self._check)
            if not text:
                return True
            self._heed_stop()
        return False

    def _skip_to(self, position: int, share_bytes: int | None) -> bool:
        """Bring the text at ``position`` next, or about so much nearer; False: there is more to skip."""
        if position < self._text.position - len(self._unread):
            self._text = GzipStream(self._file.read_at)
            self._unread = b""
        begin = self._text.position
        while position >= self._text.position:
            if share_bytes is not None and self._text.position - begin >= share_bytes:
                return False
            self._unread = self._text.read(self._piece_bytes)
            self._heed_stop()
            if not self._unread:
                return True
        self._unread = self._unread[len(self._unread) - (self._text.position - position) :]
        return True

    def _read_checked(self, bytes_max: int, position: int) -> bytes:
        if bytes_max <= 0:
            return b""
        if position + bytes_max <= len(self._first_text):
            return self._first_text[position : position + bytes_max]
        self._skip_to(position, None)
        if not self._unread:
            # Shorter than when it was checked: it was truncated, which shows at the next comparison.
            return b""
        while len(self._unread) < bytes_max and (more := self._text.read(self._piece_bytes)):
            self._unread += more
        text, self._unread = self._unread[:bytes_max], self._unread[bytes_max:]
        return text

    def _heed_stop(self) -> None:
        if self._stopping.is_set():
            raise InterruptedError(errno.EINTR, "stopped while decompressing")

    def look(self) -> FileLook:
        """Identity, size and times of the compressed file, as ``fstat`` tells them."""
        return self._file.look()

    def is_rewritten(self, mark: Mark, unfinished_edge: bytes, end: int) -> bool | None:
        """Whether the compressed file is shorter than before, or begins otherwise."""
        del mark, unfinished_edge, end
        return self._is_another()

    def _is_another(self) -> bool:
        is_shorter = self._file.look().size < self._check.compressed_end
        return is_shorter or self._file.read_at(len(self._head), 0) != self._head

    def last_line_end(self) -> int:
        """It was seen with the check."""
        self.read_at(0, 0)
        return self._line_ends.checked

    def is_behind(self, look: FileLook, end: int) -> bool:
        """Whether there is checked text behind ``end``, or the file has grown."""
        return end < self._check.members_end or look.size > self._check.compressed_end

    def is_unlinked(self) -> bool:
        """Whether no name leads to the file any more."""
        return self._file.is_unlinked()

    def is_finished(self) -> bool:
        """Whether the file ends with a trailer."""
        return self._check.is_complete

    def close(self) -> None:
        """Close the file and forget what was unpacked."""
        self._file.close()
