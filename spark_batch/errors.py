"""Errors of a conversion, by recovery. A bad record is never an error: it is a rejected outcome."""

from __future__ import annotations

import errno
from collections.abc import Iterator

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FULL_IN_JVM = ("java.io.IOException: No space left on device", "java.io.IOException: Disk quota exceeded")


class ConversionError(Exception):
    """A whole micro-batch could not be converted."""


class ConversionRetriable(ConversionError):
    """Spark was lost, restarted or too slow: the same micro-batch may be given again."""


class SparkUnavailable(ConversionRetriable):
    """Spark does not start, or the disk it works on is full: no micro-batch is to blame."""


class ConversionFatal(ConversionError):
    """The plan or the job is wrong: the same micro-batch would fail again."""


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that led to it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def is_disk_full(error: BaseException) -> bool:
    """Whether there was no room for a file, here or where Spark runs; the connection is not broken by that."""
    return any(
        seen.errno in _FULL if isinstance(seen, OSError) else any(words in str(seen) for words in _FULL_IN_JVM)
        for seen in chain(error)
    )
