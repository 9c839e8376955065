"""A disk that fills up, and one that is mounted read-only, under the sinks that write to a disk themselves."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, SystemClock
from metrics.events import discard
from service.sinks.contract import SinkBatch, SinkConnector, SinkContext
from service.sinks.file.sink import FileStreamSink, FileStreamSinkConfig
from service.sinks.iceberg.sink import IcebergSink
from service.sinks.jdbc.sink import JdbcSink
from tests.small_disk import SmallDisk
from tests.unit.sinks.filesystem import files_runs
from tests.unit.sinks.iceberg import iceberg_runs

pytestmark = [pytest.mark.integration, pytest.mark.faults]
HERE = ("orders", 0)
FIRST, MORE = 5, 300
"""Records before the disk is full; more than the disk has room for."""
LEFT_BYTES = 200_000
SCHEMA = '{"type":"struct","fields":[{"field":"n","type":"int32"},{"field":"text","type":"string"}]}'
Running = Callable[[], AbstractAsyncContextManager[SinkConnector[Any]]]


@dataclass(frozen=True)
class OnDisk:
    """One sink that writes there."""

    running: Running
    batch: Callable[[Sequence[Any], int], SinkBatch]
    written: Callable[[], list[int]]


def files_on(folder: Path) -> OnDisk:
    """``FileSystemSink``: a file for each five records."""
    config = files_runs.config_of(folder, flush__size=str(FIRST))

    def written() -> list[int]:
        return sorted(row["n"] for rows in files_runs.found(folder).values() for row in rows)

    def batch(values: Sequence[Any], begin: int) -> SinkBatch:
        return files_runs.batch_of(values, begin=begin)

    return OnDisk(lambda: files_runs.running(config), batch, written)


def table_on(folder: Path) -> OnDisk:
    """``IcebergSink``: data, manifests and metadata are there, and the catalogue beside it."""
    lake = iceberg_runs.LakeFolder(folder.parent)

    def running() -> AbstractAsyncContextManager[SinkConnector[Any]]:
        return lake.running(iceberg__catalog__warehouse=f"file://{folder}/lake")

    def written() -> list[int]:
        try:
            return lake.rows("n")
        except NoSuchTableError:
            return []

    def batch(values: Sequence[Any], begin: int) -> SinkBatch:
        return iceberg_runs.batch_of(values, begin=begin)

    return OnDisk(running, batch, written)


def sqlite_on(folder: Path) -> OnDisk:
    """``JdbcSink``: the file of the database is there, and its journal."""
    file = folder / "shop.db"
    keys = {"connection.url": f"jdbc:sqlite:{file}", "auto.create": "true", "offsets.table": "headrace_offsets"}

    def running() -> AbstractAsyncContextManager[SinkConnector[Any]]:
        return started(JdbcSink(JdbcSink.config_class.parse(keys).config))  # type: ignore[arg-type]

    def written() -> list[int]:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return [row[0] for row in connection.execute("select n from orders order by n")]

    def batch(values: Sequence[Any], begin: int) -> SinkBatch:
        return files_runs.batch_of(values, begin=begin, schema=SCHEMA)

    return OnDisk(running, batch, written)


def lines_on(folder: Path) -> OnDisk:
    """``FileStreamSink``: one file, and the note beside it."""
    file = folder / "lines.txt"
    config = FileStreamSinkConfig.model_validate({"file": str(file)})

    def written() -> list[int]:
        return [json.loads(line)["n"] for line in file.read_text().split("\n")[:-1]]

    def batch(values: Sequence[Any], begin: int) -> SinkBatch:
        return files_runs.batch_of(values, begin=begin)

    return OnDisk(lambda: started(FileStreamSink(config)), batch, written)


@asynccontextmanager
async def started(sink: SinkConnector[Any]) -> AsyncIterator[SinkConnector[Any]]:
    """As a task of its own, stopped at the end."""
    async with shared_http() as http:
        await sink.start(SinkContext("shop", 0, SystemClock(), discard, http))
        try:
            yield sink
        finally:
            await sink.stop()


@pytest.fixture(params=[files_on, table_on, sqlite_on, lines_on])
def on_disk(request: pytest.FixtureRequest, small_disk: SmallDisk) -> OnDisk:
    """Each of them, on the small disk."""
    made: OnDisk = request.param(small_disk.folder)
    return made


def records(begin: int, count: int) -> list[dict[str, Any]]:
    """Rows that no compression makes small."""
    return [{"n": n, "text": random.Random(n).randbytes(1000).hex()} for n in range(begin, begin + count)]


async def write(sink: SinkConnector[Any], on_disk: OnDisk, begin: int, count: int) -> None:
    """Put and flushed."""
    await sink.put(on_disk.batch(records(begin, count), begin))
    await sink.flush({HERE: begin + count})


async def opened_and_written(sink: SinkConnector[Any], on_disk: OnDisk) -> None:
    """Some write when they take a partition over, others later."""
    await sink.open({HERE: FIRST})
    await write(sink, on_disk, FIRST, MORE)


async def go_on(on_disk: OnDisk) -> None:
    """Begin anew, as the worker does after somebody has mended it; each record must be there once."""
    async with on_disk.running() as sink:
        begin = (await sink.open({HERE: FIRST})).get(HERE, FIRST)
        for first in range(begin, FIRST + MORE, 100):
            await write(sink, on_disk, first, min(100, FIRST + MORE - first))
    assert on_disk.written() == list(range(FIRST + MORE))


async def test_a_disk_that_is_full(on_disk: OnDisk, small_disk: SmallDisk) -> None:
    """The task fails and says what to do; what was committed stays, and no record comes twice or never."""
    async with on_disk.running() as sink:
        await sink.open({HERE: None})
        await write(sink, on_disk, 0, FIRST)
        small_disk.fill(left_bytes=LEFT_BYTES)
        with pytest.raises(Fatal, match="the disk is full: make room"):
            await write(sink, on_disk, FIRST, MORE)
    small_disk.make_room()
    assert on_disk.written()[:FIRST] == list(range(FIRST))
    await go_on(on_disk)


async def test_a_disk_that_is_read_only(on_disk: OnDisk, small_disk: SmallDisk) -> None:
    """The same for a permission that is lost; nothing waits for a disk that mends itself."""
    async with on_disk.running() as sink:
        await sink.open({HERE: None})
        await write(sink, on_disk, 0, FIRST)
    async with on_disk.running() as sink:
        small_disk.set_writable(is_writable=False)
        with pytest.raises(Fatal, match="read-only: mount it to be written"):
            await opened_and_written(sink, on_disk)
    small_disk.set_writable(is_writable=True)
    await go_on(on_disk)


async def test_a_disk_that_fills_up_before_the_manifests_of_a_commit(small_disk: SmallDisk) -> None:
    """The data files are written already; the table still says what it said, and the task says what to do."""
    on_disk = table_on(small_disk.folder)
    async with on_disk.running() as sink:
        await sink.open({HERE: None})
        await write(sink, on_disk, 0, FIRST)
        await sink.put(on_disk.batch(records(FIRST, 100), FIRST))
        assert isinstance(sink, IcebergSink)
        sink._tables["shop.orders"].write()
        small_disk.fill(left_bytes=0)
        with pytest.raises(Fatal, match="the disk is full: make room"):
            await sink.flush({HERE: FIRST + 100})
    small_disk.make_room()
    assert on_disk.written() == list(range(FIRST))
    await go_on(on_disk)


async def test_a_sql_catalogue_that_is_read_only(small_disk: SmallDisk, tmp_path: Path) -> None:
    """It can be read, so the table is found; the first commit fails the task with words, and nothing is lost."""
    lake = iceberg_runs.LakeFolder(small_disk.folder)
    warehouse: dict[str, Any] = {"iceberg__catalog__warehouse": f"file://{tmp_path}/lake"}
    async with lake.running(**warehouse) as sink:
        await sink.open({HERE: None})
        await sink.put(iceberg_runs.batch_of(iceberg_runs.numbers(range(3))))
        await sink.flush({HERE: 3})
    small_disk.set_writable(is_writable=False)
    async with lake.running(**warehouse) as sink:
        await sink.open({HERE: 3})
        await sink.put(iceberg_runs.batch_of(iceberg_runs.numbers(range(3, 6)), begin=3))
        with pytest.raises(Fatal, match="read-only: mount it to be written"):
            await sink.flush({HERE: 6})
    assert lake.rows() == [0, 1, 2]
    small_disk.set_writable(is_writable=True)
    async with lake.running(**warehouse) as sink:
        await sink.open({HERE: 3})
        await sink.put(iceberg_runs.batch_of(iceberg_runs.numbers(range(3, 6)), begin=3))
        await sink.flush({HERE: 6})
    assert lake.rows() == list(range(6))
