"""A disk that fills up under the table that ``JdbcSink`` writes to, in a real PostgreSQL.

Not in a MariaDB: on a full disk its InnoDB ends the server, which to a sink is a server that is away.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetchers.sdk import Fatal
from service.sinks.contract import SinkBatch
from tests.databases import Postgres
from tests.jdbc_sink_suite import HERE, batch_of, order, running
from tests.small_disk import SmallDisk, mounted

pytestmark = [pytest.mark.integration, pytest.mark.faults]
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


async def test_a_tablespace_that_fills_up(postgres: Postgres, disk: SmallDisk) -> None:
    """The task fails and says what to do; with room again it goes on behind what was committed, each row once."""
    space = f"space_{postgres.name}"
    config = {"connection.url": postgres.url, "insert.mode": "insert", "offsets.table": "headrace_offsets"}
    postgres.run(f"create tablespace {space} location '{disk.folder}'")
    try:
        postgres.run(f"create table orders (status text, amount int) tablespace {space}")
        async with running(config) as sink:
            await sink.open({HERE: None})
            await sink.put(records(0, FIRST))
            disk.fill(left_bytes=100_000)
            with pytest.raises(Fatal, match="the disk of the server is full: make room, then restart the task"):
                await sink.put(records(FIRST, MORE))
        disk.make_room()
        async with running(config) as sink:
            begin = (await sink.open({HERE: None}))[HERE]
            assert begin == FIRST
            await sink.put(records(begin, MORE))
        assert [row[0] for row in postgres.rows("select amount from orders order by 1")] == [*range(FIRST + MORE)]
    finally:
        postgres.run("drop table if exists orders", f"drop tablespace {space}")
