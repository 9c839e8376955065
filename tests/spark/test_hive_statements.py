"""The statements that ``FileSystemSink`` writes for Hive, run in Spark: ``SELECT`` sees folders and the new column."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.sinks.avro_columns import avro_shape
from service.sinks.batch import Form
from tests.bound import bound
from tests.unit.sinks.filesystem.files_runs import HERE, batch_of, config_of, running

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "int"},
    {"name": "kind", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "inner", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "double"}]}},
]
TIMES_MS = [1_750_000_000_123, -86_400_000, 0]
MORE = {"name": "more", "type": ["null", "string"], "default": None}


async def spark(folder: Path, query: str) -> list[dict[str, Any]]:
    """Rows of a query after all statements were run in the order of their names."""
    files = sorted(map(str, (folder / "hive").rglob("*.sql")))
    command = bound([sys.executable, str(Path(__file__).with_name("hive_reading.py")), str(folder), query, *files])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = partial(
        subprocess.run, command, env=environment, cwd=folder, check=False, capture_output=True, timeout=240, text=True
    )
    ended = await asyncio.to_thread(run)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", ["Parquet", "Orc"])
async def test_select_sees_the_new_column(form: str, tmp_path: Path) -> None:
    """In a table of Spark's own catalogue, with a folder whose name had to be escaped, and that of null."""
    config = config_of(
        tmp_path,
        format__class=f"{form}Format",
        schema__compatibility="BACKWARD",
        partitioner__class="FieldPartitioner",
        partition__field__name="kind",
        hive__integration="true",
    )
    kinds = ["a/b: 100%", None, "c"]
    async with running(config) as sink:
        await sink.open({HERE: None})
        for begin, fields in ((0, FIELDS), (3, [*FIELDS, MORE])):
            rows = [
                {"n": begin + index, "kind": kind, "at": TIMES_MS[index], "inner": {"x": 0.5}, "more": f"x{index}"}
                for index, kind in enumerate(kinds)
            ]
            schema = json.dumps({"type": "record", "name": "Row", "fields": fields})
            column = pa.array(rows, avro_shape(schema).type)
            await sink.put(batch_of(column, begin=begin, schema=schema, form=Form.RECORD))
    query = "SELECT n, kind, unix_millis(at) AS ms, inner.x AS x, more FROM default.orders ORDER BY n"
    found = await spark(tmp_path, query)
    assert [row["n"] for row in found] == list(range(6))
    assert [row.get("kind") for row in found] == kinds * 2
    assert {row["x"] for row in found} == {0.5}
    assert [row["ms"] for row in found] == TIMES_MS * 2
    assert [row.get("more") for row in found] == [None, None, None, "x0", "x1", "x2"]
