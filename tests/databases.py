"""Fixtures of the real databases: one PostgreSQL and one MariaDB for the whole run, started when first asked for.

A pytest plugin, loaded by tests/conftest.py. Each test makes a database of its own (``postgres``, ``mariadb``). The
guard of the embedded servers runs them, so that they end with the run, however it ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import asyncmy
import pytest

from service.embedded import guard
from service.embedded.ports import free_ports

READY_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.05
_POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
HAS_POSTGRES = bool(_POSTGRES)
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
        self.process.wait(30)


def _postgres_answers(port: int) -> bool:
    """It listens before it lets anybody in."""
    try:
        adbc.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", autocommit=True).close()
    except adbc.Error:
        return False
    return True


def _mariadb_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0):
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
    own = folder / name
    own.mkdir()
    if _NOBODY:
        shutil.chown(own, "nobody", "nogroup")
    return own


@contextmanager
def running_postgres(folder: Path) -> Iterator[DatabaseServer]:
    """PostgreSQL with prepared transactions; everyone is ``postgres`` without a password, unless made otherwise."""
    program, own = _POSTGRES[-1], _own_folder(folder, "postgresql")
    data, (port,) = own / "data", free_ports(1)
    made = [*_NOBODY, str(program.with_name("initdb")), "-D", str(data), "-U", "postgres", "-A", "trust"]
    subprocess.run([*made, "-E", "UTF8", "--locale=C.UTF-8", "-N"], check=True, capture_output=True, timeout=300)
    settings: tuple[str, ...] = (
        "listen_addresses=127.0.0.1",
        "fsync=off",
        "max_connections=300",
        "max_prepared_transactions=20",
    )
    settings += ("wal_level=logical", "max_replication_slots=50", "max_wal_senders=50")
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
    if not HAS_POSTGRES:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with running_postgres(database_folder) as server:
        yield server


@contextmanager
def running_mariadb(folder: Path) -> Iterator[DatabaseServer]:
    """MariaDB with a log of rows; everyone is ``root`` without a password, unless made otherwise."""
    own = _own_folder(folder, "mariadb")
    data, (port,) = own / "data", free_ports(1)
    made = [*_NOBODY, "env", f"HOME={own}", "mariadb-install-db", "--no-defaults", f"--datadir={data}"]
    made += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(made, check=True, capture_output=True, timeout=300)
    command = [*_NOBODY, _MARIADB or "", "--no-defaults", f"--datadir={data}", "--bind-address=127.0.0.1"]
    command += [f"--port={port}", f"--socket={own}/socket", f"--pid-file={own}/pid", "--innodb-buffer-pool-size=32M"]
    command += ["--sql-mode=", "--innodb-flush-log-at-trx-commit=0", "--max-connections=300"]
    command += ["--performance-schema=OFF", "--server-id=1", "--log-bin=binlog", "--sync-binlog=0"]
    command += ["--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL"]
    server = DatabaseServer(command, port, own, _mariadb_answers)
    server.start()
    try:
        yield server
    finally:
        server.stop()


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


@pytest.fixture
def postgres(postgres_server: DatabaseServer) -> Iterator[Postgres]:
    """An empty database, which is dropped in the end."""
    made = Postgres(postgres_server, f"test_{uuid.uuid4().hex[:10]}")
    made.run(f"create database {made.name}", name="postgres")
    yield made
    made.run(f"drop database {made.name} with (force)", name="postgres")


class MariaDb:
    """A database of its own in the run's MariaDB."""

    def __init__(self, server: DatabaseServer, name: str) -> None:
        self.server = server
        self.name = name

    @property
    def url(self) -> str:
        """For ``connection.url``."""
        return f"jdbc:mariadb://127.0.0.1:{self.server.port}/{self.name}?user=root"

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
        )

    async def rows(self, *statements: str, database: str | None = "") -> list[tuple[Any, ...]]:
        """Of the last statement."""
        connection = await self.connect(database=database)
        try:
            found: list[tuple[Any, ...]] = []
            async with connection.cursor() as cursor:
                for statement in statements:
                    await cursor.execute(statement)
                    found = list(await cursor.fetchall())
            return found
        finally:
            await connection.ensure_closed()

    def run(self, *statements: str, database: str | None = "") -> None:
        """For tests without an event loop."""
        asyncio.run(self.rows(*statements, database=database))


@pytest.fixture
def mariadb(mariadb_server: DatabaseServer) -> Iterator[MariaDb]:
    """An empty database, which is dropped in the end."""
    made = MariaDb(mariadb_server, f"test_{uuid.uuid4().hex[:10]}")
    made.run(f"create database {made.name}", database=None)
    yield made
    made.run(f"drop database {made.name}", database=None)
