"""Disks, permissions and names that do not work, and who says what is to be done."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, SystemClock
from fetchers.sdk.reach import AllowedAddresses, AllowedPaths
from metrics.events import discard
from service.domain.errors import Recovery, recovery_of
from service.sinks.batch import SinkBatch
from service.sinks.contract import Partition, SinkContext, StartAnew
from service.sinks.filesystem.folders import Placed
from service.sinks.filesystem.sink import FileSystemSink
from service.sinks.filesystem.stores import LocalStore
from service.sinks.filesystem.writing import Moment, PartitionFiles
from service.sinks.shapes import NO_SHAPE
from tests.unit.sinks.filesystem.files_runs import HERE, QuickStore, batch_of, config_of, found, running

ROWS = [{"n": n} for n in range(3)]


class FailingStore(QuickStore):
    """Fails to close files, with an error of the system."""

    def __init__(self, root: Path, number: int) -> None:
        super().__init__(root)
        self.number = number

    def finish(self, file: IO[bytes]) -> None:
        """Close it, and fail as `number` says."""
        super().finish(file)
        if self.number and "tmp" in str(file.name):
            raise OSError(self.number, os.strerror(self.number), file.name)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "the disk is full: make room, then restart the task"),
        (errno.EDQUOT, "quota is used up"),
        (errno.EACCES, "permission is denied: let the worker's user write there"),
        (errno.EROFS, "mounted read-only"),
    ],
)
async def test_what_a_person_must_mend(number: int, told: str, tmp_path: Path) -> None:
    """The task fails and says so; mended and begun anew, every record is there once."""
    store = FailingStore(tmp_path, 0)
    async with running(config_of(tmp_path), store=store) as sink:
        await sink.open({HERE: None})
        store.number = number
        with pytest.raises(Fatal, match=told):
            await sink.put(batch_of(ROWS))
        with pytest.raises(StartAnew):
            await sink.put(batch_of(ROWS))
    assert found(tmp_path) == {}
    async with running(config_of(tmp_path)) as sink:
        assert await sink.open({HERE: None}) == {}
        await sink.put(batch_of(ROWS))
    assert list(found(tmp_path).values()) == [ROWS]


async def test_other_errors_begin_the_task_anew(tmp_path: Path) -> None:
    """What passes by itself: the worker restarts the task, with its waits."""
    store = FailingStore(tmp_path, 0)
    async with running(config_of(tmp_path), store=store) as sink:
        await sink.open({HERE: None})
        store.number = errno.EIO
        with pytest.raises(StartAnew) as caught:
            await sink.put(batch_of(ROWS))
    assert recovery_of(caught.value) is Recovery.RESTART


async def test_a_put_that_is_given_up_may_begin_after_its_partitions_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is slower than the task, which goes on with a rebalance; nothing is wrong with the sink."""
    begun, may_go, by_partition = threading.Event(), threading.Event(), SinkBatch.by_partition

    def late(batch: SinkBatch) -> Iterator[tuple[Partition, SinkBatch]]:
        begun.set()
        assert may_go.wait(60)
        return iter(list(by_partition(batch)))

    monkeypatch.setattr(SinkBatch, "by_partition", late)
    async with running(config_of(tmp_path)) as sink:
        await sink.open({HERE: None})
        async with asyncio.TaskGroup() as group:
            put = group.create_task(sink.put(batch_of(ROWS[:2])))
            assert await asyncio.to_thread(begun.wait, 30)
            put.cancel()
            group.create_task(sink.close([HERE]))
            await asyncio.sleep(0)
            may_go.set()
        assert await sink.open({HERE: None}) == {}
        await sink.put(batch_of(ROWS))
    assert list(found(tmp_path).values()) == [ROWS]


