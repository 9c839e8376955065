"""What is noted beside a sink's file: how long it was, what is being appended, and which records it holds.

The note is written *before* the lines are appended, with their length and checksum. So whoever comes next, after
whatever kill, can tell: the lines stand whole at the end (then their offsets count as written), or in part (then the
part is cut off). Nothing that is not such a part is ever cut off: a file may be rotated, removed or written to by
others at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from service.sinks.batch import Partition
from service.sinks.contract import Fatal

_CHUNK_BYTES = 1 << 20
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Written:
    """What is known of one partition of one connector."""

    next_offset: int
    """Everything before stands in the file, but for what is refused."""
    committed: int | None = None
    """The group's offset as last heard of: a lower one later means that someone has reset it."""
    refused: tuple[int, ...] = ()
    """Offsets below ``next_offset`` of which the file has no line, and which may have no dead letter yet."""


Known = Mapping[tuple[str, str, int], Written]
"""By connector, topic and partition."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note: the file as it was, and what was about to be appended."""

    length: int = 0
    appended: int = 0
    """Bytes."""
    checksum: int = 0
    before: Known = field(default_factory=dict)
    after: Known = field(default_factory=dict)
    """Holds once the lines stand in the file."""


def note_path(file: Path) -> Path:
    """Where the note of a file stands: hidden, beside it."""
    return file.with_name(f".{file.name}.headrace")


def read_note(file: Path) -> Note | None:
    """The note of a file; None where there is none. Raises Fatal for one that is no note."""
    path = note_path(file)
    try:
        return _note(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Fatal(f"{path} is not a note of what {file} holds: remove it to begin anew") from error


def _note(found: Any) -> Note:
    if found["version"] != _VERSION:
        raise ValueError(found["version"])
    return Note(
        length=found["length"],
        appended=found["appended"],
        checksum=found["checksum"],
        before=_known(found["before"]),
        after=_known(found["after"]),
    )


def write_note(file: Path, note: Note) -> None:
    """Replace the note as a whole, durably. Raises OSError."""
    path = note_path(file)
    text = json.dumps(
        {
            "version": _VERSION,
            "length": note.length,
            "appended": note.appended,
            "checksum": note.checksum,
            "before": _entries(note.before),
            "after": _entries(note.after),
        }
    )
    fresh = path.with_name(f"{path.name}.new")
    # A link that somebody has put there must not lead the text anywhere else.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)
    _sync_folder(path.parent)


def settled(note: Note | None, descriptor: int) -> Known:
    """What the open file holds by its note; cuts off lines that were appended in part. Raises OSError."""
    if note is None:
        return {}
    size = os.fstat(descriptor).st_size
    if size < note.length:
        return {}  # emptied or replaced since: nothing is known to be in it
    if not note.appended or _checksum(descriptor, note.length, note.appended) == note.checksum:
        return {**note.before, **note.after}
    if note.length < size <= note.length + note.appended:
        os.ftruncate(descriptor, note.length)
    return note.before


def with_committed(
    known: Known, connector: str, offsets: Mapping[Partition, int]
) -> dict[tuple[str, str, int], Written]:
    """What is known, with the group's offsets as they are now; the dead letters before them are written."""
    changed = {}
    for (topic, number), offset in offsets.items():
        written = known.get((connector, topic, number))
        if written is not None:
            refused = tuple(each for each in written.refused if each >= offset)
            changed[connector, topic, number] = replace(written, committed=offset, refused=refused)
    return {**known, **changed}


def _checksum(descriptor: int, begin: int, length: int) -> int | None:
    """Of a part of the file; None where it is shorter."""
    total, at, end = 0, begin, begin + length
    while at < end:
        piece = os.pread(descriptor, min(_CHUNK_BYTES, end - at), at)
        if not piece:
            return None
        total = zlib.crc32(piece, total)
        at += len(piece)
    return total


def checksum_of(pieces: list[memoryview]) -> int:
    """Of lines that are about to be appended."""
    total = 0
    for piece in pieces:
        total = zlib.crc32(piece, total)
    return total


def _known(entries: list[dict[str, Any]]) -> dict[tuple[str, str, int], Written]:
    return {
        (entry["connector"], entry["topic"], entry["partition"]): Written(
            entry["next_offset"], entry["committed"], tuple(entry.get("refused", ()))
        )
        for entry in entries
    }


def _entries(known: Known) -> list[dict[str, Any]]:
    return [
        {"connector": connector, "topic": topic, "partition": number, **asdict(written)}
        for (connector, topic, number), written in sorted(known.items())
    ]


def _sync_folder(folder: Path) -> None:
    with _opened(folder) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
