"""Where reading stands, as Debezium's offsets say it (``PostgresOffsetContext``), and a little more of our own.

Debezium's keys: ``lsn_commit``, the end of the last transaction that is delivered as a whole; ``lsn_proc`` and ``lsn``,
the last change; ``lsn_events_processed``, how many at its position; ``txId``, ``ts_usec`` of it; ``snapshot`` and
``last_snapshot_record`` while the tables are read.
Ours tell a place inside a transaction exactly, and say what a page of one table among several has delivered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fetchers.sdk import Offset


@dataclass(frozen=True)
class Origin:
    """Of which log a position is, as far as that is known: what is stored beside it, under keys of our own."""

    log_of: str = ""
    """The server's system identifier; empty: not known."""
    timeline: int = 0
    """0: not known."""
    begin: int = 0
    """Of the timeline: two servers that took over from one primary may give theirs the same number."""

    def of(self, offset: Offset) -> Offset:
        """An offset with this in it."""
        if not self.log_of:
            return offset
        told = {"timeline": self.timeline, "timeline_begin": self.begin} if self.timeline else {}
        return {**offset, "log_of": self.log_of, **told}


def read_origin(offset: Offset) -> Origin:
    """Of a stored offset."""
    return Origin(str(offset.get("log_of") or ""), _number(offset, "timeline"), _number(offset, "timeline_begin"))


@dataclass(frozen=True)
class Place:
    """A place in the log: after the transaction that ended at ``commit``, and ``events`` changes of the next one."""

    commit: int
    events: int = 0
    seen: int = 0
    """Debezium's own place inside the next transaction: changes up to this position are delivered; 0: none."""
    done: frozenset[int] = frozenset()
    """Relations whose changes are delivered further, up to ``until`` and ``until_events`` of the transaction after."""
    until: int = 0
    until_events: int = 0
    seen_events: int = 0
    """Of the changes at ``seen``, which rows of one COPY share, how many are delivered; 0: all."""

    @property
    def start(self) -> int:
        """From where on the server is asked for its log."""
        return self.commit

    @property
    def reached(self) -> int:
        """Up to where anything of whole transactions is delivered."""
        return max(self.commit, self.seen, self.until)

    @property
    def is_inside(self) -> bool:
        """Whether part of a transaction is delivered."""
        return bool(self.events or self.until_events or self.seen)

    def offset(self, *, lsn: int = 0, transaction: int | None = None, committed_us: int | None = None) -> Offset:
        """For a page after which reading goes on here."""
        found: dict[str, Any] = {
            "lsn": lsn or self.commit,
            "lsn_proc": lsn or self.commit,
            "lsn_commit": self.commit,
            "txId": transaction,
            "ts_usec": committed_us,
        }
        if self.events:
            found["events"] = self.events
        if self.done:
            done = ",".join(map(str, sorted(self.done)))
            found |= {"tables_done": done, "tables_until": self.until, "tables_until_events": self.until_events}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class SnapshotPlace:
    """A place in a snapshot: the log goes on from ``log``; tables before ``table`` are read."""

    log: int
    table: str = ""
    """``schema.table`` that is being read; empty: none is begun."""
    keys: tuple[str, ...] = ()
    """Texts of the key of the last row that is delivered, and ``order_text`` of the key; empty: none."""

    @property
    def start(self) -> int:
        """From where on the server is asked for its log."""
        return self.log

    @property
    def reached(self) -> int:
        """The same: the rows are as they were there."""
        return self.log

    def offset(self) -> Offset:
        """For a page after which the snapshot goes on here."""
        found: dict[str, Any] = {"lsn": self.log, "snapshot": True, "last_snapshot_record": False}
        if self.table:
            found |= {"snapshot_log": self.log, "snapshot_table": self.table}
        if self.keys:
            found["snapshot_key"] = json.dumps(self.keys)
        return found


def read_place(offset: Offset) -> Place | SnapshotPlace | None:
    """Of a stored offset, ours or Debezium's; None: there is none. Raises ``ValueError`` for what is neither.

    Of Debezium's snapshots that were not finished nothing is known but that they were begun: they are made anew.
    """
    if not offset:
        return None
    if offset.get("snapshot") not in (None, False, "false", "FALSE") and not offset.get("last_snapshot_record"):
        if "snapshot_log" not in offset:
            return SnapshotPlace(_number(offset, "lsn")) if set(offset) <= _OWN_FIRST else None
        return SnapshotPlace(
            _number(offset, "snapshot_log"),
            str(offset.get("snapshot_table") or ""),
            tuple(map(str, json.loads(str(offset.get("snapshot_key") or "[]")))),
        )
    commit = _number(offset, "lsn_commit")
    seen = max(_number(offset, "lsn_proc"), 0)
    if not commit and not seen and not _number(offset, "lsn"):
        message = 'expected an offset such as {"lsn_commit": 24023128}'
        raise ValueError(message)
    done = frozenset(int(part) for part in str(offset.get("tables_done") or "").split(",") if part)
    events = _number(offset, "events")
    return Place(
        commit or seen or _number(offset, "lsn"),
        events,
        seen if commit and seen > commit and not events and not done else 0,
        done,
        _number(offset, "tables_until"),
        _number(offset, "tables_until_events"),
        _number(offset, "lsn_events_processed"),
    )


_OWN_FIRST = {"lsn", "snapshot", "last_snapshot_record", "log_of", "timeline", "timeline_begin"}


def _number(offset: Mapping[str, Any], key: str) -> int:
    value = offset.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        message = f"{key} is expected to be a position in the log, a whole number"
        raise ValueError(message)
    return value


def read_position(text: str) -> int:
    """A position that PostgreSQL has written."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def position_text(position: int) -> str:
    """A position as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
