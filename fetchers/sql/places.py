"""Source partitions and offsets in the form of Confluent's JDBC source, so that its topics are taken over.

A table is ``{"protocol": "1", "table": full name}``; partitions of its older versions, without ``protocol``, are read
too. Offsets are ``{"incrementing": id}`` and ``{"timestamp": ms, "timestamp_nanos": nanoseconds of the second}``
(``TimestampIncrementingOffset`` of ``kafka-connect-jdbc``). Ours have besides ``at``, the timestamp as the database
writes it, which no zone and no rounding can move, and ``after``, the key of the last row, by which rows of one
timestamp are told apart, with ``after_order``, which stands for the order that keys had then. A query's partition has
a hash of its text: another query begins anew. The parts of a first load have partitions of their own
(``fetchers.sql.load``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from fetchers.sdk import FetchContext, Offset, Partition, Scalar
from fetchers.sql.database import Table

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HASH_DIGITS = 16


def table_partition(full_name: str) -> Partition:
    """Of a table."""
    return {"protocol": "1", "table": full_name}


def stored_offset(context: FetchContext, table: Table) -> Offset:
    """A table's own offset, else one that another connector, or an older version of it, has left; else empty."""
    found = context.offset_of(table_partition(table.full_name))
    older = [table_partition(name) for name in dict.fromkeys(reversed(table.names)) if name != table.full_name]
    for partition in (*older, {"table": table.full_name}, {"table": table.name}):
        found = found or context.offset_of(partition)
    return found


OTHERS_QUERY: Partition = {"query": "query"}
"""Of Confluent's connector, whatever the query is."""


def stored_query_offset(context: FetchContext, query: str) -> Offset:
    """A query's own offset; that of Confluent's connector, while no query was read here yet; else empty."""
    found = context.offset_of(query_partition(query))
    queries = [
        dict(partition) for partition, offset in context.offsets.items() if offset and "query" in dict(partition)
    ]
    return found if any(query != OTHERS_QUERY for query in queries) else context.offset_of(OTHERS_QUERY)


def forgotten_with(partition: Partition, stored: Sequence[Partition], *, database: str) -> list[Partition]:
    """Partitions that ``stored_offset`` and ``stored_query_offset`` would turn to; the parts of a table's first load.

    ``database``: of the URL, which names of tables may begin with.
    """
    own = dict(partition)
    if "query" in own:
        return [OTHERS_QUERY] if OTHERS_QUERY in stored else []
    name = own.get("table")
    if own != {"protocol": "1", "table": name}:  # an older form, or a part, which a person names for itself
        return []
    full = {str(name), f"{database}.{name}"}
    return [other for other in stored if (told := str(other.get("table"))) in full or f"{name}".endswith(f".{told}")]


def query_partition(query: str) -> Partition:
    """Of a query."""
    return {"query": hashlib.sha256(" ".join(query.split()).encode()).hexdigest()[:_HASH_DIGITS]}


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading stands: behind this row."""

    incrementing: int | None = None
    at: str | None = None
    """Timestamp of the last row, as the database writes it."""
    after: tuple[str, ...] | None = None
    """Key columns of the last row, as the database writes them; None: all rows of its timestamp were read."""
    order: str | None = None
    """In which order keys were when this one was the last; None: an earlier release has not said."""

    @classmethod
    def read(cls, offset: Mapping[str, Any], *, zone: str | None) -> Place:
        """``zone``: of timestamp columns without one; None where they have one (or it is UTC)."""
        number, at, after = offset.get("incrementing"), offset.get("at"), offset.get("after")
        order = offset.get("after_order")
        if at is None and offset.get("timestamp") is not None:
            at = written(int(offset["timestamp"]), int(offset.get("timestamp_nanos") or 0), zone=zone)
        return cls(
            None if number is None or int(number) == -1 else int(number),
            None if at is None else str(at),
            None if after is None else tuple(json.loads(str(after))),
            None if order is None else str(order),
        )

    def offset(self, *, zone: str | None) -> Offset:
        """What is stored: Confluent's names, and ours."""
        found: dict[str, Scalar] = {}
        if self.incrementing is not None:
            found["incrementing"] = self.incrementing
        if self.at is not None:
            found |= instant(self.at, zone=zone)
            found["at"] = self.at
        if self.after is not None:
            found["after"] = json.dumps(self.after, ensure_ascii=False)
        if self.order is not None:
            found["after_order"] = self.order
        return found


def written(millis: int, nanos: int, *, zone: str | None) -> str:
    """An instant of Confluent's offset, as databases take it: ``2024-01-31 12:00:00.123456``, in the column's zone."""
    moment = EPOCH + timedelta(seconds=millis // 1000, microseconds=max(nanos // 1000, millis % 1000 * 1000))
    if zone is not None:
        moment = moment.astimezone(ZoneInfo(zone))
    return moment.replace(tzinfo=None).isoformat(" ", "microseconds")


def instant(at: str, *, zone: str | None) -> dict[str, int]:
    """Confluent's two numbers for a timestamp as a database writes it; none where it is outside of Python's years."""
    try:
        moment = datetime.fromisoformat(at.strip("'"))
    except ValueError:
        return {}
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC if zone is None else ZoneInfo(zone))
    passed = moment - EPOCH
    seconds, micros = divmod(passed // timedelta(microseconds=1), 1_000_000)
    return {"timestamp": seconds * 1000 + micros // 1000, "timestamp_nanos": micros * 1000}


def shifted(at: str, millis: int) -> str | None:
    """So much later than a timestamp as a database writes it; None outside of Python's years, and of a number."""
    if "-" not in at:
        return None
    try:
        return (datetime.fromisoformat(at.strip("'")) + timedelta(milliseconds=millis)).isoformat(" ")
    except (ValueError, OverflowError):
        return None


def is_before(clock: str, at: str) -> bool:
    """Whether a clock has not passed a timestamp as a database writes it; not where that cannot be told."""
    try:
        return datetime.fromisoformat(clock) <= datetime.fromisoformat(at.strip("'"))
    except (ValueError, TypeError):
        return False


CLOCKS_GO_BACK_MINUTES_MAX = 180
"""Antarctica/Casey has gone back so far; most zones go back an hour."""


def earliest_to_come(moment: datetime, zone: ZoneInfo) -> datetime:
    """The earliest local time, without a zone, that a clock shows at an instant or later.

    Before a clock is set back, as in autumn, that is not the time that it shows: an hour will come twice.
    """
    local = moment.astimezone(zone)
    if (moment + timedelta(minutes=CLOCKS_GO_BACK_MINUTES_MAX)).astimezone(zone).utcoffset() == local.utcoffset():
        return local.replace(tzinfo=None)
    minute = moment.replace(second=0, microsecond=0)
    later = [minute + timedelta(minutes=count) for count in range(1, CLOCKS_GO_BACK_MINUTES_MAX + 1)]
    return min(each.astimezone(zone).replace(tzinfo=None) for each in (moment, *later))


def texts(values: Sequence[Any]) -> tuple[str, ...]:
    """Key columns of a row, as the database has written them."""
    return tuple(str(value) for value in values)
