"""Records of several schemas: when a new file begins, and what projection makes of a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.sinks.avro_columns import avro_shape
from service.sinks.batch import Form, SinkBatch
from tests.unit.sinks.filesystem.files_runs import HERE, batch_of, config_of, running

N, M = {"name": "n", "type": "int"}, {"name": "m", "type": ["null", "string"], "default": None}
FLAG = {"name": "flag", "type": "boolean", "default": True}


def schema(*fields: Any, **more: Any) -> str:
    """An Avro record."""
    return json.dumps({"type": "record", "name": "Row", "fields": fields, **more})


OLD, NEW = schema(N), schema(N, M, FLAG)


def rows(of: str, begin: int, *values: dict[str, Any], refused: list[tuple[int, str, str]] | None = None) -> SinkBatch:
    """Records of a schema."""
    column = pa.array(values, avro_shape(of).type)
    return batch_of(column, begin=begin, schema=of, form=Form.RECORD, refused=refused)


async def written(folder: Path, mode: str, *batches: SinkBatch, flush_size: int = 100) -> list[list[dict[str, Any]]]:
    """The rows of each file that was committed, and, last, those of the one that is still open."""
    config = config_of(folder, format__class="ParquetFormat", schema__compatibility=mode, flush__size=str(flush_size))
    async with running(config) as sink:
        begin = (await sink.open({HERE: None})).get(HERE, 0)
        for batch in batches:
            if batch.records.column("offset")[0].as_py() >= begin:
                await sink.put(batch)
        sink._partitions[HERE].commit()
    files = sorted((folder / "topics").rglob("*.parquet"))
    return [pq.read_table(file, partitioning=None).to_pylist() for file in files]


OLD_ROW, NEW_ROW = {"n": 1}, {"n": 2, "m": "x", "flag": False}
FILLED = {"n": 1, "m": None, "flag": True}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("NONE", [[OLD_ROW], [NEW_ROW], [OLD_ROW]]),
        ("BACKWARD", [[OLD_ROW], [NEW_ROW, FILLED]]),
        ("FULL", [[OLD_ROW], [NEW_ROW, FILLED]]),
        ("FORWARD", [[OLD_ROW, {"n": 2}, OLD_ROW]]),
    ],
)
async def test_old_new_old(mode: str, expected: list[Any], tmp_path: Path) -> None:
    """One file switch under BACKWARD, none under FORWARD, one with each change where nothing is projected."""
    batches = rows(OLD, 0, OLD_ROW), rows(NEW, 1, NEW_ROW), rows(OLD, 2, OLD_ROW)
    assert await written(tmp_path, mode, *batches) == expected


async def test_the_schema_in_force_outlives_the_task(tmp_path: Path) -> None:
    """Who comes next projects to it too, so that files are the same whenever the task dies."""
    first = rows(NEW, 0, NEW_ROW)
    await written(tmp_path, "BACKWARD", first)
    assert await written(tmp_path, "BACKWARD", first, rows(OLD, 1, OLD_ROW)) == [[NEW_ROW], [FILLED]]


async def test_versions_say_which_schema_is_newer(tmp_path: Path) -> None:
    """Also where the newer one has fewer fields."""
    first, second = schema(N, M, **{"connect.version": 1}), schema(N, **{"connect.version": 2})
    batches = rows(first, 0, {"n": 1, "m": "x"}), rows(second, 1, OLD_ROW), rows(first, 2, {"n": 3, "m": "y"})
    assert await written(tmp_path, "BACKWARD", *batches) == [[{"n": 1, "m": "x"}], [OLD_ROW, {"n": 3}]]


async def test_numbers_get_wider_and_nothing_else(tmp_path: Path) -> None:
    """A whole number that the file's floating point has not is refused alone; a text for a number, with its name."""
    refused: list[tuple[int, str, str]] = []
    wide, long = schema({"name": "n", "type": "double"}), schema({"name": "n", "type": "long"})
    text = schema({"name": "n", "type": "string"})
    batches = (
        rows(wide, 0, {"n": 0.5}),
        rows(long, 1, {"n": 7}, {"n": 2**53 + 1}, {"n": -7}, refused=refused),
        rows(text, 4, {"n": "x"}, refused=refused),
    )
    assert await written(tmp_path, "BACKWARD", *batches) == [[{"n": 0.5}, {"n": 7.0}, {"n": -7.0}]]
    assert [(row, reason) for row, reason, _ in refused] == [(1, "wrong_type"), (0, "wrong_type")]
    assert refused[1][2].startswith("value.n: STRING where the file has FLOAT64")


async def test_a_missing_field_without_default_is_refused(tmp_path: Path) -> None:
    """Under FORWARD the file stays as it is, and the record says what it lacks."""
    refused: list[tuple[int, str, str]] = []
    needed, other = schema(N, {"name": "k", "type": "string"}), schema(N, M)
    batches = rows(needed, 0, {"n": 1, "k": "k"}), rows(other, 1, {"n": 2, "m": None}, refused=refused)
    assert await written(tmp_path, "FORWARD", *batches) == [[{"n": 1, "k": "k"}]]
    assert "value.k: is missing, and has no default" in refused[0][2]
