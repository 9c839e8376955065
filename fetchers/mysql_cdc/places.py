"""Where reading stands: file, position and GTIDs of a log, and which tables of a segment or a snapshot are through.

Stored in Debezium's form (``file``, ``pos``, ``gtids``, ``ts_sec``, ``server_id``, ``snapshot``), so that its offsets
are taken over. ``pos`` is always the beginning of a transaction, because a server sends no table for what comes in the
middle of one. What is ours besides says how much behind it was delivered already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fetchers.sdk import Offset, Scalar

UUID_LETTERS = 36
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class GtidSet:
    """Transactions that were read: of MySQL ranges by server, of MariaDB the last one by domain."""

    text: str = ""

    def with_these(self, read: Iterable[tuple[str, int]]) -> GtidSet:
        """And these transactions. Their sources: MySQL's UUID of a server, or MariaDB's ``domain-server``."""
        sets: dict[str, list[tuple[int, int]]] = {}
        domains = {}
        for one in filter(None, (part.strip() for part in self.text.split(","))):
            name, colon, ranges = one.partition(":")
            if colon:
                sets[name.lower()] = [_bounds(text) for text in ranges.split(":")]
            else:
                domains[_domain(one)] = one
        for source, number in read:
            if len(source) != UUID_LETTERS:
                domains[_domain(source)] = f"{source}-{number}"
            elif (known := sets.setdefault(source, [])) and known[-1][1] + 1 == number:
                known[-1] = (known[-1][0], number)
            else:
                sets[source] = _joined([*known, (number, number)])
        written = [f"{name}:{_written(ranges)}" for name, ranges in sorted(sets.items())]
        return GtidSet(",".join([*written, *(domains[at] for at in sorted(domains))]))

    def ranges(self) -> dict[str, list[tuple[int, int]]]:
        """Of MySQL's: first and last numbers by the UUID of a server. Raises ``ValueError``."""
        found = {}
        for one in filter(None, (part.strip() for part in self.text.split(","))):
            name, _, ranges = one.partition(":")
            found[name.lower()] = [_bounds(text) for text in ranges.split(":")]
        return found


def _domain(text: str) -> int:
    return int(text.partition("-")[0])


def _bounds(text: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        message = f"{text} is no range of transactions"
        raise ValueError(message)
    return int(found[1]), int(found[2] or found[1])


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if made and begin <= made[-1][1] + 1:
            made[-1] = (made[-1][0], max(end, made[-1][1]))
        else:
            made.append((begin, end))
    return made


def _written(ranges: list[tuple[int, int]]) -> str:
    return ":".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in ranges)


