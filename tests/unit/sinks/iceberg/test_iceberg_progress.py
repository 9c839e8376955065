"""``IcebergSink`` tells the worker of each step of a commit of many files: it is not taken for one that hangs."""

from __future__ import annotations

from pathlib import Path

from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of

PLACES = 20


async def test_each_data_file_and_the_commit(tmp_path: Path) -> None:
    """A flush writes what is held, a file for each partition of the table, before it commits."""
    lake, steps = LakeFolder(tmp_path), list[None]()
    async with lake.running(iceberg__tables__default___partition___by="place") as sink:
        assert sink._context is not None
        sink._context.note_progress = lambda: steps.append(None)
        await sink.open({HERE: None})
        await sink.put(batch_of([{"place": f"p{number}"} for number in range(PLACES)]))
        assert steps == []
        assert await sink.flush({HERE: PLACES}) == {HERE: PLACES}
    assert len(steps) == PLACES + 1
