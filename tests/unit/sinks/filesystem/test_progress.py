"""``FileSystemSink`` tells the worker of each step of a commit of many files: it is not taken for one that hangs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.sinks.avro_columns import avro_shape
from service.sinks.batch import Form
from service.sinks.contract import StartAnew
from service.sinks.filesystem.sink import FileSystemSink
from tests.unit.sinks.filesystem.files_runs import HERE, QuickStore, batch_of, config_of, found, running

FOLDERS = 20
BY_FIELD = {"partitioner__class": "FieldPartitioner", "partition__field__name": "n", "flush__size": str(FOLDERS)}
ROWS = [{"n": number} for number in range(FOLDERS)]


def steps_of(sink: FileSystemSink) -> list[None]:
    """One for each step that the worker is told of from now on."""
    steps: list[None] = []
    assert sink._context is not None
    sink._context.note_progress = lambda: steps.append(None)
    return steps


async def test_each_file_that_is_written_and_each_that_gets_its_name(tmp_path: Path) -> None:
    """A commit of thousands takes minutes in object storage, and each of its requests has a limit of its own."""
    async with running(config_of(tmp_path, **BY_FIELD)) as sink:
        steps = steps_of(sink)
        await sink.open({HERE: None})
        await sink.put(batch_of(ROWS))
    assert len(found(tmp_path)) == FOLDERS
    assert len(steps) >= 2 * FOLDERS


class NamelessStore(QuickStore):
    """No file of records gets its name."""

    def move(self, source: str, target: str) -> None:
        """Fail for those."""
        if target.startswith("topics/"):
            raise OSError(5, "the storage is away")
        super().move(source, target)


async def test_each_file_that_gets_its_name_from_a_successor(tmp_path: Path) -> None:
    """Who opens the partition next finishes what was committed before."""
    config = config_of(tmp_path, **BY_FIELD)
    async with running(config, store=NamelessStore(tmp_path)) as sink:
        await sink.open({HERE: None})
        with pytest.raises(StartAnew):
            await sink.put(batch_of(ROWS))
    assert found(tmp_path) == {}
    async with running(config) as sink:
        steps = steps_of(sink)
        assert await sink.open({HERE: None}) == {HERE: FOLDERS}
    assert len(found(tmp_path)) == FOLDERS
    assert len(steps) >= FOLDERS


async def test_each_statement_for_hive(tmp_path: Path) -> None:
    """There is one for each new folder."""
    schema = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "n", "type": "int"}]})
    column: Any = pa.array(ROWS, avro_shape(schema).type)
    hive = {"format__class": "ParquetFormat", "schema__compatibility": "BACKWARD", "hive__integration": "true"}
    async with running(config_of(tmp_path, **BY_FIELD, **hive)) as sink:
        steps = steps_of(sink)
        await sink.open({HERE: None})
        await sink.put(batch_of(column, schema=schema, form=Form.RECORD))
    assert len(steps) >= 3 * FOLDERS