async def test_a_file_that_is_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    """It is named, with what to do; the records are safe meanwhile, and get their name when it is gone."""
    name = "orders/partition=0/orders+0+0000000000+0000000002.json"
    async with running(config_of(tmp_path)) as sink:
        await sink.open({HERE: None})
        (tmp_path / "topics" / name).parent.mkdir(parents=True)
        (tmp_path / "topics" / name).write_text("precious")
        with pytest.raises(Fatal, match="is there already, and not of this connector: move it away"):
            await sink.put(batch_of(ROWS))
    assert (tmp_path / "topics" / name).read_text() == "precious"
    (tmp_path / "topics" / name).unlink()
    async with running(config_of(tmp_path)) as sink:
        assert await sink.open({HERE: None}) == {HERE: 3}
    assert found(tmp_path) == {name: ROWS}


async def test_a_file_that_was_removed_while_it_was_written_is_not_committed(tmp_path: Path) -> None:
    """By whoever cleans up: its records come again, instead of being taken for written."""
    rows = [{"n": "x" * 600_000} for _ in range(3)]
    store = LocalStore(tmp_path, AllowedPaths())
    async with running(config_of(tmp_path, buffer__bytes="1048576"), store=store) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(rows[:2]))
        (temporary,) = (file for file in (tmp_path / "topics/+tmp").rglob("*") if file.is_file())
        temporary.unlink()
        with pytest.raises(StartAnew, match="removed"):
            await sink.put(batch_of(rows[2:], begin=2))
    async with running(config_of(tmp_path)) as sink:
        assert await sink.open({HERE: None}) == {}
        await sink.put(batch_of(rows))
    assert list(found(tmp_path).values()) == [rows]


def test_a_finished_file_is_durable_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's entry, which is durable, names it: a power cut must not leave the entry without the file."""
    synced: list[tuple[int, int]] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.append((status.st_dev, status.st_ino))
        sync(descriptor)

    store = LocalStore(tmp_path, AllowedPaths())
    file = store.create("folder/file")
    file.write(b"x")
    monkeypatch.setattr(os, "fsync", noted)
    store.finish(file)
    places = [(tmp_path / "folder" / "file").stat(), (tmp_path / "folder").stat()]
    assert synced == [(each.st_dev, each.st_ino) for each in places]


async def test_a_broken_log_is_not_believed(tmp_path: Path) -> None:
    """It says what to do, and nothing is written."""
    (tmp_path / "logs/orders/0").mkdir(parents=True)
    (tmp_path / "logs/orders/0/00000000000000000001.commit").write_text("{")
    async with running(config_of(tmp_path)) as sink:
        with pytest.raises(Fatal, match="is no entry of this sink's log"):
            await sink.open({HERE: None})


async def test_a_topic_that_names_no_folder(tmp_path: Path) -> None:
    """A transformation may make anything of a topic's name: its records are refused, and no folder is left."""
    refused: list[tuple[int, str, str]] = []
    async with running(config_of(tmp_path)) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(ROWS, topic="../../elsewhere", refused=refused))
        await sink.put(batch_of(ROWS, begin=3, topic="routed"))
    assert [(row, reason) for row, reason, _ in refused] == [(n, "out_of_range") for n in range(3)]
    assert list(found(tmp_path, "topics/**/*.json")) == ["routed/partition=0/orders+0+0000000003+0000000005.json"]


async def test_one_who_was_cut_off_for_long_commits_nothing(tmp_path: Path) -> None:
    """The number that it wants is free again, because its successor has gone on and removed older entries."""
    async with running(config_of(tmp_path, flush__size="2")) as old, running(config_of(tmp_path)) as new:
        for sink in (old, new):
            await sink.open({HERE: None})
        await new.put(batch_of(ROWS))
        assert [file.name for file in (tmp_path / "logs/orders/0").iterdir()] == [f"{3:020}.commit"]
        with pytest.raises(StartAnew, match="another task has taken the partition over"):
            await old.put(batch_of(ROWS))
        await new.put(batch_of(ROWS, begin=3))
    assert list(found(tmp_path).values()) == [ROWS, ROWS]


