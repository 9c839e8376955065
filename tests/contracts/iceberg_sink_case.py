"""The contract suite's target for ``IcebergSink``: a table of a SQL catalogue, in a folder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from service.sinks.converters import ColumnReader, JsonReader
from service.sinks.iceberg.sink import IcebergSink
from service.sinks.testing import SinkCase, Target


class Rows(Target):
    """A table that is made by the first record."""

    def __init__(self, folder: Path) -> None:
        self._address = f"sqlite:///{folder}/catalog.db"
        self._warehouse = f"file://{folder}/warehouse"

    @property
    def properties(self) -> Mapping[str, str]:
        """JSON without schemas."""
        return {
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": self._address,
            "iceberg.catalog.warehouse": self._warehouse,
            "iceberg.tables": "shop.lines",
            "iceberg.tables.auto-create-enabled": "true",
        }

    async def written(self) -> Sequence[str]:
        """The texts, in the order of their numbers."""
        catalog = SqlCatalog("iceberg", uri=self._address, warehouse=self._warehouse)
        try:
            rows: list[dict[str, Any]] = catalog.load_table("shop.lines").scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        finally:
            catalog.close()
        return [row["text"] for row in sorted(rows, key=lambda row: row["at"])]


class IcebergSinkCase(SinkCase):
    """``IcebergSink`` as the suite sees it."""

    connector = IcebergSink
    is_exactly_once = True
    records_max = 500
    bad_payload = b"[1]"
    values: ClassVar[ColumnReader] = JsonReader()
    bad_configs = (
        ({"iceberg.catalog.type": "hadoop"}, frozenset({"iceberg.catalog.type"})),
        ({"iceberg.catalog.catalog-impl": "org.x.Y"}, frozenset({"iceberg.catalog.catalog-impl"})),
        ({"iceberg.catalog.uri": "mysql://host/db"}, frozenset({"iceberg.catalog.uri"})),
        ({"iceberg.catalog.type": "rest", "iceberg.tables": ""}, frozenset({"iceberg.catalog.uri", "iceberg.tables"})),
        ({"iceberg.catalog.py-io-impl": "os.path"}, frozenset({"iceberg.catalog.py-io-impl"})),
        (
            {"iceberg.tables": "a.b,a.c", "iceberg.tables.route-field": "kind", "iceberg.table.a.b.route-regex": "x"},
            frozenset({"iceberg.table.a.c.route-regex"}),
        ),
        ({"iceberg.tables.dynamic-enabled": "true"}, frozenset({"iceberg.tables.route-field"})),
        ({"iceberg.table.a.b.route-regex": "("}, frozenset({"iceberg.table.a.b.route-regex"})),
        ({"iceberg.table.a.b.colour": "red"}, frozenset({"iceberg.table.a.b.colour"})),
        ({"iceberg.tables.upsert-mode-enabled": "true"}, frozenset({"iceberg.tables.upsert-mode-enabled"})),
        ({"iceberg.tables.cdc-field": "op"}, frozenset({"iceberg.tables.cdc-field"})),
        ({"iceberg.tables.replace-null-with-default": "true"}, frozenset({"iceberg.tables.replace-null-with-default"})),
        ({"iceberg.hadoop.fs.defaultFS": "hdfs://n"}, frozenset({"iceberg.hadoop."})),
        (
            {"iceberg.tables.write-props.write.format.default": "orc"},
            frozenset({"iceberg.tables.write-props.write.format.default"}),
        ),
        ({"buffer.bytes": "1"}, frozenset({"buffer.bytes"})),
    )

    def __init__(self) -> None:
        self._made = 0

    def payload(self, value: str) -> bytes:
        """An object with the text, and a number by which what stands there is put in order."""
        self._made += 1
        return json.dumps({"text": value, "at": self._made}).encode()

    @asynccontextmanager
    async def target(self, folder: Path) -> AsyncIterator[Target]:
        """An empty folder."""
        (folder / "warehouse").mkdir()
        yield Rows(folder)


CASE = IcebergSinkCase()
