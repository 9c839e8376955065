"""A disk that fills up under the table that ``JdbcSink`` writes to, in a real PostgreSQL and a real MariaDB."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fetchers.sdk import Fatal
from service.sinks.contract import SinkBatch
from tests.databases import MariaDb, Postgres
from tests.jdbc_sink_suite import HERE, batch_of, order, running
from tests.small_disk import SmallDisk, mounted

pytestmark = [pytest.mark.integration, pytest.mark.faults]
ONCE = {"insert.mode": "insert", "offsets.table": "headrace_offsets"}
DISK_BYTES = 8 << 20
FIRST, MORE = 5, 4_000
"""Records before the disk is full; more than the disk has room for."""


@pytest.fixture
def disk(database_folder: Path) -> Iterator[SmallDisk]:
    """Of the servers' own user."""
    folder = database_folder / "small-disk"
    try:
        with mounted(folder, size_bytes=DISK_BYTES) as made:
            shutil.chown(folder, "nobody", "nogroup")
            yield made
    finally:
        folder.rmdir()


def records(begin: int, count: int) -> SinkBatch:
    """Rows that take room."""
    rows = [(None, order(random.Random(n).randbytes(500).hex(), n)) for n in range(begin, begin + count)]
    return batch_of(rows, begin=begin)


async def fill_and_go_on(url: str, disk: SmallDisk) -> None:
    """The task fails and says what to do; with room again it goes on behind what was committed."""
    async with running({"connection.url": url, **ONCE}) as sink:
        await sink.open({HERE: None})
        await sink.put(records(0, FIRST))
        disk.fill(left_bytes=100_000)
        with pytest.raises(Fatal, match="the disk of the server is full: make room, then restart the task"):
            await sink.put(records(FIRST, MORE))
    disk.make_room()
    async with running({"connection.url": url, **ONCE}) as sink:
        begin = (await sink.open({HERE: None}))[HERE]
        assert begin == FIRST
        await sink.put(records(begin, MORE))


async def test_of_postgresql(postgres: Postgres, disk: SmallDisk) -> None:
    """The table has a tablespace of its own there; each row is there once."""
    space = f"space_{postgres.name}"
    postgres.run(f"create tablespace {space} location '{disk.folder}'")
    try:
        postgres.run(f"create table orders (status text, amount int) tablespace {space}")
        await fill_and_go_on(postgres.url, disk)
        assert [row[0] for row in postgres.rows("select amount from orders order by 1")] == [*range(FIRST + MORE)]
    finally:
        postgres.run("drop table if exists orders", f"drop tablespace {space}")


async def test_of_mariadb(mariadb: MariaDb, disk: SmallDisk) -> None:
    """The file of the table is there; each row is there once."""
    made = f"create table orders (status longtext, amount int) data directory='{disk.folder}'"
    await mariadb.rows(made)
    await fill_and_go_on(mariadb.url, disk)
    found: list[Any] = await mariadb.rows("select amount from orders order by 1")
    assert [int(row[0]) for row in found] == [*range(FIRST + MORE)]
    await mariadb.rows("drop table orders")