class OvertakenStore(QuickStore):
    """Stalls after its claim, until another task has taken the partition over and has gathered files."""

    def __init__(self, root: Path, overtake: Callable[[], None]) -> None:
        super().__init__(root)
        self.overtake = overtake

    def names(self, folder: str) -> list[str]:
        """As of a folder of this machine, when the other one is there."""
        if "+tmp" in folder:
            self.overtake()
        return super().names(folder)


def test_one_who_stalls_after_its_claim_removes_nothing_of_its_successor(tmp_path: Path) -> None:
    """Its claim is older by then: the successor's files are not garbage, and may be committed already."""
    config = config_of(tmp_path)
    successor = PartitionFiles(QuickStore(tmp_path), config, HERE, lambda: None)

    def overtake() -> None:
        successor.claim(None)
        where = Placed(np.zeros(2, np.int64), ["orders/partition=0"], None, np.ones(2, bool))
        values = pa.array(['{"n":0}', '{"n":1}'])
        successor.take(values, np.arange(2, dtype=np.int64), where, shape=NO_SHAPE, now=Moment(0, 0))
        for file in successor._files.values():
            successor._begun(file)

    PartitionFiles(OvertakenStore(tmp_path, overtake), config, HERE, lambda: None).claim(None)
    successor.commit()
    assert list(found(tmp_path).values()) == [[{"n": 0}, {"n": 1}]]


async def test_a_topic_that_was_made_anew_is_told(tmp_path: Path) -> None:
    """Its records have offsets that are written already: passing over them would lose them."""
    async with running(config_of(tmp_path)) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(ROWS))
    async with running(config_of(tmp_path)) as sink:
        await sink.open({HERE: None})
        with pytest.raises(Fatal, match=r"record of offset 0, and its files go to offset 3: .* remove 'logs/orders'"):
            await sink.put(batch_of(ROWS))


async def test_internal_addresses_are_bounded_by_the_worker(tmp_path: Path) -> None:
    """A name node is connected to by a client of its own, so the sink looks at its address."""
    sink = FileSystemSink(config_of(tmp_path, store__url="hdfs://127.0.0.1:1"))
    sink.allowed_addresses = AllowedAddresses(is_internal_free=False)
    async with shared_http() as http:
        with pytest.raises(Fatal, match=r"127.0.0.1 is an internal address"):
            await sink.start(SinkContext("files", 0, SystemClock(), discard, http))
        await sink.stop()


def test_folders_of_this_machine_are_bounded_by_the_worker(tmp_path: Path) -> None:
    """By its config, and with every file once more, since links may have changed."""
    sink = FileSystemSink(config_of(tmp_path / "out"))
    sink.allowed_paths = AllowedPaths((str(tmp_path / "in"),))
    assert [finding.key for finding in sink.findings()] == ["store.url"]
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    store = LocalStore(tmp_path / "in", sink.allowed_paths)
    assert store.put_new("a/b", b"1")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    with pytest.raises(Fatal, match="is not within"):
        store.create("link/c")


async def test_what_was_refused_is_told_again_as_long_as_the_group_has_not_committed_it(tmp_path: Path) -> None:
    """Its file was committed, and the task died before its dead letter was written; nothing is written twice."""
    rows: list[Any] = [{"n": 0}, None, {"n": 2}, {"n": 3}, {"n": 4}]
    told: list[list[int]] = []
    for group_offset in (None, 0, 1, 2):
        refused: list[tuple[int, str, str]] = []
        async with running(config_of(tmp_path, behavior__on__null__values="fail")) as sink:
            begin = (await sink.open({HERE: group_offset})).get(HERE, 0)
            await sink.put(batch_of(rows[begin:], begin=begin, refused=refused))
            assert await sink.flush({HERE: 5}) == {HERE: 4}
        told.append([begin + row for row, *_ in refused])
    assert told == [[1], [1], [1], []]
    assert list(found(tmp_path).values()) == [[rows[0], rows[2], rows[3]]]
