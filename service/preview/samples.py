"""Samples of JSON records: where one comes from, and those from files, which many have before they have a connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

WHOLE_BYTES_MAX = 256 << 20
"""An array, or one object over several lines, is read at once, up to this size."""
LINE_BYTES_MAX = 16 << 20


class SampleError(ValueError):
    """The file cannot be read as a sample; the message says why, and what to try."""


class SampleToldError(Exception):
    """There is no sample, and why has been printed; carries the exit code."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class SampleSource:
    """Where a sample comes from: a connector's file, a file of records, or a topic."""

    name: str
    worker: Path | None = None
    """Worker's file of a connector."""
    access: Mapping[str, Any] = field(default_factory=dict)
    """Of a topic: what ``service.cli.access.AccessOptions`` is made of."""


def file_payloads(path: Path) -> Iterator[bytes]:
    """The JSON values of a file: one a line, the items of an array, or a single object over several lines.

    Whether a line is JSON is for who takes it; blank ones are left out. Raises SampleError.
    """
    try:
        with path.open("rb") as file:
            yield from _payloads(file, path)
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        raise SampleError(message) from error


def _payloads(file: BinaryIO, path: Path) -> Iterator[bytes]:
    first = b""
    while not first.strip() and (line := _line(file, path)):
        first = line
    if first.lstrip().startswith(b"["):
        yield from _items(first + _rest(file, path), path)
        return
    if first.lstrip().startswith(b"{") and not _is_json(first):
        whole = first + _rest(file, path)
        if _is_json(whole):
            yield whole
            return
        yield from (line for line in whole.split(b"\n") if line.strip())
        return
    while first:
        if first.strip():
            yield first.rstrip(b"\r\n")
        first = _line(file, path)


def _line(file: BinaryIO, path: Path) -> bytes:
    line = file.readline(LINE_BYTES_MAX + 1)
    if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
        message = f"{path} has a line of more than {LINE_BYTES_MAX:,} bytes: expected one record a line, or an array"
        raise SampleError(message)
    return line


def _rest(file: BinaryIO, path: Path) -> bytes:
    rest = file.read(WHOLE_BYTES_MAX + 1)
    if len(rest) > WHOLE_BYTES_MAX:
        message = f"{path} is too large to be read at once: expected one record a line"
        raise SampleError(message)
    return rest


def _items(text: bytes, path: Path) -> Iterator[bytes]:
    try:
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{path} begins as a JSON array and is none: {error}"
        raise SampleError(message) from error
    yield from map(bytes, items)


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
