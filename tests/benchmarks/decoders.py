"""Rates of ``PostgresCdcSource`` and ``MySqlCdcSource`` alone, fetch to pages, with real servers; and of a decoder.

``python -m tests.benchmarks.decoders [rows]``.
"""

from __future__ import annotations

import asyncio
import shutil
import struct
import sys
import time
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.postgres_cdc.columns import Type
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.events import CapturedTable, change_form
from fetchers.postgres_cdc.fetcher import PostgresCdcSource
from fetchers.postgres_cdc.log import Framing
from fetchers.postgres_cdc.pgoutput import LogRelation, RelationColumn
from fetchers.postgres_cdc.place import Place
from fetchers.sdk import SystemClock
from fetchers.sdk.testing import FakeContext
from tests.databases import MariaDb, Postgres, running_mariadb, running_postgres

COLUMNS = (
    "id int primary key, a int not null, b bigint, c double precision, d numeric(12,2), e text, f text, "
    "g timestamptz, h boolean, i date"
)
VALUES = "g, g, g * 1000, g / 3.0, g / 7.0, 'name ' || g, md5(g::text), now(), g % 2 = 0, date '2024-01-01' + g % 1000"
BINLOG_COLUMNS = (
    "id int primary key, a int, b bigint, c double, d decimal(12,2), e varchar(30), f char(32), g datetime(6), "
    "h tinyint, i date"
)
BINLOG_VALUES = (
    "n, n, n * 1000, n / 3e0, round(n / 7, 2), concat('name ', n), md5(n), now(6), n % 2, "
    "'2024-01-01' + interval n % 1000 day"
)
ROWS = 200_000


def measured_decoder(rows: int) -> float:
    """Single-row inserts of ten columns, framed and decoded to pages; rows a second of one core's time."""
    names = ("int4", "int4", "int8", "float8", "numeric", "text", "text", "timestamptz", "bool", "date")
    types = {f"c{at}": Type(name, ((12 << 16) | 2) + 4 if name == "numeric" else -1) for at, name in enumerate(names)}
    columns = tuple(RelationColumn(name, 0, -1, at == 0) for at, name in enumerate(types))
    head = b"R" + struct.pack(">I", 1) + b"public\0t\0d" + struct.pack(">H", len(columns))
    for column in columns:
        head += bytes([column.is_identity]) + column.name.encode() + b"\0" + struct.pack(">Ii", 0, -1)
    config = PostgresCdcConfig.parse(
        {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "srv"}
    ).config
    assert config is not None
    relation = LogRelation(1, "public", "t", "d", columns)
    table = CapturedTable(config, change_form(config, "0"), relation, types, keys=["c0"], ask=lambda: types)
    messages = [(head, 0)]
    for number in range(rows):
        texts: tuple[object, ...] = (
            number,
            number,
            number * 1000,
            number / 3,
            f"{number / 7:.2f}",
            f"name {number}",
            "x" * 32,
        )
        texts += ("2024-02-29 12:34:56.789012+00", "t", "2024-01-01")
        row = b"".join(b"t" + struct.pack(">I", len(text)) + text for text in (str(part).encode() for part in texts))
        insert = b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">H", len(columns)) + row
        first = 1000 + number * 300
        messages.append((b"B" + struct.pack(">QqI", first + 200, 0, number), first))
        messages.append((insert, first + 100))
        messages.append((b"C\0" + struct.pack(">QQq", first + 200, first + 250, 0), first + 250))
    framing = Framing(Place(1), rows_max=config.max_batch_size, takes=lambda _: True)
    begun, done = time.process_time(), 0
    for message, position in messages:
        if framing.add(message, position):
            done += _decoded(table, framing)
    done += _decoded(table, framing)
    assert done == rows
    return rows / (time.process_time() - begun)


def _decoded(table: CapturedTable, framing: Framing) -> int:
    batch = framing.take()
    return sum(
        len(table.log_page(batch, group, handled_us=0, offset={}, ends_transaction=True)) for group in batch.groups
    )


async def measured_server(postgres: Postgres, rows: int) -> tuple[float, float]:
    """Rows a second of the snapshot, and of as many single-row transactions that wait in the log."""
    insert = f"insert into t select {VALUES} from generate_series"  # noqa: S608 - our own text
    postgres.run(f"create table t ({COLUMNS})", f"{insert}(1, {rows}) g")
    properties = {
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.server.port),
        "database.user": "postgres",
        "database.dbname": postgres.name,
        "topic.prefix": "srv",
    }
    config = PostgresCdcConfig.parse(properties).config
    assert config is not None
    context = FakeContext(partition={"server": "srv"}, clock=SystemClock())  # type: ignore[arg-type]
    rates: list[float] = []
    begun, done = time.perf_counter(), 0
    async with aclosing(PostgresCdcSource(config).fetch(context)) as pages:
        async for page in pages:
            done += len(page)
            if "lsn_commit" in page.offset and not rates:
                rates.append(done / (time.perf_counter() - begun))
                one = f"{insert}(n, n) g; commit;"
                postgres.run(f"do $$ begin for n in {rows + 1}..{2 * rows} loop {one} end loop; end $$")
                begun, done = time.perf_counter(), 0
            elif rates and done >= rows:
                return rates[0], done / (time.perf_counter() - begun)
    raise AssertionError("the log ended")


async def measured_binlog(mariadb: MariaDb, rows: int) -> float:
    """Rows a second of single-row transactions of ten columns that wait in MariaDB's log."""
    config = MySqlCdcConfig.parse(
        {
            "database.hostname": "127.0.0.1",
            "database.port": str(mariadb.server.port),
            "database.user": "root",
            "database.server.id": "4711",
            "topic.prefix": "srv",
            "snapshot.mode": "no_data",
        }
    ).config
    assert config is not None
    await mariadb.rows("create database bench", database=None)
    await mariadb.rows(f"create table t ({BINLOG_COLUMNS})")
    context = FakeContext(partition={"server": "srv"}, clock=SystemClock())  # type: ignore[arg-type]
    async with aclosing(MySqlCdcSource(config).fetch(context)) as pages:
        context.commit(await anext(pages))
    fill = "declare n int default 0; while n < k do insert into t select {}; set n = n + 1; end while"
    await mariadb.rows(f"create procedure fill(k int) begin {fill.format(BINLOG_VALUES)}; end", f"call fill({rows})")
    begun, done = time.perf_counter(), 0
    async with aclosing(MySqlCdcSource(config).fetch(context)) as pages:
        async for page in pages:
            done += len(page)
            if done >= rows:
                return done / (time.perf_counter() - begun)
    raise AssertionError("the log ended")


def main() -> None:
    """Print the four rates."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    print(f"decoder: {measured_decoder(rows):,.0f} rows a second of one core")
    with TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with running_postgres(folder) as server:
            snapshot, log = asyncio.run(measured_server(Postgres(server, "postgres"), rows))
        shutil.rmtree(folder / "postgresql", ignore_errors=True)
        with running_mariadb(folder) as server:
            binlog = asyncio.run(measured_binlog(MariaDb(server, "bench"), rows))
        shutil.rmtree(folder / "mariadb", ignore_errors=True)
    print(f"snapshot: {snapshot:,.0f} rows/s")
    print(f"log: {log:,.0f} rows/s")
    print(f"binlog: {binlog:,.0f} rows/s")


if __name__ == "__main__":
    main()
