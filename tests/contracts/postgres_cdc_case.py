"""The contract suite's view of ``PostgresCdcSource``: the log of a real server, started once for all of its tests."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

import psycopg

from fetchers.postgres_cdc.fetcher import PostgresCdcSource
from fetchers.sdk.testing import BadConfig, FetcherCase, ScriptedSource
from tests.databases import DatabaseServer, Postgres, running_postgres

TRANSACTIONS, ROWS = 9, 10
SLOTS_KEPT = 10
"""Of those that were made; who asked for an older one has ended."""
SECRET = "pa55-of-the-log-7q"


@cache
def _server() -> DatabaseServer:
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(tempfile.mkdtemp(prefix="headrace-cdc-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    return stack.enter_context(running_postgres(folder))


class LoggedTable(ScriptedSource):
    """Rows that came after the slot was made, several to a transaction."""

    def __init__(self) -> None:
        self.name = f"contract_{uuid.uuid4().hex[:10]}"
        self._database = Postgres(_server(), self.name)
        self._database.run(f"create database {self.name}", name="postgres")
        self._database.run(
            f"create role {self.name} login replication password '{SECRET}'",
            "create table items (id int primary key, name text not null)",
            f"grant select on items to {self.name}",
            "create publication dbz_publication for table items",
            f"select pg_create_logical_replication_slot('{self.name}', 'pgoutput')",
        )
        self._count = self._slots = 0
        for _ in range(TRANSACTIONS):
            self._extend(ROWS)

    @property
    def properties(self) -> Mapping[str, str]:
        """Small batches, so that there are many offsets; and a slot that has all of the log.

        A reader lets the server forget what is behind its offset, and the suite reads from older ones afterwards.
        """
        self._slots += 1
        slot = f"{self.name}_{self._slots}"
        gone = f"{self.name}_{self._slots - SLOTS_KEPT}"
        self._database.run(
            f"select pg_copy_logical_replication_slot('{self.name}', '{slot}')",
            f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{gone}'",  # noqa: S608
        )
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(_server().port),
            "database.user": self.name,
            "database.password": SECRET,
            "database.dbname": self.name,
            "topic.prefix": "test",
            "slot.name": slot,
            "snapshot.mode": "no_data",
            "change.form": "flattened",
            "max.batch.size": "15",
        }

    @property
    def expected(self) -> Sequence[bytes]:
        """As dead letters would show them."""
        return tuple(
            f'{{"id":{number},"name":"name {number} ü","__deleted":"false"}}'.encode()
            for number in range(1, self._count + 1)
        )

    @property
    def records_given(self) -> int:
        """All there are, once somebody reads a slot: the server sends what the socket takes."""
        ((is_read,),) = self._database.rows(
            f"select coalesce(bool_or(active), false) from pg_replication_slots where database = '{self.name}'"  # noqa: S608
        )
        return len(self.expected) if is_read else 0

    async def add(self) -> None:
        """One transaction."""
        self._extend(3)

    async def hang(self) -> None:
        """A log that says nothing."""

    async def wait_until_asked(self) -> None:
        """A log does not tell who waits for it."""
        await asyncio.sleep(0)

    async def refuse(self) -> None:
        """Take the role's right to log in."""
        self._database.run(f"alter role {self.name} nologin")

    def close(self) -> None:
        """End the sessions, so that the slot and the database can be dropped."""
        connection = psycopg.connect(host="127.0.0.1", port=_server().port, user="postgres", dbname="postgres")
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(
                "select pg_terminate_backend(pid, 120000) from pg_stat_activity where datname = %s", (self.name,)
            )
            cursor.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s", (self.name,)
            )
            cursor.execute(f"drop database {self.name} with (force)")
            cursor.execute(f"drop role {self.name}")
        connection.close()

    def _extend(self, count: int) -> None:
        first, self._count = self._count + 1, self._count + count
        self._database.run(
            f"insert into items select g, 'name ' || g || ' ü' from generate_series({first}, {self._count}) g"  # noqa: S608
        )


class PostgresCdcCase(FetcherCase):
    """``PostgresCdcSource`` behind its snapshot, which has its own tests."""

    connector = PostgresCdcSource
    secrets = (SECRET,)
    bad_configs = (
        BadConfig({"slot.name": "My-Slot", "topic.prefix": "a b"}, frozenset({"slot.name", "topic.prefix"})),
        BadConfig(
            {"table.include.list": "(", "skipped.operations": "x"},
            frozenset({"table.include.list", "skipped.operations"}),
        ),
        BadConfig({"table.include.list": "a", "table.exclude.list": "b"}, frozenset({"table.exclude.list"})),
        BadConfig({"plugin.name": "decoderbufs"}, frozenset({"plugin.name"})),
        BadConfig({"database.dbname": None}, frozenset({"database.dbname"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[LoggedTable]:
        """A database of its own."""
        del folder
        table = LoggedTable()
        try:
            yield table
        finally:
            table.close()


CASE = PostgresCdcCase()
