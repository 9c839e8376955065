r"""Bytes to lines: whole blocks are split at once, with nothing per line in Python.

A line ends with ``\n`` or ``\r\n``. A lone ``\r``, U+2028, U+0085 and NUL are bytes like others: no text is decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.file.mark import EDGE_BYTES

_LINE_END = ord("\n")


@dataclass(frozen=True, slots=True)
class Lines:
    """Finished lines of one stretch of a file."""

    payloads: pa.BinaryArray
    """The lines without their ends."""
    positions: pa.Int64Array
    """Byte at which each line begins."""
    end: int
    """Byte behind the last line's end."""
    raw: bytes
    """The bytes of this stretch, line ends included."""

    def __len__(self) -> int:
        """How many lines there are, empty ones included."""
        return len(self.payloads)


class LineTooLongError(ValueError):
    """A line without end in sight within the limit; ``position`` is the byte it begins at."""

    def __init__(self, position: int) -> None:
        super().__init__(f"line at byte {position} is too long")
        self.position = position


def split_lines(data: bytes, position: int) -> Lines:
    """Split ``data``, which begins at byte ``position`` and ends with a line end."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_END)
    offsets = np.zeros(len(ends) + 1, np.int32)
    # Without the line ends every line begins as many bytes earlier as there are lines before it.
    offsets[1:] = ends - np.arange(len(ends))
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(data.replace(b"\n", b""))]
    parts = cast("pa.BinaryArray", pa.Array.from_buffers(pa.binary(), len(ends), buffers))
    positions = np.concatenate(([position], position + 1 + ends[:-1]))
    # One byte is looked for many times as fast as two.
    has_returns = b"\r" in data and b"\r\n" in data
    payloads = _without_carriage_returns(parts) if has_returns else parts
    return Lines(payloads, pa.array(positions, pa.int64()), position + len(data), data)


def last_line(data: bytes, position: int) -> Lines:
    """Take ``data`` as one line that will get no end."""
    return Lines(pa.array([data], pa.binary()), pa.array([position], pa.int64()), position + len(data), data)


class LineAssembler:
    """Keeps the unfinished last line between blocks."""

    def __init__(self, *, position: int, line_bytes_max: int) -> None:
        self.position = position
        """Byte behind the last finished line: where to resume."""
        self._line_bytes_max = line_bytes_max
        self._unfinished: list[bytes] = []
        self._unfinished_bytes = 0
        self._is_too_long = False

    @property
    def end(self) -> int:
        """Byte behind everything that was fed."""
        return self.position + self._unfinished_bytes

    @property
    def unfinished(self) -> bytes:
        """The last line as far as it is known."""
        return b"".join(self._unfinished)

    @property
    def unfinished_edge(self) -> bytes:
        """The last bytes of the unfinished line."""
        return self._unfinished[-1][-EDGE_BYTES:] if self._unfinished else b""

    def feed(self, block: bytes) -> Lines | None:
        """Add what follows in the file; the lines that end in it, if any.

        Raises LineTooLongError when the line at ``position`` is too long. Lines before one that is too long are
        returned first, and the error comes with the next call.
        """
        if self._is_too_long:
            raise LineTooLongError(self.position)
        cut = block.rfind(b"\n") + 1
        if not cut:
            self._keep(block)
            if self._is_too_long:
                raise LineTooLongError(self.position)
            return None
        lines = split_lines(b"".join((*self._unfinished, memoryview(block)[:cut])), self.position)
        index = _index_of_too_long(lines, self._line_bytes_max)
        if index == 0:
            raise LineTooLongError(self.position)
        self.drop_unfinished()
        if index is not None:
            lines = _first(lines, index, self.position)
        self.position = lines.end
        self._is_too_long = index is not None
        self._keep(block[cut:])
        return lines

    def give_up_unfinished(self) -> Lines | None:
        """Return the unfinished line as a line, if there is one."""
        if not self._unfinished_bytes:
            return None
        lines = last_line(self.unfinished, self.position)
        self.drop_unfinished()
        self.position = lines.end
        return lines

    def drop_unfinished(self) -> None:
        """Forget the unfinished line; the file is to be read again from ``position``."""
        self._unfinished = []
        self._unfinished_bytes = 0

    def _keep(self, block: bytes) -> None:
        if not block:
            return
        self._unfinished.append(block)
        self._unfinished_bytes += len(block)
        # One more byte may be the "\r" of a line end that is not here yet.
        self._is_too_long |= self._unfinished_bytes > self._line_bytes_max + 1


def _index_of_too_long(lines: Lines, line_bytes_max: int) -> int | None:
    lengths = pc.binary_length(lines.payloads)
    if pc.max(lengths).as_py() <= line_bytes_max:
        return None
    return int(np.argmax(lengths.to_numpy() > line_bytes_max))


def _first(lines: Lines, count: int, position: int) -> Lines:
    end = lines.positions[count].as_py()
    return Lines(lines.payloads[:count], lines.positions[:count], end, lines.raw[: end - position])


def _without_carriage_returns(lines: pa.BinaryArray) -> pa.BinaryArray:
    """Take one carriage return from the end of each line that has one."""
    has_one = pc.ends_with(lines, "\r")
    return cast("pa.BinaryArray", pc.if_else(has_one, pc.binary_slice(lines, 0, -1), lines))
