"""Drivers of databases: what a row costs until it is in typed Arrow columns, which is what this project makes of it.

``python -m tests.benchmarks.drivers``. Drivers that are not installed are left out; for those that are no requirement:
``pip install --target FOLDER asyncpg connectorx`` and ``PYTHONPATH=FOLDER``. Each run is a new process with one
connection, and a read that need not hold the whole result; all take turns, round by round. Processor time is told, so
that it holds on a busy machine, where a rate would say what else the machine does.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute

from tests.benchmarks.subjects import SUBJECTS, TABLE
from tests.benchmarks.watching import processor_seconds

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
BATCH_ROWS = 10_000
SQL = f"select * from {TABLE}"  # noqa: S608 - our own text
_POSTGRESQL: dict[str, Any] = {
    "id": pa.int64(),
    "a": pa.int32(),
    "b": pa.float64(),
    "c": pa.string(),
    "d": pa.timestamp("us", "UTC"),
    "e": pa.bool_(),
    "f": pa.decimal128(12, 2),
    "g": pa.string(),
    "h": pa.date32(),
    "k": pa.int16(),
}
_MARIADB: dict[str, Any] = _POSTGRESQL | {"d": pa.timestamp("us"), "e": pa.int8()}
_TYPES = {"PostgreSQL": _POSTGRESQL, "MariaDB": _MARIADB}
Read = Callable[[int], Iterator[Any] | AsyncIterator[Any]]
"""Tables and record batches of the rows, by the server's port."""


def _of_values(rows: Sequence[Sequence[Any]], types: dict[str, Any]) -> Any:
    """Of Python's objects."""
    columns = zip(types.values(), zip(*rows, strict=True), strict=True)
    return pa.table([pa.array(values, kind) for kind, values in columns], names=list(types))


def adbc(port: int) -> Iterator[Any]:
    """``COPY`` in binary form, by libpq; the driver gives NUMERIC as text."""
    dbapi = import_module("adbc_driver_postgresql.dbapi")
    with dbapi.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres") as connection, connection.cursor() as cursor:
        cursor.execute(SQL)
        yield from cursor.fetch_record_batch()


async def asyncpg(port: int) -> AsyncIterator[Any]:
    """A cursor in a transaction."""
    connection = await import_module("asyncpg").connect(host="127.0.0.1", port=port, user="postgres")
    async with connection.transaction():
        cursor = await connection.cursor(SQL)
        while rows := await cursor.fetch(BATCH_ROWS):
            yield _of_values(rows, _POSTGRESQL)
    await connection.close()


def psycopg(port: int) -> Iterator[Any]:
    """A cursor of the server, values in binary form."""
    driver = import_module("psycopg")
    with (
        driver.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres") as connection,
        connection.cursor("rows", binary=True) as cursor,
    ):
        cursor.execute(SQL)
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield _of_values(rows, _POSTGRESQL)


def _connectorx(url: str) -> Iterator[Any]:
    yield from import_module("connectorx").read_sql(url, SQL, return_type="arrow_stream", batch_size=BATCH_ROWS)


def connectorx_of_postgresql(port: int) -> Iterator[Any]:
    """Binary ``COPY``, its default."""
    return _connectorx(f"postgresql://postgres@127.0.0.1:{port}/postgres")


def connectorx_of_mariadb(port: int) -> Iterator[Any]:
    """Values in binary form, its default."""
    return _connectorx(f"mysql://root@127.0.0.1:{port}/bench")


async def _asyncmy(port: int, make: Callable[[Sequence[Any]], Any], **more: Any) -> AsyncIterator[Any]:
    cursors = import_module("asyncmy.cursors")
    where = {"host": "127.0.0.1", "port": port, "user": "root", "database": "bench", "charset": "utf8mb4"}
    connection = await import_module("asyncmy").connect(**where, **more)
    async with connection.cursor(cursors.SSCursor) as cursor:
        await cursor.execute(SQL)
        while rows := await cursor.fetchmany(BATCH_ROWS):
            yield make(rows)
    await connection.ensure_closed()


