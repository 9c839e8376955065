"""Fixtures of the real databases: a PostgreSQL, a MariaDB and a MySQL for the whole run, started when first asked for.

A pytest plugin, loaded by tests/conftest.py. Each test makes a database of its own (``postgres``, ``mariadb``,
``mysql``). The guard of the embedded servers runs them, so that they end with the run, however it ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import adbc_driver_postgresql.dbapi as adbc
import asyncmy
import pytest

from service.embedded import guard
from service.embedded.jars import class_path
from service.embedded.ports import free_ports
from tests import xa_ends

READY_SECONDS_MAX = 240.0
LOOK_SECONDS = 0.05
_POSTGRES = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)
_MARIADB = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups") if os.getuid() == 0 else ()


@dataclass
class DatabaseServer:
    """A running server; ``kill`` and ``start`` keep port and data."""

    command: Sequence[str]
    port: int
    folder: Path
    answers: Callable[[int], bool]
    stop_signal: signal.Signals = signal.SIGTERM
    pid: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, and return when it answers."""
        until = time.monotonic() + READY_SECONDS_MAX
        while True:  # children of a killed server may take a moment to notice that it has gone
            with (self.folder / "console").open("ab") as console:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(guard.__file__), "5", *self.command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=console,
                )
            assert self.process.stdout is not None
            self.pid = int(self.process.stdout.readline().split()[1])
            while self.process.poll() is None:
                if self.answers(self.port):
                    return
                assert time.monotonic() < until, (self.folder / "console").read_text(errors="replace")[-4000:]
                time.sleep(LOOK_SECONDS)  # noqa: TID251 - what is waited for is another process
            self._close()
            assert time.monotonic() < until, (self.folder / "console").read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """End it with SIGKILL, and return when it is gone."""
        assert self.process is not None
        os.kill(self.pid, signal.SIGKILL)
        self._close()

    def stop(self) -> None:
        """End it at once, clients or not."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.pid, self.stop_signal)
            self._close()

    def _close(self) -> None:
        """The end of its standard input is what the guard listens for."""
        assert self.process is not None
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait(120)


def _postgres_answers(port: int) -> bool:
    """It listens before it lets anybody in."""
    try:
        adbc.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", autocommit=True).close()
    except adbc.Error:
        return False
    return True


def _mysql_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 30.0):
            return True
    except OSError:
        return False


@pytest.fixture(scope="session")
def database_folder() -> Iterator[Path]:
    """A folder that the servers' user, who is not root, may enter."""
    with tempfile.TemporaryDirectory(prefix="headrace-databases-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def _own_folder(folder: Path, name: str) -> Path:
    own = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
    if _NOBODY:
        shutil.chown(own, "nobody", "nogroup")
    return own


def _make(command: Sequence[str]) -> None:
    """Make the files of a server; what the program says is only of interest where it fails."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout.decode(errors='replace')[-4000:]}"


@contextmanager
def running_postgres(folder: Path, *changed: str, program: Path | None = _POSTGRES) -> Iterator[DatabaseServer]:
    """PostgreSQL with prepared transactions; everyone is ``postgres`` without a password, unless made otherwise.

    ``changed``: settings that go before these, as ``name=value``; so it is for the others' options.
    """
    if program is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    own = _own_folder(folder, "postgresql")
    data, (port,) = own / "data", free_ports(1)
    made = [*_NOBODY, str(program.with_name("initdb")), "-D", str(data), "-U", "postgres", "-A", "trust"]
    _make([*made, "-E", "UTF8", "--locale=C.UTF-8", "-N"])
    settings = ["listen_addresses=127.0.0.1", "fsync=off", "max_connections=300", "max_prepared_transactions=20"]
    settings += ["wal_level=logical", "max_replication_slots=50", "max_wal_senders=50", *changed]
    told = [part for setting in settings for part in ("-c", setting)]
    command = [*_NOBODY, str(program), "-D", str(data), "-p", str(port), "-k", str(own), *told]
    server = DatabaseServer(command, port, own, _postgres_answers, signal.SIGINT)  # its "fast" shutdown
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres_server(database_folder: Path) -> Iterator[DatabaseServer]:
    """The run's PostgreSQL."""
    with running_postgres(database_folder) as server:
        yield server


@contextmanager
def running_mariadb(folder: Path, *changed: str, server_id: int = 1) -> Iterator[DatabaseServer]:
    """MariaDB with a log of rows; everyone is ``root`` without a password, unless made otherwise."""
    own = _own_folder(folder, f"mariadb-{server_id}")
    data, (port,) = own / "data", free_ports(1)
    made = [*_NOBODY, "env", f"HOME={own}", f"TMPDIR={own}", "mariadb-install-db", "--no-defaults", f"--datadir={data}"]
    made += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    _make(made)
    command = [*_NOBODY, _MARIADB or "", "--no-defaults", f"--datadir={data}", "--bind-address=127.0.0.1"]
    command += [f"--port={port}", f"--socket={own}/socket", f"--pid-file={own}/pid", "--innodb-buffer-pool-size=32M"]
    command += ["--sql-mode=", "--innodb-flush-log-at-trx-commit=0", "--max-connections=300"]
    command += ["--performance-schema=OFF", f"--server-id={server_id}", "--log-bin=binlog", "--sync-binlog=0"]
    command += ["--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL"]
    # A server that starts removes what others have in the same folder for temporary files, and they die of it.
    command += ["--log-slave-updates", f"--relay-log={own}/relay", f"--tmpdir={own}", *changed]
    server = DatabaseServer(command, port, own, _mysql_answers)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def mysql_programs(database_folder: Path) -> Path:
    """The folder of MySQL's own programs, out of their jar."""
    try:
        ctypes.CDLL("libaio.so.1")
        ctypes.CDLL("libnuma.so.1")
    except OSError as error:
        pytest.skip(f"MySQL lacks a library ({error}): apt-get install libaio1 libnuma1")
    with (
        zipfile.ZipFile(class_path("mysql")) as jar,
        jar.open("mysql-Linux-amd64.tar.gz") as packed,
        tarfile.open(fileobj=packed) as archive,
    ):
        archive.extractall(database_folder / "mysql-programs", filter="data")
    return database_folder / "mysql-programs"


@contextmanager
def running_mysql(folder: Path, programs: Path, *changed: str, server_id: int = 1) -> Iterator[DatabaseServer]:
    """MySQL with a log of rows and GTIDs; everyone is ``root`` without a password, unless made otherwise."""
    own = _own_folder(folder, f"mysql-{server_id}")
    (port,) = free_ports(1)
    command = [*_NOBODY, str(programs / "bin/mysqld"), "--no-defaults", f"--basedir={programs}"]
    command += [f"--lc-messages-dir={programs}/share", f"--datadir={own}/data"]
    _make([*command, "--initialize-insecure"])
    command += ["--bind-address=127.0.0.1", f"--port={port}", "--mysqlx=OFF", f"--socket={own}/socket"]
    command += [f"--pid-file={own}/pid", f"--server-id={server_id}", "--log-bin=binlog", "--sync-binlog=0"]
    command += ["--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL", "--sql-mode="]
    command += ["--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--performance-schema=OFF"]
    command += ["--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0", "--max-connections=300"]
    command += ["--default-authentication-plugin=mysql_native_password", f"--tmpdir={own}", *changed]
    server = DatabaseServer(command, port, own, _mysql_answers)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def mysql_server(database_folder: Path, mysql_programs: Path) -> Iterator[DatabaseServer]:
    """The run's MySQL."""
    with running_mysql(database_folder, mysql_programs) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server(database_folder: Path) -> Iterator[DatabaseServer]:
    """The run's MariaDB."""
    if _MARIADB is None:
        pytest.skip("MariaDB is not installed: apt-get install mariadb-server")
    with running_mariadb(database_folder) as server:
        yield server


class Postgres:
    """A database of its own in the run's PostgreSQL."""

    def __init__(self, server: DatabaseServer, name: str) -> None:
        self.server = server
        self.name = name

    @property
    def url(self) -> str:
        """For ``connection.url``."""
        return f"jdbc:postgresql://127.0.0.1:{self.server.port}/{self.name}?user=postgres"

    def connect(self, *, autocommit: bool = True, name: str | None = None) -> Any:
        """A session, whose transactions are its own where it does not commit by itself."""
        told = f"postgresql://postgres@127.0.0.1:{self.server.port}/{name or self.name}"
        return adbc.connect(told, autocommit=autocommit)

    def run(self, *statements: str, name: str | None = None) -> None:
        """Each statement in a transaction of its own."""
        with self.connect(name=name) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Of a SELECT."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    @property
    def change_keys(self) -> dict[str, str]:
        """Of a ``PostgresCdcSource`` of this database, with a slot of its name."""
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": "postgres",
            "database.dbname": self.name,
            "slot.name": self.name,
            "publication.autocreate.mode": "filtered",
        }

    def drop_slots(self) -> None:
        """Its replication slots; the server lets a reader go only a moment after that has closed its connection."""
        slots = f"from pg_replication_slots where database = '{self.name}'"
        self.run(
            f"select pg_terminate_backend(active_pid, 120000) {slots} and active_pid is not null",
            f"select pg_drop_replication_slot(slot_name) {slots}",
        )


