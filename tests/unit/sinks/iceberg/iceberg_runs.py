"""``IcebergSink`` in tests: tables of a SQL catalogue in a folder, batches put to them, and what stands there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from fetchers.sdk.reach import AllowedAddresses, AllowedPaths
from metrics.events import discard
from service.sinks.batch import Form, SinkBatch, ValueType
from service.sinks.contract import Partition, SinkContext
from service.sinks.iceberg.config import IcebergSinkConfig
from service.sinks.iceberg.sink import IcebergSink

HERE: Partition = ("orders", 0)
CONNECTOR = "lake"
Refused = list[tuple[int, str, str]]


@dataclass
class LakeFolder:
    """A folder with a catalogue and a warehouse."""

    folder: Path
    name: str = "shop.orders"

    @property
    def catalog(self) -> Catalog:
        """The catalogue, as somebody else opens it."""
        return SqlCatalog("iceberg", uri=f"sqlite:///{self.folder}/catalog.db", warehouse=f"file://{self.folder}/lake")

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load_table(self.name)

    def rows(self, *columns: str) -> list[Any]:
        """What stands there, in order; the values of a single column, else tuples."""
        found = self.table.scan().to_arrow().select(columns or ["n"]).to_pylist()
        names = columns or ("n",)
        made = [row[names[0]] if len(names) == 1 else tuple(row[name] for name in names) for row in found]
        return sorted(made, key=repr if len(names) > 1 else None)

    def config(self, **changes: str) -> IcebergSinkConfig:
        """Made by the first record; dots of keys as double underscores, dashes as triple ones."""
        properties = {
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": f"sqlite:///{self.folder}/catalog.db",
            "iceberg.catalog.warehouse": f"file://{self.folder}/lake",
            "iceberg.tables": self.name,
            "iceberg.tables.auto-create-enabled": "true",
        }
        own = {key.replace("___", "-").replace("__", "."): text for key, text in changes.items()}
        parsed = IcebergSinkConfig.parse({**properties, **own})
        assert parsed.config is not None, parsed.findings
        assert not list(parsed.config.own_findings())
        return parsed.config

    @asynccontextmanager
    async def running(
        self,
        *,
        paths: AllowedPaths | None = None,
        addresses: AllowedAddresses | None = None,
        clock: SystemClock | None = None,
        **changes: str,
    ) -> AsyncIterator[IcebergSink]:
        """A started sink."""
        sink = IcebergSink(self.config(**changes))
        sink.allowed_paths = paths or AllowedPaths()
        sink.allowed_addresses = addresses or AllowedAddresses()
        async with shared_http() as http:
            try:
                await sink.start(SinkContext(CONNECTOR, 0, clock or SystemClock(), discard, http))
                yield sink
            finally:
                async with asyncio.timeout(240):
                    await sink.stop()


def batch_of(
    values: Sequence[Any] | pa.Array[Any],
    *,
    begin: int = 0,
    schema: str | None = None,
    partition: Partition = HERE,
    refused: list[tuple[int, str, str]] | None = None,
) -> SinkBatch:
    """Records of one partition; values that are no column are written as JSON."""
    column = values
    if not isinstance(values, pa.Array):
        column = pa.array([None if each is None else json.dumps(each) for each in values], pa.string())
    count = len(values)
    records = pa.table(
        {
            "topic": pa.array([partition[0]] * count, pa.string()),
            "partition": pa.array([partition[1]] * count, pa.int32()),
            "offset": pa.array(range(begin, begin + count), pa.int64()),
            "timestamp": pa.array([1_000] * count, pa.int64()),
            "key": pa.nulls(count, pa.binary()),
            "value": column,
            "original_topic": pa.array([partition[0]] * count, pa.string()),
        }
    )
    form = Form.RECORD if isinstance(values, pa.Array) else Form.JSON

    def refuse(row: int, reason: str, message: str) -> None:
        if refused is None:
            raise AssertionError(message)
        refused.append((row, reason, message))

    return SinkBatch(records, ValueType(Form.BYTES), ValueType(form, schema), refuse)


async def put(sink: IcebergSink, values: Any, *, begin: int = 0, schema: str | None = None) -> Refused:
    """Put and flush; what was refused."""
    refused: Refused = []
    if not begin:
        await sink.open({HERE: None})
    await sink.put(batch_of(values, begin=begin, schema=schema, refused=refused))
    await sink.flush({HERE: begin + len(values)})
    return refused


def numbers(values: Iterable[int]) -> Any:
    """Records of one column, as Avro makes them."""
    kind = pa.struct([pa.field("n", pa.int32(), nullable=False)])
    return pa.array([{"n": value} for value in values], kind)
