"""A server that behaves like MariaDB as far as ``MySqlCdcSource`` asks it, and a writer of logs for it.

For what a real server cannot be made to do at a given moment: to hang, to lie, to send damaged events.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.table_map import (
    BINARY_CHARSET,
    BIT,
    BLOB,
    DATETIME2,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    GEOMETRY,
    INT24,
    JSON,
    LONG,
    LONGLONG,
    SET,
    SHORT,
    STRING,
    TIME2,
    TIMESTAMP2,
    TINY,
    VARCHAR,
    YEAR,
    Column,
)

FILE = "binlog.000001"
SECONDS = 1_700_000_000
SERVER = 1
Answer = Sequence[Mapping[str, Any]]


def packed(number: int) -> bytes:
    """A length-encoded integer."""
    return bytes([number]) if number < 251 else b"\xfc" + struct.pack("<H", number)


def texts(*values: bytes) -> bytes:
    """Length-encoded texts, one behind the other."""
    return b"".join(packed(len(value)) + value for value in values)


def bitmap(bits: Sequence[bool], *, is_from_top: bool = False) -> bytes:
    """Bits of bytes, from the lowest unless said otherwise."""
    made = bytearray((len(bits) + 7) // 8)
    for at, bit in enumerate(bits):
        made[at // 8] |= bit << (7 - at % 8 if is_from_top else at % 8)
    return bytes(made)


@dataclass
class WrittenTable:
    """A table of the log; rows are given as the bytes of their values, None for null."""

    database: str
    name: str
    columns: Sequence[Column]
    key: Sequence[int] = (0,)
    number: int = 7

    def described(self) -> bytes:
        """The body of its TABLE_MAP."""
        kinds, metadata = zip(*(self._layout(column) for column in self.columns), strict=True)
        head = struct.pack("<IHH", self.number, 0, 1)
        for name in (self.database.encode(), self.name.encode()):
            head += bytes([len(name)]) + name + b"\0"
        numeric = (TINY, SHORT, INT24, LONG, LONGLONG, DECIMAL, FLOAT, DOUBLE, YEAR)
        optional = {
            1: bitmap([one.is_unsigned for one in self.columns if one.type in numeric], is_from_top=True),
            3: b"".join(packed(one.charset) for one in self.columns if one.type in (VARCHAR, STRING, BLOB)),
            4: texts(*(one.name.encode() for one in self.columns)),
            5: b"".join(packed(len(one.values)) + texts(*one.values) for one in self.columns if one.type == SET),
            6: b"".join(packed(len(one.values)) + texts(*one.values) for one in self.columns if one.type == ENUM),
            7: b"".join(packed(one.scale) for one in self.columns if one.type == GEOMETRY),
            8: b"".join(packed(at) for at in self.key),
            10: packed(45),
        }
        return (
            head
            + packed(len(kinds))
            + bytes(kinds)
            + texts(b"".join(metadata))
            + bitmap([one.is_nullable for one in self.columns])
            + b"".join(bytes([kind]) + texts(value) for kind, value in optional.items() if value)
        )

    @staticmethod
    def _layout(column: Column) -> tuple[int, bytes]:  # noqa: PLR0911 - one line a type
        kind, size, scale = column.type, column.size, column.scale
        if kind in (ENUM, SET):
            return STRING, bytes([kind, size])
        if kind == VARCHAR:
            return kind, struct.pack("<H", scale)
        if kind == STRING:
            return kind, bytes([STRING, scale])
        if kind == BIT:
            return kind, bytes([scale % 8, scale // 8])
        if kind == DECIMAL:
            return kind, bytes([size, scale])
        if kind in (TIMESTAMP2, DATETIME2, TIME2):
            return kind, bytes([scale])
        return kind, bytes([size]) if kind in (BLOB, JSON, FLOAT, DOUBLE, GEOMETRY) else b""

    def image(self, values: Sequence[bytes | None]) -> bytes:
        """One row image."""
        return bitmap([value is None for value in values]) + b"".join(value or b"" for value in values)

    def rows(self, images: Sequence[Sequence[bytes | None]], *, is_update: bool = False) -> bytes:
        """The body of an event of the first version with rows."""
        everything = bitmap([True] * len(self.columns))
        head = struct.pack("<IHH", self.number, 0, 1) + packed(len(self.columns)) + everything
        return head + (everything if is_update else b"") + b"".join(map(self.image, images))


class WrittenLog:
    """A log file, event by event, with checksums."""

    def __init__(self) -> None:
        self.events: list[tuple[int, bytes]] = []
        """Each event, and where it ends."""
        self.position = 4
        self.server = SERVER
        """Whose events are written next: a replica logs those of other servers under their own numbers."""
        self.grown = asyncio.Event()
        self._format = struct.pack("<H50sIB", 4, b"10.11", 0, 19) + bytes(40) + b"\x01"
        self.add(events.FORMAT_DESCRIPTION, self._format)
        self._transactions = 0

    def event(self, kind: int, body: bytes, *, position: int, flags: int = 0) -> bytes:
        """The bytes of an event that ends at ``position``."""
        size = events.HEADER_BYTES + len(body) + 4
        head = struct.pack("<IBIIIH", SECONDS, kind, self.server, size, position, flags)
        return head + body + struct.pack("<I", zlib.crc32(head + body))

    def add(self, kind: int, body: bytes) -> None:
        """Put an event behind the last one."""
        self.position += events.HEADER_BYTES + len(body) + 4
        self.events.append((self.position, self.event(kind, body, position=self.position)))
        self.grown.set()

    def begin(self, *, flags: int = 0) -> None:
        """A MariaDB GTID."""
        self._transactions += 1
        self.add(events.MARIADB_GTID, struct.pack("<QIB6x", self._transactions, 0, flags))

    def transaction(self, *changes: tuple[WrittenTable, int, Sequence[Sequence[bytes | None]]]) -> None:
        """Tables, types of event and row images, and the commit."""
        self.begin()
        for table, kind, images in changes:
            self.add(events.TABLE_MAP, table.described())
            self.add(kind, table.rows(images, is_update=events.ROWS[kind] == "u"))
        self.add(events.XID, bytes(8))

    def prepared(
        self,
        xid: bytes,
        *changes: tuple[WrittenTable, int, Sequence[Sequence[bytes | None]]],
        is_one_phase: bool = False,
    ) -> None:
        """An XA transaction that is prepared, as MariaDB logs it; in one phase, as MySQL does."""
        self.begin(flags=64)
        for table, kind, images in changes:
            self.add(events.TABLE_MAP, table.described())
            self.add(kind, table.rows(images, is_update=events.ROWS[kind] == "u"))
        self.query(f"XA END X'{xid.hex()}',X'',1")
        self.add(events.XA_PREPARE, struct.pack("<BiII", is_one_phase, 1, len(xid), 0) + xid)

    def ended(self, xid: bytes, word: str) -> None:
        """``XA COMMIT`` or ``XA ROLLBACK``."""
        self.begin(flags=128)
        self.query(f"XA {word} X'{xid.hex()}',X'',1")

    def statement(self, text: str) -> None:
        """A statement outside of transactions, such as DDL."""
        self.begin(flags=1)
        self.query(text)

    def query(self, text: str) -> None:
        """A statement."""
        self.add(events.QUERY, struct.pack("<IIBHH", 9, 0, 1, 0, 0) + b"w\0" + text.encode())

    def packets(self, position: int) -> list[bytes]:
        """What a server sends from a position on, as packets."""
        rotation = self.event(events.ROTATE, struct.pack("<Q", position) + FILE.encode(), position=0, flags=0x20)
        found = [rotation]
        if position > 4:
            found.append(self.event(events.FORMAT_DESCRIPTION, self._format, position=0))
        found += [one for end, one in self.events if end > position]
        return [packet(b"\0" + one, at) for at, one in enumerate(found, 1)]


def packet(payload: bytes, number: int) -> bytes:
    """One packet of the protocol, or as many as it needs."""
    if len(payload) >= events.PACKET_BYTES_MAX:
        first, rest = payload[: events.PACKET_BYTES_MAX], payload[events.PACKET_BYTES_MAX :]
        return b"\xff\xff\xff" + bytes([number & 255]) + first + packet(rest, number + 1)
    return len(payload).to_bytes(3, "little") + bytes([number & 255]) + payload


@dataclass
class BinlogServer:
    """Listens on the loopback; what it answers is by the beginnings of the questions."""

    log: WrittenLog
    answers: dict[str, Answer | Callable[[Sequence[str]], Answer]] = field(default_factory=dict)
    is_hanging: bool = False
    is_refusing: bool = False
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    dumped: Callable[[list[bytes]], list[bytes]] = list
    """What becomes of the packets of the log before they are sent."""
    port: int = 0
    questions: list[str] = field(default_factory=list)
    _server: Any = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._session(reader, writer)
        writer.close()
        self._tasks.discard(task)

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = b"\x0a10.11.99-MariaDB\0" + struct.pack("<I8sxHBHHB10x", 1, b"a" * 8, 0xA20D, 45, 2, 8, 21)
        writer.write(packet(greeting + b"b" * 12 + b"\0mysql_native_password\0", 0))
        await self._asked(reader)
        await self._wait_while_hanging()  # at its login: Python 3.11 may lose a cancellation while it connects
        if self.is_refusing:
            writer.write(packet(b"\xff" + struct.pack("<H", 1045) + b"#28000Access denied for user", 2))
            await writer.drain()
            return
        writer.write(packet(b"\0\0\0\2\0\0\0", 2))
        asked: list[str] = []
        while True:
            question = await self._asked(reader)
            await self._wait_while_hanging()
            if question[0] == 0x12:
                position, _, reader_id = struct.unpack_from("<IHI", question, 1)
                await self._dump(writer, position, waits=reader_id != 0)
            elif question[0] == 3:
                asked.append(question[1:].decode())
                self._answer(writer, asked)
            else:
                return

    async def _asked(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readexactly(4)
        return await reader.readexactly(int.from_bytes(head[:3], "little"))

    async def _wait_while_hanging(self) -> None:
        if self.is_hanging:
            self.asked.set()
            await asyncio.Event().wait()

    async def _dump(self, writer: asyncio.StreamWriter, position: int, *, waits: bool) -> None:
        """``waits``: for more at the log's end, as for every reader with a number of its own."""
        sent = 0
        while True:
            self.log.grown.clear()
            packets = self.dumped(self.log.packets(position))
            for one in packets[sent:]:
                writer.write(one)
                await writer.drain()
            sent = len(packets)
            if not waits:
                writer.write(packet(b"\xfe\0\0\2\0", sent + 1))
                return
            await self._wait_while_hanging()
            await self.log.grown.wait()

    def _answer(self, writer: asyncio.StreamWriter, asked: Sequence[str]) -> None:
        question = asked[-1]
        self.questions.append(question)
        found = [answer for begin, answer in self.answers.items() if question.startswith(begin)]
        if not found:
            writer.write(packet(b"\0\0\0\2\0\0\0", 1))
            return
        rows = found[0](asked) if callable(found[0]) else found[0]
        names = list(rows[0]) if rows else ["none"]
        parts = [packed(len(names))]
        for name in names:
            column = texts(b"def", b"", b"", b"", name.encode(), b"")
            is_binary = name.startswith("CAST(") or f"USING binary) AS {name}," in question
            charset = BINARY_CHARSET if is_binary else 45
            parts.append(column + b"\x0c" + struct.pack("<HIBHB2x", charset, 1024, 253, 0, 0))
        parts.append(b"\xfe\0\0\2\0")
        for row in rows:
            values = [b"\xfb" if one is None else texts(str(one).encode()) for one in row.values()]
            parts.append(b"".join(values))
        parts.append(b"\xfe\0\0\2\0")
        writer.write(b"".join(packet(part, at) for at, part in enumerate(parts, 1)))


