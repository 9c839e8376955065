"""Offsets that a person sets while the connector is stopped: what would have no effect is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fetchers.sdk.reach import AllowedPaths
from service.sinks.filesystem.sink import FileSystemSink
from tests.unit.sinks.filesystem.files_runs import HERE, batch_of, config_of, feed, found, running

THERE = ("orders", 1)
ROWS = [{"n": n} for n in range(9)]


def stopped(folder: Path, **changes: str) -> FileSystemSink:
    """An instance that runs nothing, as the worker asks it."""
    return FileSystemSink(config_of(folder, **changes))


async def test_what_is_in_files_already_is_not_begun_with_again(tmp_path: Path) -> None:
    """Nor where all is to be forgotten; from the end of the files on every offset is taken."""
    async with running(config_of(tmp_path)) as sink:
        await feed(sink, ROWS)
    for offset in (0, 8, None):
        told = r"partition 0 of topic orders is in files to offset 9.*remove its files together with 'logs/orders/0'"
        with pytest.raises(ValueError, match=told):
            stopped(tmp_path).check_offsets({THERE: 0, HERE: offset})
    stopped(tmp_path).check_offsets({HERE: 9, THERE: 0})
    stopped(tmp_path).check_offsets({HERE: 20, THERE: None})


async def test_looking_takes_nothing_over(tmp_path: Path) -> None:
    """Whoever writes to the files, though the connector should be stopped, commits as before."""
    async with running(config_of(tmp_path)) as sink:
        await feed(sink, ROWS[:3])
        with pytest.raises(ValueError, match="to offset 3"):
            stopped(tmp_path).check_offsets({HERE: 0})
        await sink.put(batch_of(ROWS[3:6], begin=3))
    assert len(found(tmp_path)) == 2


async def test_where_the_files_and_their_log_were_removed_it_begins_again(tmp_path: Path) -> None:
    """As the refusal says; a log alone that is removed leaves the files' names, which tell it too."""
    async with running(config_of(tmp_path)) as sink:
        await feed(sink, ROWS)
    shutil.rmtree(tmp_path / "logs")
    with pytest.raises(ValueError, match="to offset 9"):
        stopped(tmp_path).check_offsets({HERE: None})
    shutil.rmtree(tmp_path / "topics")
    stopped(tmp_path).check_offsets({HERE: None})
    stopped(tmp_path).check_offsets({HERE: 0})
    async with running(config_of(tmp_path)) as sink:
        await feed(sink, ROWS)
    assert [row for file in found(tmp_path).values() for row in file] == ROWS


def test_a_folder_that_was_never_written_to_takes_any_offset(tmp_path: Path) -> None:
    """It is not even made."""
    stopped(tmp_path / "none").check_offsets({HERE: 0, THERE: None})
    assert not (tmp_path / "none").exists()


async def test_files_that_cannot_be_asked_refuse_the_change(tmp_path: Path) -> None:
    """It would be obeyed or not, and nobody could say which."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/orders").write_text("in the way")
    with pytest.raises(ValueError, match=r"cannot be asked.*gone for good, set another 'store.url' first"):
        stopped(tmp_path).check_offsets({HERE: 0})
    stopped(tmp_path / "another").check_offsets({HERE: 0})
    (tmp_path / "logs/orders").unlink()
    (tmp_path / "logs/orders/0").mkdir(parents=True)
    (tmp_path / "logs/orders/0/00000000000000000001.commit").write_text("{")
    with pytest.raises(ValueError, match="is no entry of this sink's log"):
        stopped(tmp_path).check_offsets({HERE: 0})
    sink = stopped(tmp_path)
    sink.allowed_paths = AllowedPaths(("/nowhere",))
    with pytest.raises(ValueError, match="cannot be asked"):
        sink.check_offsets({HERE: 0})
