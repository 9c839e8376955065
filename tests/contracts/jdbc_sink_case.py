"""The contract suite's target for ``JdbcSink``: a file of SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar

from service.sinks.converters import ColumnReader, EnvelopeReader
from service.sinks.jdbc.sink import JdbcSink
from service.sinks.testing import SinkCase, Target

SCHEMA = {"type": "struct", "fields": [{"field": "text", "type": "string", "optional": True}]}


def envelope(payload: Any, schema: Any = None) -> bytes:
    """What JsonConverter writes."""
    return json.dumps({"schema": schema or SCHEMA, "payload": payload}).encode()


class Table(Target):
    """A table of one text each, in the order of partitions and offsets."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def properties(self) -> Mapping[str, str]:
        """Keys are places in Kafka."""
        return {
            "connection.url": f"jdbc:sqlite:{self._file}",
            "insert.mode": "upsert",
            "pk.mode": "kafka",
            "auto.create": "true",
        }

    async def written(self) -> Sequence[str]:
        """The texts."""
        with closing(sqlite3.connect(self._file)) as connection:
            rows = connection.execute("select text from lines order by __connect_partition, __connect_offset")
            return [row[0] for row in rows]


class JdbcSinkCase(SinkCase):
    """``JdbcSink`` as the suite sees it."""

    connector = JdbcSink
    is_exactly_once = True
    values: ClassVar[ColumnReader] = EnvelopeReader()
    bad_payload = envelope({"text": 5})
    bad_configs = (
        ({"connection.url": "jdbc:oracle:x"}, frozenset({"connection.url"})),
        ({"pk.mode": "none", "delete.enabled": "true"}, frozenset({"pk.mode", "delete.enabled"})),
        ({"pk.fields": "a,A"}, frozenset({"pk.fields"})),
        ({"batch.size": "0", "db.timezone": "Mars/One"}, frozenset({"batch.size", "db.timezone"})),
    )

    def payload(self, value: str) -> bytes:
        """A struct with the text."""
        return envelope({"text": value})

    @asynccontextmanager
    async def target(self, folder: Path) -> AsyncIterator[Target]:
        """A file that is made by the sink."""
        yield Table(folder / "lines.db")


CASE = JdbcSinkCase()