@contextmanager
def own_postgres(made: Postgres, settings: str = "") -> Iterator[Postgres]:
    """Make it, and drop it in the end. What a failed test left prepared there would hold up other databases too."""
    made.run(f"create database {made.name} {settings}", name="postgres")
    yield made
    each = (
        "select 'rollback prepared ' || quote_literal(gid) from pg_prepared_xacts where database = current_database()"
    )
    made.run(*(statement for (statement,) in made.rows(each)))
    made.run(f"drop database {made.name} with (force)", name="postgres")


@pytest.fixture
def postgres(postgres_server: DatabaseServer) -> Iterator[Postgres]:
    """An empty database, which is dropped in the end."""
    with own_postgres(Postgres(postgres_server, f"test_{uuid.uuid4().hex[:10]}")) as made:
        yield made


M = TypeVar("M", bound="MySql")


class MySql:
    """A database of its own in the run's MariaDB or MySQL."""

    scheme = "mysql"

    def __init__(self, server: DatabaseServer, name: str) -> None:
        self.server = server
        self.name = name

    @property
    def url(self) -> str:
        """For ``connection.url``."""
        return f"jdbc:{self.scheme}://127.0.0.1:{self.server.port}/{self.name}?user=root"

    async def connect(self, *, autocommit: bool = True, database: str | None = "") -> Any:
        """A session, with values as the server's own texts."""
        name = self.name if database == "" else database
        return await asyncmy.connect(
            host="127.0.0.1",
            port=self.server.port,
            user="root",
            database=name,
            autocommit=autocommit,
            conv={255: str},
            charset="utf8mb4",
            init_command="SET time_zone = '+00:00'",
            connect_timeout=120,
        )

    async def rows(self, *statements: str, database: str | None = "") -> list[tuple[Any, ...]]:
        """Of the last statement."""
        connection = await self.connect(database=database)
        try:
            found: list[tuple[Any, ...]] = []
            async with connection.cursor() as cursor:
                for statement in statements:
                    await xa_ends.executed(cursor, statement)
                    found = list(await cursor.fetchall())
            return found
        finally:
            await connection.ensure_closed()

    def run(self, *statements: str, database: str | None = "") -> None:
        """For tests without an event loop."""
        asyncio.run(self.rows(*statements, database=database))


class MariaDb(MySql):
    """In the run's MariaDB."""

    scheme = "mariadb"


@contextmanager
def own_database(made: M) -> Iterator[M]:
    """Make it, and drop it in the end with all that a failed test has left."""
    made.run(f"create database {made.name}", database=None)
    yield made
    asyncio.run(xa_ends.drop(partial(made.rows, database=None), made.name))


@pytest.fixture
def mariadb(mariadb_server: DatabaseServer) -> Iterator[MariaDb]:
    """An empty database, which is dropped in the end."""
    with own_database(MariaDb(mariadb_server, f"test_{uuid.uuid4().hex[:10]}")) as made:
        yield made


@pytest.fixture
def mysql(mysql_server: DatabaseServer) -> Iterator[MySql]:
    """An empty database, which is dropped in the end."""
    with own_database(MySql(mysql_server, f"test_{uuid.uuid4().hex[:10]}")) as made:
        yield made


@pytest.fixture(params=["mariadb", "mysql"])
def each_mysql(request: pytest.FixtureRequest) -> MySql:
    """A database in MariaDB, and one in MySQL."""
    found: MySql = request.getfixturevalue(request.param)
    return found
