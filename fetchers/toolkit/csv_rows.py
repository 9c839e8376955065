"""Rows of CSV (RFC 4180) as JSON objects of texts; a row that cannot be one stays as it came, with the reason.

One bad row must not keep the thousand good ones around it from passing: it is a dead letter of its own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from fetchers.sdk.errors import Fatal, Retriable
from fetchers.sdk.page import Rejection
from fetchers.toolkit import slicing

csv.field_size_limit(2**31 - 1)  # Python's own limit, 128 KiB, is for the process; the answer has a limit already

_CUT = "unexpected end of data"
"""What Python's reader says of a quoted field without end."""
_QUOTED = "quotation marks only around whole fields, and doubled inside of them"
_Row: TypeAlias = "tuple[list[str] | csv.Error, int, int]"
"""Fields, or why there are none, the index of the first line and of the one after the last."""


@dataclass(frozen=True, slots=True)
class CsvRows:
    """The rows of one body after the first, in their order."""

    records: Sequence[bytes]
    """A JSON object for each row; the row's own bytes, without its line end, where there is a rejection for it."""
    rejections: tuple[Rejection, ...]
    """Rows of another width than the first, with bytes that are no UTF-8, or with stray quotation marks in one line."""


def csv_rows(body: bytes) -> CsvRows:
    """Rows named by the first one.

    Raises Retriable where a quoted field has no end or the first row cannot be read, Fatal where the first row is not
    UTF-8 or names a column twice. A stray quotation mark spoils the row of its line alone; Fatal is raised where a
    field went on over several lines before it: whether they are one bad row or many good ones cannot be told.
    """
    # Bytes that are no UTF-8 pass through the reader, each as a surrogate that no JSON text can hold.
    text = body.removeprefix(slicing.BYTE_ORDER_MARK).decode("utf-8", "surrogateescape")
    lines = list(io.StringIO(text, newline=""))
    rows = _rows(lines)
    names = _names(next(rows, None))
    records: list[bytes] = []
    rejections: list[Rejection] = []
    for row, first, end in rows:
        if isinstance(row, csv.Error) and end - first > 1:
            raise _swallowed(first + 1, end)
        made = _record(row, names, index=len(records), line=first + 1)
        if isinstance(made, Rejection):
            rejections.append(made)
            made = _raw(lines[first:end])
        records.append(made)
    return CsvRows(records, tuple(rejections))


def _rows(lines: Sequence[str]) -> Iterator[_Row]:
    """Rows that are not blank. Raises Retriable where the last one is cut off."""
    reader = csv.reader(lines, strict=True)
    while True:
        first = reader.line_num
        try:
            row = next(reader, None)
        except csv.Error as error:
            if str(error) == _CUT:
                message = f"the CSV ends inside of the quoted field that begins in line {first + 1}"
                raise Retriable(message) from error
            yield error, first, reader.line_num
            continue
        if row is None:
            return
        if row:
            yield row, first, reader.line_num


def _names(first: _Row | None) -> list[str]:
    names = [] if first is None else first[0]
    if isinstance(names, csv.Error):
        message = f"the CSV's first row cannot be read: {names}"
        raise Retriable(message)
    if len(set(names)) != len(names):
        message = "the CSV's first row names a column twice"
        raise Fatal(message)
    if not _is_text(names):
        message = "the CSV's first row is not UTF-8"
        raise Fatal(message)
    return names


def _record(row: list[str] | csv.Error, names: Sequence[str], *, index: int, line: int) -> bytes | Rejection:
    if isinstance(row, csv.Error):
        return Rejection(index, "malformed_json", f"line {line} of the CSV: expected {_QUOTED}")
    if len(row) != len(names):
        expected = f"{len(names)} fields, as many as in the first row, and found {len(row)}"
        return Rejection(index, "malformed_json", f"line {line} of the CSV: expected {expected}")
    try:
        return msgspec.json.encode(dict(zip(names, row, strict=True)))
    except UnicodeEncodeError:
        return Rejection(index, "invalid_utf8", f"line {line} of the CSV: expected UTF-8")


def _swallowed(first: int, last: int) -> Fatal:
    """After a stray opening mark all lines up to the next mark read like one field, as those of a long text do."""
    message = f"lines {first} to {last} of the CSV read like one row: expected {_QUOTED}; mend it at the source"
    return Fatal(message)


def _is_text(names: Sequence[str]) -> bool:
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return False
    return True


def _raw(lines: Sequence[str]) -> bytes:
    """The bytes of a row as they came, without the end of its last line."""
    return "".join(lines).encode("utf-8", "surrogateescape").removesuffix(b"\n").removesuffix(b"\r")
