r"""An endless body cut into messages, on the bytes alone and before anything is decoded.

Work is done for chunks, never for single lines: what a chunk completes becomes one Arrow column. Only ``\n`` ends a
line (and takes a ``\r`` before it away): U+2028 and its like may stand inside a JSON text. Blank lines are keep-alives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import Fatal, Rejection

TOO_LARGE, CUT_OFF = "too_large", "cut_off"
"""Reasons of rejections: a message over the limit, and one in whose middle the connection ended."""
KEPT_BYTES = 1024 * 1024
"""What is kept of a message beyond the limit, at most."""
_LINE_FEED = 10
_DIGITS_MAX = 12
"""A length of more digits is none."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Messages in the order of the body."""

    payloads: pa.Array[Any]
    rejections: tuple[Rejection, ...] = ()
    """Of messages that are over the limit and hold their first bytes only."""


class Framing(Protocol):
    """Finds messages in the chunks of one body."""

    def feed(self, chunk: bytes) -> Frames | None:
        """The messages that are complete by now; None where there is none."""

    def finish(self) -> bytes:
        """The beginning of the message in whose middle the body has ended; empty where it ended between two."""


class LineFraming:
    """One message a line; holds one line that is not complete, up to ``bytes_max`` of it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        """Of the line that is held, what was left out of it included."""

    def feed(self, chunk: bytes) -> Frames | None:
        """See ``Framing``."""
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            self._hold(chunk)
            return None
        oversized: tuple[bytes, int] | None = None
        if self._size > self._bytes_max:
            end = chunk.find(b"\n")
            oversized = b"".join(self._parts), self._size + end
            data = chunk[end + 1 : cut]
        else:
            data = b"".join((*self._parts, chunk[:cut]))
        self._parts, self._size = [], 0
        if cut < len(chunk):
            self._hold(chunk[cut:])
        return _frames(data, oversized, self._bytes_max)

    def finish(self) -> bytes:
        """See ``Framing``."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return rest.rstrip(b"\r\n")

    def _hold(self, part: bytes) -> None:
        if self._size + len(part) <= self._bytes_max:
            self._parts.append(part)
        elif self._size <= self._bytes_max:
            # From here on the line is known to be too long: its first bytes are enough.
            kept = min(self._bytes_max, KEPT_BYTES)
            self._parts = [b"".join((*self._parts, part[:kept]))[:kept]]
        self._size += len(part)


class LengthFraming:
    r"""Each message follows a line with its length in bytes, its line end included (``delimited=length``)."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._wanted: int | None = None
        """Length of the message that has begun; None between two."""
        self._left_out = 0
        """Bytes of it that came and were not kept."""

    def feed(self, chunk: bytes) -> Frames | None:
        """See ``Framing``. Raises Fatal where the body is not of this form."""
        self._held += chunk
        payloads: list[bytes] = []
        rejections: list[Rejection] = []
        at = 0
        while True:
            if self._wanted is None:
                end = self._held.find(b"\n", at)
                if end < 0:
                    self._demand_number(self._held[at:])
                    break
                line = self._demand_number(self._held[at:end])
                at = end + 1
                if line:
                    self._wanted = int(line)
                continue
            missing = self._wanted - self._left_out - (len(self._held) - at)
            if missing > 0:
                at = self._leave_out(at)
                break
            end = at + self._wanted - self._left_out
            payload = bytes(self._held[at:end])
            at = end
            if self._wanted > self._bytes_max:
                message = _too_large(self._wanted, self._bytes_max)
                rejections.append(Rejection(len(payloads), TOO_LARGE, message))
                payload = payload[: min(self._bytes_max, KEPT_BYTES)]
            payloads.append(payload.rstrip(b"\r\n"))
            self._wanted, self._left_out = None, 0
        del self._held[:at]
        return Frames(pa.array(payloads, pa.binary()), tuple(rejections)) if payloads else None

    def finish(self) -> bytes:
        """See ``Framing``."""
        rest = bytes(self._held) if self._wanted is not None else b""
        self._held.clear()
        self._wanted, self._left_out = None, 0
        return rest

    def _leave_out(self, at: int) -> int:
        """Of a message over the limit only the first bytes are kept while the rest comes in."""
        kept = min(self._bytes_max, KEPT_BYTES)
        if self._wanted is not None and self._wanted > self._bytes_max and len(self._held) - at > kept:
            self._left_out += len(self._held) - at - kept
            del self._held[at + kept :]
        return at

    def _demand_number(self, line: bytearray) -> bytes:
        """The digits of a line, none where it is blank; also of its beginning, which is held no longer than that."""
        digits = bytes(line[: _DIGITS_MAX + 2]).rstrip(b"\r")
        if len(line) > _DIGITS_MAX + 1 or len(digits) > _DIGITS_MAX or (digits and not digits.isdigit()):
            shown = bytes(line[:40])
            raise Fatal(f"the stream has no length where one is due, but {shown!r}: is it delimited by lines?")
        return digits


def _frames(data: bytes, oversized: tuple[bytes, int] | None, bytes_max: int) -> Frames | None:
    """The lines of ``data``, after the oversized one that ended before it."""
    payloads, rejections = _limited(_split(data), bytes_max)
    if oversized is not None:
        head, size = oversized
        message = _too_large(size, bytes_max)
        payloads = pa.concat_arrays([pa.array([head], pa.binary()), payloads])
        moved = (Rejection(each.index + 1, each.reason, each.message) for each in rejections)
        rejections = (Rejection(0, TOO_LARGE, message), *moved)
    return Frames(payloads, rejections) if len(payloads) else None


def _split(data: bytes) -> pa.Array[Any]:
    """Lines that are not blank, as slices of one buffer."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    line_ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_FEED)
    count = len(line_ends)
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = line_ends - np.arange(count)
    text = data.replace(b"\n", b"")
    payloads: pa.Array[Any] = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text)]
    )
    is_record = np.diff(offsets) > 0
    return payloads if is_record.all() else payloads.filter(pa.array(is_record))


def _limited(payloads: pa.Array[Any], bytes_max: int) -> tuple[pa.Array[Any], tuple[Rejection, ...]]:
    """The same messages, those beyond the limit cut and marked."""
    if payloads.nbytes <= bytes_max:
        return payloads, ()
    sizes = pc.binary_length(cast("pa.BinaryArray", payloads)).to_numpy()
    beyond = np.flatnonzero(sizes > bytes_max)
    if not len(beyond):
        return payloads, ()
    values = payloads.to_pylist()
    for index in beyond:
        values[index] = (values[index] or b"")[: min(bytes_max, KEPT_BYTES)]
    rejections = tuple(Rejection(int(index), TOO_LARGE, _too_large(int(sizes[index]), bytes_max)) for index in beyond)
    return pa.array(values, pa.binary()), rejections


def _too_large(size: int, limit: int) -> str:
    kept = min(limit, KEPT_BYTES)
    return f"the message has {size} bytes, over listener.message.bytes.max={limit}; its first {kept} are kept"
