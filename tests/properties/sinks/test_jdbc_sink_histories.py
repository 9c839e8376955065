"""A table after any history of writes and deletes is what the records done one by one would have made of it."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from metrics.events import discard
from service.sinks.contract import SinkContext
from service.sinks.jdbc.config import JdbcSinkConfig
from service.sinks.jdbc.sink import JdbcSink
from tests.jdbc_sink_suite import HERE, batch_of, order

_VALUES = st.none() | st.builds(order, st.sampled_from(["a", "b", "bad"]), st.integers(0, 5))
_RECORDS = st.lists(st.tuples(st.integers(1, 4), _VALUES), max_size=30)


@given(_RECORDS, st.lists(st.integers(0, 30), max_size=4), st.integers(0, 29))
@settings(max_examples=25, deadline=None)
def test_a_table_is_what_its_records_say(records: list[Any], cuts: list[int], again: int) -> None:
    """Cut into any puts, some of them put again: the same rows, and bad records refused."""
    expected: dict[int, tuple[str, int, str]] = {}
    for key, value in records:
        if value is None:
            expected.pop(key, None)
        elif value["status"] != "bad":
            kept = expected[key][2] if key in expected else "new"
            expected[key] = (value["status"], value["amount"], kept)
    found, refused = asyncio.run(
        _written(records, sorted({0, len(records), *(c for c in cuts if c < len(records))}), again)
    )
    assert found == expected
    bad = {row for row, (_, value) in enumerate(records) if value and value["status"] == "bad"}
    last = {key: row for row, (key, _) in enumerate(records)}
    assert bad & set(last.values()) <= refused <= bad  # others may have been replaced in their put


async def _written(records: list[Any], cuts: list[int], again: int) -> tuple[dict[int, Any], set[int]]:
    refused: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "shop.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(
                "create table orders (id integer primary key, status text check (status <> 'bad'), amount int, "
                "note text default 'new')"
            )
        keys = {"connection.url": f"jdbc:sqlite:{file}", "insert.mode": "upsert", "pk.mode": "record_key"}
        keys |= {"pk.fields": "id", "delete.enabled": "true", "offsets.table": "places"}
        config = JdbcSinkConfig.parse(keys).config
        assert config is not None
        sink = JdbcSink(config)
        async with shared_http() as http:
            await sink.start(SinkContext("shop", 0, SystemClock(), discard, http))
            await sink.open({HERE: None})
            for begin, end in pairwise(cuts):
                for start in (begin, min(begin, again)):
                    heard: list[tuple[int, str, str]] = []
                    await sink.put(batch_of(records[start:end], begin=start, refused=heard))
                    refused |= {start + row for row, _, _ in heard}
            await sink.stop()
        with closing(sqlite3.connect(file)) as connection:
            rows = connection.execute("select id, status, amount, note from orders")
            return {row[0]: tuple(row[1:]) for row in rows}, refused
