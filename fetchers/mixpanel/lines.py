r"""A body cut into lines, on the byte ``\n`` alone and before anything is decoded.

Work is done for blocks of about a mebibyte, never for single lines: a block becomes one Arrow column. The last line
that is not blank is held back until more comes, because only the end of the body tells what it is: a record, half a
record, or the words ``terminated early``, with which the export says that it gave up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.mixpanel.brackets import Brackets
from fetchers.sdk import Rejection, Retriable

BLOCK_BYTES = 1024 * 1024
LINES_MAX = 8_192
"""Lines of one ``Lines``."""
KEPT_BYTES = 1024 * 1024
"""What is kept of a line beyond the limit, at most."""
TERMINATED_EARLY = b"terminated early"
_BLANKS = b"\xef\xbb\xbf \t\r\n"
"""What may stand before a body: a byte order mark, and blanks."""
_LINE_FEED = 10
_CARRIAGE_RETURN = 13

Numbers = npt.NDArray[np.int64]


class UnfinishedLineError(Retriable):
    """The transfer ended well, but the last line has no end and is not whole: the body was cut at its source."""

    def __init__(self, number: int, beginning: bytes) -> None:
        super().__init__(f"the body stops in the middle of line {number}")
        self.beginning = beginning


@dataclass(frozen=True, slots=True)
class Lines:
    """Records of a body, in its order."""

    payloads: pa.Array[Any]
    numbers: Numbers
    """Line number of each record in the body, from 1."""
    rejections: tuple[Rejection, ...] = ()

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.payloads)

    @property
    def last_number(self) -> int:
        """Number of the last line."""
        return int(self.numbers[-1])


@dataclass(slots=True)
class _Oversized:
    """A line beyond the limit, whose end has not come yet."""

    head: bytes
    size: int = 0
    brackets: Brackets = field(default_factory=Brackets)

    def feed(self, data: bytes) -> None:
        """Hear the next bytes of the line."""
        self.size += len(data)
        self.brackets.feed(data)


@dataclass(slots=True)
class LineCutter:
    """Cuts the chunks of one body; holds a block and one line, never more."""

    line_bytes_max: int
    block_bytes: int = BLOCK_BYTES
    _parts: list[bytes] = field(default_factory=list)
    _size: int = 0
    _wanted: int = 0
    _line: int = 1
    """Number of the first line that is held."""
    _oversized: _Oversized | None = None
    _has_begun: bool = False

    def feed(self, chunk: bytes) -> Iterator[Lines]:
        """Records that are complete by now. Raises Retriable where a web page comes, or nothing but blank lines."""
        self._begin(chunk)
        if self._oversized is not None:
            line_end = chunk.find(b"\n")
            if line_end < 0:
                self._oversized.feed(chunk)
                return
            self._oversized.size += line_end
            yield self._rejected()
            chunk = chunk[line_end + 1 :]
        self._parts.append(chunk)
        self._size += len(chunk)
        if self._size < max(self._wanted, self.block_bytes):
            return
        data = b"".join(self._parts)
        cut = _safe_cut(data)
        if cut:
            yield from self._cut(data[:cut])
        rest = data[cut:]
        self._hold(rest)
        if len(rest) <= self.line_bytes_max:
            return
        line_end = rest.find(b"\n")
        if line_end < 0:
            self._oversized = _Oversized(rest[: _kept_bytes(self.line_bytes_max)])
            self._oversized.feed(rest)
            self._hold(b"")
        elif len(rest) - line_end > self.line_bytes_max:
            raise Retriable(f"the body has nothing but blank lines for {len(rest) - line_end} bytes")

    def finish(self) -> Iterator[Lines]:
        """The last records, after a clean end of the transfer.

        Raises Retriable when the body says ``terminated early``, and ``UnfinishedLineError`` when its last line has
        no end and is no JSON; of one beyond the limit the brackets tell.
        """
        if self._oversized is not None:
            if not self._oversized.brackets.are_closed:
                raise UnfinishedLineError(self._line, self._oversized.head)
            yield self._rejected()
            return
        data = b"".join(self._parts)
        last = data.rstrip(b"\r\n").rpartition(b"\n")[2].strip()
        if last == TERMINATED_EARLY:
            raise Retriable("the body ends with 'terminated early': the export gave up")
        if last and not data.endswith(b"\n") and not _is_json(last):
            raise UnfinishedLineError(self._line + data.count(b"\n"), last)
        self._hold(b"")
        if data:
            yield from self._cut(data)

    def _begin(self, chunk: bytes) -> None:
        """Look at the first byte that is not blank: no event begins as a web page does."""
        if self._has_begun:
            return
        first = chunk.lstrip(_BLANKS)[:1]
        if first == b"<":
            raise Retriable("the body is a web page (HTML) and no export, as from a proxy or a login wall")
        self._has_begun = bool(first)

    def _hold(self, rest: bytes) -> None:
        self._parts = [rest] if rest else []
        self._size = len(rest)
        self._wanted = len(rest) + self.block_bytes  # a long line is not searched again for every chunk of it

    def _rejected(self) -> Lines:
        """The line beyond the limit, whose end is known now."""
        if self._oversized is None:
            raise ValueError("no line is beyond the limit")
        line, self._oversized = self._oversized, None
        number = np.array([self._line], dtype=np.int64)
        self._line += 1
        message = _too_large(line.size, self.line_bytes_max)
        return Lines(pa.array([line.head], pa.binary()), number, (Rejection(0, "too_large", message),))

    def _cut(self, data: bytes) -> Iterator[Lines]:
        """Whole lines as columns of at most ``LINES_MAX``."""
        payloads, numbers, count = _split(data, self._line)
        self._line += count
        for start in range(0, len(payloads), LINES_MAX):
            part = payloads.slice(start, LINES_MAX)
            yield _limited(Lines(part, numbers[start : start + LINES_MAX]), self.line_bytes_max)


def _safe_cut(data: bytes) -> int:
    """Where complete lines end that something other than blank lines follows; 0 when there is no such place."""
    end = len(data.rstrip(b"\r\n"))
    return data.rfind(b"\n", 0, end) + 1 if end else data.rfind(b"\n") + 1


def _split(data: bytes, first_line: int) -> tuple[pa.Array[Any], Numbers, int]:
    """Lines that are not blank, their numbers, and the count of all lines."""
    line_ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_FEED)
    if not data.endswith(b"\n"):
        line_ends = np.append(line_ends, len(data))
    count = len(line_ends)
    text = data.replace(b"\n", b"")
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = line_ends - np.arange(count)
    payloads = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text)])
    numbers = np.arange(first_line, first_line + count, dtype=np.int64)
    sizes = np.diff(offsets)
    is_record = sizes > 0
    ones = np.flatnonzero(sizes == 1)
    if len(ones):
        is_record[ones] = np.frombuffer(text, np.uint8)[offsets[ones]] != _CARRIAGE_RETURN
    if not is_record.all():
        payloads, numbers = payloads.filter(pa.array(is_record)), numbers[is_record]
    return payloads, numbers, count


def _limited(lines: Lines, line_bytes_max: int) -> Lines:
    """The same lines, those beyond the limit cut and marked."""
    sizes = pc.binary_length(cast("pa.BinaryArray", lines.payloads)).to_numpy()
    beyond = np.flatnonzero(sizes > line_bytes_max)
    if not len(beyond):
        return lines
    beyond_set = set(beyond.tolist())
    values = [
        value[: _kept_bytes(line_bytes_max)] if value is not None and index in beyond_set else value
        for index, value in enumerate(lines.payloads.to_pylist())
    ]
    rejections = tuple(
        Rejection(int(index), "too_large", _too_large(int(sizes[index]), line_bytes_max)) for index in beyond
    )
    return Lines(pa.array(values, pa.binary()), lines.numbers, rejections)


def _kept_bytes(line_bytes_max: int) -> int:
    return min(KEPT_BYTES, line_bytes_max)


def _too_large(size: int, limit: int) -> str:
    return f"the line has {size} bytes, over mixpanel.line.bytes.max={limit}; its first {_kept_bytes(limit)} are kept"


def _is_json(line: bytes) -> bool:
    """Whether it is whole; what is odd in it (NaN, bad UTF-8, endless digits) is for conversion to judge."""
    try:
        json.loads(line.decode("utf-8", "replace"), strict=False, parse_int=str)
    except (ValueError, RecursionError):
        return False
    return True