def mariadb_answers(
    log: WrittenLog, tables: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, Answer | Callable[[Sequence[str]], Answer]]:
    """What a well-set MariaDB says of itself, and of tables with the columns ``id int`` and ``name varchar(50)``.

    A snapshot is one of the log's beginning, or of its end in a session that reads tables beside the log.
    """

    def snapshot(asked: Sequence[str]) -> Answer:
        position = log.position if "SET SESSION sql_mode = ''" in asked else log.events[0][0]
        return [
            {"variable_name": "Binlog_snapshot_file", "value": FILE},
            {"variable_name": "Binlog_snapshot_position", "value": position},
        ]

    settings = {"log_bin": "ON", "server_id": SERVER, "binlog_format": "ROW", "binlog_row_image": "FULL"}
    settings |= {"binlog_row_metadata": "FULL", "log_bin_compress": "OFF"}
    described = [
        {"d": "w", "t": table, "n": name, "k": kind, "full": kind, "z": null, "p": 10, "s": 0, "f": None, "l": 50}
        | {"cs": charset, "co": charset and "utf8mb4_general_ci"}
        for table in tables
        for name, kind, null, charset in (("id", "int", "NO", None), ("name", "varchar", "YES", "utf8mb4"))
    ]
    return {
        "SHOW GLOBAL VARIABLES": [{"variable_name": name, "value": value} for name, value in settings.items()],
        "SHOW GRANTS": [{"grants": "GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost`"}],
        "SELECT id, character_set_name": [{"id": 45, "name": "utf8mb4"}],
        "SELECT @@lower_case_table_names": [{"mode": 0}],
        "SELECT @@server_id": [{"id": SERVER, "log_of": SERVER}],
        "SELECT binlog_gtid_pos": [{"gtids": ""}],
        "SHOW STATUS LIKE 'binlog_snapshot": snapshot,
        "SHOW MASTER STATUS": [{"file": FILE, "position": log.position}],
        "SELECT c.table_schema": described,
        "SHOW WARNINGS": [],
        "SELECT constraint_schema": [],
        "SELECT table_schema AS d, table_name AS t, column_name": [
            {"d": "w", "t": table, "n": "id", "i": "PRIMARY", "k": "BTREE", "z": "", "p": None} for table in tables
        ],
        **{
            f"SELECT `id`, CONVERT(`name` USING binary) FROM `w`.`{table}`": [  # noqa: S608 - a name of a test
                {"id": number, "CONVERT(`name` USING binary)": name} for number, name in rows
            ]
            for table, rows in tables.items()
        },
    }


NAMED = (Column("id", LONG, is_nullable=False), Column("name", VARCHAR, 1, 50, charset=45))
"""The columns of the tables of ``mariadb_answers``."""


def named(number: int, name: str | None) -> tuple[bytes | None, ...]:
    """A row of such a table."""
    return struct.pack("<i", number), None if name is None else texts(name.encode())


__all__ = ["BINARY_CHARSET", "BinlogServer", "WrittenLog", "WrittenTable", "mariadb_answers", "named"]
