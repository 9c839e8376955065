"""Config of ``FileStreamSource``: Kafka Connect's three keys, and what headrace adds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fetchers.sdk import FetcherConfig, Importance, Key

MIB = 1 << 20
_FILE = "File"


def _at_least_one(lines: int) -> int:
    """A range of its own: Kafka Connect's definition of ``batch.size`` has none."""
    if lines < 1:
        message = "Value must be at least 1"
        raise ValueError(message)
    return lines


def _own(order: int) -> Key:
    """Where clients show what Kafka Connect's connector does not have."""
    return Key(importance=Importance.LOW, group=_FILE, order=order)


class FileStreamConfig(FetcherConfig):
    """Lines of a file, of every file that matches a pattern, or of standard input."""

    file: Annotated[str | None, Key(importance=Importance.HIGH, example="/var/log/app/*.log", is_path=True)] = None
    """Source filename. If not specified, the standard input will be used.

    May be a pattern (``*``, ``?``, ``[…]``, ``**`` for folders in between); each matching file is then a source
    partition of its own; files that appear later are picked up, and renamed ones known. A copy that ``copytruncate``
    leaves under a matching name, or an archive of what was read, is a file of its own, and its lines come again: give a
    pattern that matches no copies. A file of literally that name goes first. A matching file whose name is no UTF-8 is
    passed over with a warning: no source offset can name it.

    A file that was rotated while nobody read is found in its folder and read to its end. If more rotations followed,
    the files in between are read too where their names and times of modification tell their order (``app.log.2``,
    ``app.log.1``; ``app.log-20260131``, ``app.log-20260201``); otherwise a warning names them. What
    was compressed or moved to another folder before it was read does not come, nor what ``copytruncate`` cut off; a
    pattern that matches the rotated names needs no such finding.
    """
    batch_size: Annotated[int, AfterValidator(_at_least_one), Key(importance=Importance.LOW)] = 2_000
    """Lines a page should hold at least, where the file has them; a page is at most four ``file.page.bytes``."""
    poll_interval_ms: Annotated[int, Field(ge=1), _own(1)] = 500
    """Milliseconds between two looks at files that are read to their end."""
    file_start: Annotated[Literal["beginning", "end"], _own(2)] = "beginning"
    """Where to begin in files that are there when the connector starts for the first time.

    ``end`` is behind the last finished line. Files that appear later are read from their beginning, also where the
    first start found no file at all: it stores position 0 for ``file`` as configured. The first start is over when
    every file found could be opened: the positions of all of them are stored at once.
    """
    file_last_line: Annotated[Literal["wait", "deliver"], _own(3)] = "wait"
    """What to do with a last line that has no line end: wait for it, or deliver it after some idleness."""
    file_last_line_idle_ms: Annotated[int, Field(ge=1), _own(4)] = 5_000
    """Milliseconds without growth after which ``file.last.line=deliver`` gives up the last line as it is."""
    file_rotate_wait_ms: Annotated[int, Field(ge=0), _own(5)] = 1_000
    """Milliseconds a file that was renamed or deleted must be without growth before its successor is read."""
    file_page_bytes: Annotated[int, Field(ge=1, le=256 * MIB), _own(6)] = MIB
    """Bytes read at a time; a page holds the lines that end in them."""
    file_line_bytes_max: Annotated[int, Field(ge=1, le=1024 * MIB), _own(7)] = 16 * MIB
    """Longest line in bytes. A longer one fails the task, which names its file and position."""
