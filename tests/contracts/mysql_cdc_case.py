"""The contract suite's view of ``MySqlCdcSource``: a snapshot of tables, then the log, of a server by script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fetchers.mysql_cdc.events import WRITE_V1
from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.sdk.testing import BadConfig, FetcherCase, ScriptedSource
from tests.binlog_server import NAMED, BinlogServer, WrittenLog, WrittenTable, mariadb_answers, named

SECRET = "pa55-of-the-log-7q"
TABLES = {f"t{at}": [(f"{at * 10 + row}", f"row {row} ü") for row in range(5)] for at in range(3)}
LOGGED = 60


class ScriptedLog(ScriptedSource):
    """Three small tables, and transactions of three rows of one more."""

    def __init__(self, server: BinlogServer) -> None:
        self._server = server
        self._table = WrittenTable("w", "orders", NAMED)
        self._count = 0
        for _ in range(LOGGED // 3):
            self._write()

    @property
    def properties(self) -> Mapping[str, str]:
        """Rows alone, because an envelope holds the time of its making; small segments, so that there are many."""
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": "headrace",
            "database.password": SECRET,
            "database.server.id": "4711",
            "topic.prefix": "test",
            "event.form": "row",
            "max.batch.bytes": "1000",
        }

    @property
    def expected(self) -> Sequence[bytes]:
        """The tables' rows by name, then the log's."""
        rows = [(int(number), name) for table in TABLES.values() for number, name in table]
        rows += [(number, f"order {number} ü") for number in range(self._count)]
        return tuple(f'{{"id":{number},"name":"{name}","__deleted":"false"}}'.encode() for number, name in rows)

    @property
    def records_given(self) -> int:
        """All there are, once they are asked for: they are few."""
        return len(self.expected) if self._server.questions else 0

    async def add(self) -> None:
        """One more transaction."""
        self._write()

    def _write(self) -> None:
        rows = [named(number, f"order {number} ü") for number in range(self._count, self._count + 3)]
        self._server.log.transaction((self._table, WRITE_V1, rows))
        self._count += 3
        self._server.answers["SHOW MASTER STATUS"] = [{"file": "binlog.000001", "position": self._server.log.position}]

    async def hang(self) -> None:
        """Answer nothing."""
        self._server.is_hanging = True

    async def wait_until_asked(self) -> None:
        """Until it is connected to."""
        await self._server.asked.wait()

    async def refuse(self) -> None:
        """As with a wrong password."""
        self._server.is_refusing = True


class MySqlCdcCase(FetcherCase):
    """``MySqlCdcSource`` with a scripted server; the real MariaDB has its own tests."""

    connector = MySqlCdcSource
    secrets = (SECRET,)
    is_ordered = False  # what is left of a snapshot that was broken off comes beside the log
    bad_configs = (
        BadConfig(
            {"database.port": "99999", "snapshot.mode": "sometimes"}, frozenset({"database.port", "snapshot.mode"})
        ),
        BadConfig(
            {"table.include.list": "a", "table.exclude.list": "b(", "skipped.operations": "x"},
            frozenset({"table.exclude.list", "skipped.operations"}),
        ),
        BadConfig({"topic.prefix": None}, frozenset({"topic.prefix"})),
        BadConfig({"database.server.id": "0"}, frozenset({"database.server.id"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[ScriptedLog]:
        """A server of its own."""
        del folder
        log = WrittenLog()
        server = BinlogServer(log, mariadb_answers(log, TABLES))
        await server.start()
        try:
            yield ScriptedLog(server)
        finally:
            await server.stop()


CASE = MySqlCdcCase()
