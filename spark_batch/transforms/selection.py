"""What a `SELECT … FROM record` of a config makes of records of one type, as Spark's analysis has said it.

The analysis needs a JVM, plans are pure: so it is made where Spark is (`rules.select`), and remembered here by the text
and the record's type. Both together decide it, for one version of Spark; nothing that is remembered can grow stale.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from spark_batch.avro_types import AvroType, Record

KNOWN_MAX = 4_096
"""Selections remembered; the least recently used one goes first."""


@dataclass(frozen=True)
class SelectedField:
    """One field of the result: taken from the record as it is (`path`), or made by an expression (`type`)."""

    name: str
    path: tuple[str, ...] | None
    type: AvroType | None
    is_nullable: bool


@dataclass(frozen=True)
class Selection:
    """The fields in their order, and whether a `WHERE` chooses among the records."""

    fields: tuple[SelectedField, ...]
    has_where: bool


class SelectRefused(ValueError):
    """A text says what it may not say: what was found, and what would be allowed."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"{found} is not allowed; allowed: {expected}")
        self.found, self.expected = found, expected


class NotAnalysed(Exception):
    """Nobody has asked Spark about this text and this type yet; what comes behind it is not known either."""


_known: OrderedDict[tuple[str, Record], Selection | SelectRefused] = OrderedDict()
_lock = threading.Lock()


def selection(sql: str, record: Record) -> Selection | SelectRefused:
    """What the text makes of such records, or why it is refused; raises NotAnalysed."""
    with _lock:
        found = _known.get((sql, record))
        if found is None:
            raise NotAnalysed(sql)
        _known.move_to_end((sql, record))
        return found


def remember(sql: str, record: Record, found: Selection | SelectRefused) -> None:
    """For `selection`."""
    with _lock:
        _known[sql, record] = found
        while len(_known) > KNOWN_MAX:
            _known.popitem(last=False)