def asyncmy_texts(port: int) -> AsyncIterator[Any]:
    """Each value as the server's own text, of which Arrow makes columns: as the sources here do."""
    texts = dict.fromkeys(_MARIADB, pa.string())
    return _asyncmy(port, lambda rows: _of_values(rows, texts), conv={255: str})


def asyncmy_values(port: int) -> AsyncIterator[Any]:
    """Values as the driver makes them."""
    return _asyncmy(port, lambda rows: _of_values(rows, _MARIADB))


DRIVERS: dict[str, dict[str, tuple[str, Read]]] = {
    "PostgreSQL": {
        "ADBC": ("adbc_driver_postgresql", adbc),
        "asyncpg": ("asyncpg", asyncpg),
        "psycopg": ("psycopg", psycopg),
        "connectorx": ("connectorx", connectorx_of_postgresql),
    },
    "MariaDB": {
        "asyncmy, texts": ("asyncmy", asyncmy_texts),
        "asyncmy, its own values": ("asyncmy", asyncmy_values),
        "connectorx": ("connectorx", connectorx_of_mariadb),
    },
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run: seconds of processor time in the driver's process, those by the clock, and its memory."""

    seconds: float
    clock_seconds: float
    grown_bytes: int


def cost(database: str, name: str, port: int, rows: int) -> Cost:
    """Read all rows; raises AssertionError where they are not those of the table."""
    module, read = DRIVERS[database][name]
    import_module(module)
    before, began, began_at = _memory("VmRSS"), time.process_time(), time.perf_counter()
    found = asyncio.run(_sums(read(port), _TYPES[database]))
    used = Cost(time.process_time() - began, time.perf_counter() - began_at, _memory("VmHWM") - before)
    numbers = rows * (rows + 1) // 2
    assert found == (rows, numbers, numbers), f"{name} has read {found} of {rows:,} rows"
    return used


async def _sums(batches: Iterator[Any] | AsyncIterator[Any], types: dict[str, Any]) -> tuple[int, int, int]:
    """How many rows, the sum of ``id``, and a hundred times that of ``f``, which is a hundredth of ``id``."""
    count, ids, hundredths = 0, 0, 0

    def add(batch: Any) -> None:
        nonlocal count, ids, hundredths
        typed = {name: batch.column(at).cast(kind) for at, (name, kind) in enumerate(types.items())}
        count += batch.num_rows
        ids += pc.sum(typed["id"], min_count=0).as_py()
        hundredths += int(pc.sum(typed["f"], min_count=0).as_py() * 100)

    if isinstance(batches, AsyncIterator):
        async for batch in batches:
            add(batch)
    else:
        for batch in batches:
            add(batch)
    return count, ids, hundredths


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found, name
    return int(found[1]) * 1024


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(*, rows: int, rounds: int) -> None:
    """Print a table of medians, as a page has it."""
    click.echo("| database | driver | µs a row | of all rounds | the server's µs | rows/s by the clock | memory |")
    click.echo("|---|---|---|---|---|---|---|")
    spawning = multiprocessing.get_context("spawn")
    for database, opened in SUBJECTS.items():
        names = [name for name, (module, _) in DRIVERS[database].items() if find_spec(module)]
        costs: dict[str, list[tuple[Cost, float]]] = {name: [] for name in names}
        with opened() as subject:
            subject.fill(1, rows)
            sample = processor_seconds({"server": subject.server.pid})
            for number in range(rounds):
                for name in names if number % 2 else reversed(names):
                    before = sample()["server"]
                    with spawning.Pool(1) as pool:
                        used = pool.apply(cost, (database, name, subject.server.port, rows))
                    costs[name].append((used, sample()["server"] - before))
        for name, runs in costs.items():
            micros = sorted(used.seconds / rows * 1e6 for used, _ in runs)
            served = statistics.median(seconds for _, seconds in runs) / rows * 1e6
            rate = rows / statistics.median(used.clock_seconds for used, _ in runs)
            grown = max(used.grown_bytes for used, _ in runs) >> 20
            each = " ".join(f"{value:.2f}" for value in micros)
            median = f"**{statistics.median(micros):.2f}**"
            click.echo(f"| {database} | {name} | {median} | {each} | {served:.2f} | {rate:,.0f} | +{grown} MiB |")


if __name__ == "__main__":
    main()
