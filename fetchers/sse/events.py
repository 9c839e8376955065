r"""Server-sent events cut out of a body, to the letter of the WHATWG's HTML Standard §9.2.6, but for the decoding.

Lines end with LF, CR or CRLF, also where a CRLF is divided between two chunks; one byte order mark may stand before the
first; a line that begins with a colon is a comment. What is no UTF-8 is not replaced here: the data stay the bytes that
came in, and the conversion judges them. The standard knows no limit of an event; here there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_RETRY_DIGITS_MAX = 9
"""A longer time is none that anybody means."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event that was dispatched."""

    data: bytes
    type: bytes
    """As the stream names it; empty is the standard's ``message``."""
    last_id: bytes
    """By which a new connection goes on after it; empty where none was given."""
    size: int
    """Bytes of its data; larger than ``len(data)`` where they are over the limit and only the first are kept."""


class EventParser:
    """Reads the chunks of one body."""

    def __init__(self, *, event_bytes_max: int, last_id: bytes = b"") -> None:
        """``last_id``: with which the connection was asked for; it holds until the stream gives another."""
        self._bytes_max = event_bytes_max
        self.last_id = last_id
        """Of the last event that was dispatched."""
        self.retry_ms: int | None = None
        """How long the source asks to wait before a connection is made anew."""
        self._id = last_id
        self._type = b""
        self._data: list[bytes] = []
        self._kept = 0
        self._size = 0
        self._head: bytes | None = b""
        """The first bytes of the body, until it is known whether they are a byte order mark."""
        self._parts: list[bytes] = []
        """Of the line that is not complete."""
        self._line_kept = 0
        self._line_left_out = 0
        self._ended_with_cr = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that are complete by now."""
        if self._head is not None:
            chunk = self._head + chunk
            if len(chunk) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(chunk):
                self._head = chunk
                return []
            self._head = None
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        if self._ended_with_cr and chunk.startswith(b"\n"):
            chunk, self._ended_with_cr = chunk[1:], False
        if not chunk:
            return []
        self._ended_with_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = chunk.split(b"\n")
        if lines and self._parts:
            self._hold(lines[0])
            lines[0] = b"".join(self._parts)
            found = self._events(lines[:1], left_out=self._line_left_out) + self._events(lines[1:])
            self._parts, self._line_kept, self._line_left_out = [], 0, 0
        else:
            found = self._events(lines)
        self._hold(rest)
        return found

    @property
    def unfinished(self) -> bytes:
        """The data of the event that has begun and not been dispatched; the standard drops it."""
        line = b"".join(self._parts)
        begun = [line.partition(b":")[2].removeprefix(b" ")] if line.startswith(b"data:") else []
        return b"\n".join((*self._data, *begun))

    def _hold(self, part: bytes) -> None:
        if not part:
            return
        # A field's name and colon come on top of the limit of its value.
        room = max(0, self._bytes_max + 64 - self._line_kept)
        self._parts.append(part[:room])
        self._line_kept += min(room, len(part))
        self._line_left_out += max(0, len(part) - room)

    def _events(self, lines: list[bytes], *, left_out: int = 0) -> list[ServerEvent]:
        found: list[ServerEvent] = []
        for line in lines:
            if not line:
                self.last_id = self._id
                if self._data:
                    found.append(self._dispatched())
                self._type = b""
            elif line.startswith(b"data:"):  # by far the most
                self._add_data(line[6:] if line.startswith(b"data: ") else line[5:], left_out)
            elif not line.startswith(b":"):
                name, _, value = line.partition(b":")
                self._take(name, value.removeprefix(b" "), left_out)
        return found

    def _take(self, name: bytes, value: bytes, left_out: int) -> None:
        if name == b"event":
            self._type = value
        elif name == b"id":
            if b"\0" not in value:
                self._id = value
        elif name == b"retry":
            if value.isdigit():
                self.retry_ms = int(value[:_RETRY_DIGITS_MAX])
        elif name == b"data":
            self._add_data(value, left_out)

    def _add_data(self, value: bytes, left_out: int) -> None:
        self._size += len(value) + left_out + (1 if self._data else 0)
        room = self._bytes_max - self._kept
        if len(value) <= room:
            self._data.append(value)
            self._kept += len(value) + 1
        elif room > 0 or not self._data:
            self._data.append(value[: max(room, 0)])
            self._kept = self._bytes_max

    def _dispatched(self) -> ServerEvent:
        event = ServerEvent(b"\n".join(self._data), self._type, self._id, self._size)
        self._data, self._kept, self._size = [], 0, 0
        return event
