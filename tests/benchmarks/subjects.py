"""The databases that are measured: a table of ten columns, rows that a log holds, and who reads them with which keys.

The same rows for everyone, on servers that are started for one measurement alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from service.embedded.jars import parts
from tests.benchmarks.peer import connect_standalone
from tests.benchmarks.processes import Child, headrace, write_properties
from tests.benchmarks.throughput import TOPIC, Field
from tests.databases import DatabaseServer, MariaDb, Postgres, running_mariadb, running_postgres

TABLE = "items"
_POSTGRES_COLUMNS = """id bigint primary key, a int, b double precision, c text, d timestamptz, e boolean,
  f numeric(12, 2), g text, h date, k smallint"""
_POSTGRES_ROW = """i, i, i * 1.5::float8, 'name ' || i, now() + i * interval '1 s', i % 2 = 0,
  (i / 100.0)::numeric(12, 2), md5(i::text), current_date + (i % 1000), (i % 100)::smallint"""
_MARIADB_COLUMNS = """id bigint primary key, a int, b double, c varchar(30), d datetime(6), e tinyint, f decimal(12, 2),
  g char(32), h date, k smallint"""
_MARIADB_ROW = """i, i, i * 1.5e0, concat('name ', i), now(6) + interval i second, i % 2, i / 100, md5(i),
  current_date + interval i % 1000 day, i % 100"""
JSON = "org.apache.kafka.connect.json.JsonConverter"
AVRO = {"value.converter": "io.confluent.connect.avro.AvroConverter", **TOPIC}
Opened = Callable[..., AbstractContextManager[Child]]
"""Starts a worker with one connector."""
_KEYS = {"key.converter": JSON, "key.converter.schemas.enable": "false"}
_VALUES = {"value.converter": JSON, "value.converter.schemas.enable": "false"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A database with an empty table ``items`` of ten columns, of which ``id`` is the key."""

    name: str
    server: DatabaseServer
    url: str
    login: Mapping[str, str]
    """What both sources of changes are configured with, ours and Debezium's."""
    own_class: str
    debezium: Mapping[str, str]
    """Debezium's class, with what it alone needs."""
    schema: str
    run: Callable[..., None]
    """Statements, each in a transaction of its own."""
    fill_sql: str
    """Rows ``{first}`` to ``{last}`` in one transaction."""
    log_sql: str
    """The same rows, each in a transaction of its own."""

    def fill(self, first: int, last: int) -> None:
        """Insert rows at once."""
        self.run(self.fill_sql.format(first=first, last=last))

    def log(self, first: int, last: int) -> None:
        """Insert rows, each in a transaction of its own."""
        self.run(self.log_sql.format(first=first, last=last))

    def topic(self, prefix: str) -> str:
        """Where changes of the table go."""
        return f"{prefix}.{self.schema}.{TABLE}"

    def change_keys(self, name: str, **more: str) -> dict[str, str]:
        """Of a source of changes with this name: a place of its own in the log, and keys as JSON."""
        return {
            **self.login,
            **_KEYS,
            "name": name,
            "tasks.max": "1",
            "topic.prefix": name,
            "table.include.list": rf"{self.schema}\.{TABLE}",
            "slot.name": re.sub("[^a-z0-9_]", "_", name),
            "database.server.id": str(1_000 + sum(name.encode())),
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    @contextmanager
    def changes(self, field: Field, name: str, **more: str) -> Iterator[Child]:
        """Ours, in a worker of its own; a second one of this name goes on."""
        keys = {
            "connector.class": self.own_class,
            **AVRO,
            **self.change_keys(name, **more),
        }
        if self.own_class != "PostgresCdcSource":
            del keys["slot.name"]
        with connector(field, name, keys) as child:
            yield child

    @contextmanager
    def polling(self, field: Field, name: str) -> Iterator[Child]:
        """``JdbcSource`` by ids, in a worker of its own; its topic is called as that of the changes is."""
        keys = {
            "connector.class": "JdbcSource",
            **AVRO,
            "connection.url": self.url,
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": TABLE,
            "topic.prefix": self.topic(name).removesuffix(TABLE),
        }
        with connector(field, name, keys) as child:
            yield child

    @contextmanager
    def debezium_changes(self, field: Field, name: str, **more: str) -> Iterator[Child]:
        """The real Debezium on a real Kafka Connect, with its defaults, and JSON without schemas; at least once."""
        folder = field.folder / name
        plugin = folder / "plugins" / "debezium"
        plugin.mkdir(parents=True, exist_ok=True)
        for jar in parts("debezium"):
            if not (plugin / jar.name).exists():
                (plugin / jar.name).symlink_to(jar)
        keys = {
            **self.change_keys(name, **more),
            **_VALUES,
            **self.debezium,
            "schema.history.internal.kafka.bootstrap.servers": field.servers.bootstrap,
            "schema.history.internal.kafka.topic": f"{name}-history",
        }
        worker = {"plugin.path": str(plugin.parent), "plugin.discovery": "service_load"}
        with connect_standalone(folder, keys, bootstrap=field.servers.bootstrap, more=worker) as child:
            yield child


@contextmanager
def connector(field: Field, name: str, keys: Mapping[str, str], **worker: str) -> Iterator[Child]:
    """A worker with one connector."""
    file = write_properties(field.folder / f"{name}.properties", {"name": name, **keys})
    log = field.folder / f"{name}.log"
    with headrace("standalone", str(field.worker(name, **worker)), str(file), log=log) as child:
        yield child


@contextmanager
def postgresql() -> Iterator[Subject]:
    """A new server."""
    with _folder() as folder, running_postgres(folder) as server:
        database = Postgres(server, "postgres")
        database.run(f"create table {TABLE} ({_POSTGRES_COLUMNS})")
        insert = f"insert into {TABLE} select {_POSTGRES_ROW} from generate_series"  # noqa: S608 - our own text
        each = "do $$ begin for n in {first}..{last} loop " + insert + "(n, n) i; commit; end loop; end $$"
        yield Subject(
            "PostgreSQL",
            server,
            database.url,
            {
                "database.hostname": "127.0.0.1",
                "database.port": str(server.port),
                "database.user": "postgres",
                "database.dbname": "postgres",
                "plugin.name": "pgoutput",
            },
            "PostgresCdcSource",
            {"connector.class": "io.debezium.connector.postgresql.PostgresConnector"},
            "public",
            database.run,
            insert + "({first}, {last}) i",
            each,
        )


@contextmanager
def mariadb() -> Iterator[Subject]:
    """A new server."""
    with _folder() as folder, running_mariadb(folder) as server:
        database = MariaDb(server, "bench")
        run = partial(_run_apart, database)
        run("create database bench", database=None)
        run(f"create table {TABLE} ({_MARIADB_COLUMNS})")
        insert = f"insert into {TABLE} select {_MARIADB_ROW} from (select {{}} as i) as numbers"  # noqa: S608 - our own text
        loop = f"while n <= last do {insert.format('n')}; set n = n + 1; end while"
        run(f"create procedure fill(first int, last int) begin declare n int default first; {loop}; end")
        yield Subject(
            "MariaDB",
            server,
            database.url,
            {
                "database.hostname": "127.0.0.1",
                "database.port": str(server.port),
                "database.user": "root",
                "database.include.list": "bench",
            },
            "MySqlCdcSource",
            {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "database.password": ""},
            "bench",
            run,
            insert.format("seq").replace("(select seq as i)", "(select seq as i from seq_{first}_to_{last})"),
            "call fill({first}, {last})",
        )


def _run_apart(database: MariaDb, /, *statements: str, **options: None) -> None:
    """In a thread, since its driver has an event loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(database.run, *statements, **options).result()


SUBJECTS = {"PostgreSQL": postgresql, "MariaDB": mariadb}


@contextmanager
def _folder() -> Iterator[Path]:
    """That the servers' user, who is not root, may enter."""
    with TemporaryDirectory(prefix="headrace-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)