@dataclass(frozen=True, slots=True)
class Place:
    """Where to go on. The beginning of a transaction, and what behind it is done."""

    file: str = ""
    position: int = 4
    gtids: GtidSet = field(default_factory=GtidSet)
    delivered: int = 0
    """Events up to this position are delivered; 0: none."""
    until: int = 0
    """Up to this position those of ``tables`` are as well."""
    tables: tuple[str, ...] = ()
    """Also the tables that a snapshot is through with."""
    events: int = 0
    """Of the transaction that begins here, so many events are delivered, by Debezium's count (``underway``)."""
    rows: int = 0
    """And so many rows of the next one."""
    table: str = ""
    """The table that a snapshot stands in; empty: it is between two."""
    keys: tuple[str, ...] = ()
    """Texts of the key of the last row of it that is delivered (``snapshot.KeyTexts``)."""
    is_snapshot: bool = False
    """A snapshot is under way; the log is to be read from here afterwards."""
    server_id: int = 0
    log_of: str = ""
    """The server whose files and positions these are: MySQL's UUID, MariaDB's number; empty: it was not stored."""
    is_by_gtids: bool = False
    """Another server was read before: the log is asked for by the GTIDs (``failover``)."""
    seconds: int = 0
    """When the database committed what was read last, by the log's clock, which has seconds."""
    prepared: tuple[tuple[str, Place], ...] = ()
    """XA transactions that are prepared here and not ended, by their xids: where each begins (``prepared``)."""
    is_unlisted: bool = False
    """Whether more may have been prepared before the log was begun, because the server did not list them."""

    @classmethod
    def read(cls, offset: Offset) -> Place | None:
        """Of a stored offset, ours or Debezium's; None where there is none. Raises ``ValueError``."""
        if not offset:
            return None
        file, position = offset.get("file"), offset.get("pos")
        if not isinstance(file, str) or not file or isinstance(position, bool) or not isinstance(position, int):
            message = 'expected {"file": "binlog.000001", "pos": 4}, with "gtids" where the server has them'
            raise ValueError(message)
        tables = str(offset.get("tables") or "")
        snapshot = offset.get("snapshot")
        return cls(
            file,
            position,
            GtidSet(str(offset.get("gtids") or "")),
            _number(offset.get("delivered")),
            _number(offset.get("until")),
            tuple(tables.split("\n")) if tables else (),
            _number(offset.get("event")),
            _number(offset.get("row")),
            str(offset.get("snapshot_table") or ""),
            tuple(map(str, json.loads(str(offset.get("snapshot_key") or "[]")))),
            is_snapshot=snapshot not in (None, False, "false") and offset.get("snapshot_completed") is not True,
            server_id=_number(offset.get("server_id")),
            log_of=str(offset.get("log_of") or ""),
            is_by_gtids=offset.get("by_gtids") is True,
            seconds=_number(offset.get("ts_sec")),
            prepared=_prepared(offset.get("prepared")),
            is_unlisted=offset.get("prepared_unlisted") is True,
        )

    def offset(self) -> Offset:
        """To be stored."""
        found: dict[str, Scalar] = {"file": self.file, "pos": self.position}
        optional: dict[str, Scalar] = {
            "server_id": self.server_id,
            "ts_sec": self.seconds,
            "log_of": self.log_of,
            "by_gtids": self.is_by_gtids,
            "gtids": self.gtids.text,
            "delivered": self.delivered,
            "until": self.until,
            "event": self.events,
            "row": self.rows,
            "prepared_unlisted": self.is_unlisted,
        }
        found |= {name: value for name, value in optional.items() if value}
        if self.tables:
            found["tables"] = "\n".join(self.tables)
        if self.prepared:
            found["prepared"] = json.dumps({xid: at.offset() for xid, at in self.prepared}, separators=(",", ":"))
        if self.is_snapshot:
            found |= {"snapshot": True, "snapshot_completed": False}
        if self.table:
            found |= {"snapshot_table": self.table, "snapshot_key": json.dumps(self.keys)}
        return found

    def at(self, file: str, position: int, gtids: GtidSet) -> Place:
        """Between two transactions, with nothing behind it done."""
        return replace(
            self,
            file=file,
            position=position,
            gtids=gtids,
            delivered=0,
            until=0,
            tables=(),
            events=0,
            rows=0,
            table="",
            keys=(),
            is_snapshot=False,
        )

    @property
    def is_inside(self) -> bool:
        """Whether part of the transaction that begins here is delivered."""
        return bool(self.delivered or self.until or self.events or self.rows)

    def asks_by_gtids(self, *, is_mariadb: bool) -> bool:
        """Whether the log is asked for by the GTIDs.

        Debezium's place inside a transaction of MySQL is behind the transaction's GTID, which would not be sent.
        """
        return self.is_by_gtids or bool(not is_mariadb and self.gtids.text and (self.events or self.rows))

    @property
    def order(self) -> tuple[int, int]:
        """Greater for what comes later in the log of one server."""
        number = self.file.rpartition(".")[2]
        return int(number) if number.isdigit() else 0, self.position


def _prepared(text: Scalar) -> tuple[tuple[str, Place], ...]:
    """Raises ``ValueError`` where it is no JSON object of places."""
    told = json.loads(text) if isinstance(text, str) and text else {}
    if not isinstance(told, dict) or not all(isinstance(one, dict) for one in told.values()):
        message = '"prepared" is no object of XA transactions and their places'
        raise ValueError(message)
    found = ((xid, Place.read(one)) for xid, one in told.items())
    return tuple((xid, at) for xid, at in found if at is not None)


def _number(value: Scalar) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
