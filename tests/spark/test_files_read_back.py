"""Files of ``FileSystemSink`` as Spark SQL reads them: folders as columns, and a column that was added on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from service.sinks.avro_columns import avro_shape
from service.sinks.batch import Form
from tests.spark_server import CONNECT_FLAG
from tests.unit.sinks.filesystem.files_runs import HERE, batch_of, config_of, running

FIELDS = [{"name": "n", "type": "int"}, {"name": "kind", "type": ["null", "string"], "default": None}]
MORE = {"name": "more", "type": ["null", "string"], "default": None}


def _schema(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Row", "fields": fields})


async def test_select_sees_the_new_column_and_the_folders(
    spark_remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of folders that had to be escaped, and that of null, are values again."""
    monkeypatch.setenv(CONNECT_FLAG, "1")
    old, new = _schema(*FIELDS), _schema(*FIELDS, MORE)
    config = config_of(
        tmp_path,
        format__class="ParquetFormat",
        schema__compatibility="BACKWARD",
        partitioner__class="FieldPartitioner",
        partition__field__name="kind",
        flush__size="3",
    )
    kinds = ["a/b: 100%", None, "c"]
    async with running(config) as sink:
        await sink.open({HERE: None})
        for begin, schema in ((0, old), (3, new)):
            rows = [{"n": begin + index, "kind": kind, "more": f"x{index}"} for index, kind in enumerate(kinds)]
            column = pa.array(rows, avro_shape(schema).type)
            await sink.put(batch_of(column, begin=begin, schema=schema, form=Form.RECORD))
    session = SparkSession.builder.remote(spark_remote).create()
    try:
        session.sql(
            f"CREATE TEMPORARY VIEW orders USING parquet OPTIONS (path '{tmp_path}/topics/orders', mergeSchema 'true')"
        )
        found = [tuple(row) for row in session.sql("SELECT n, kind, more FROM orders ORDER BY n").collect()]
    finally:
        session.stop()
    first = [(index, kind, None) for index, kind in enumerate(kinds)]
    assert found == [*first, *((3 + index, kind, f"x{index}") for index, kind in enumerate(kinds))]
