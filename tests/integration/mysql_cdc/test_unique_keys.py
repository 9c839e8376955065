# ruff: noqa: S608 - statements of tests
"""Tables without a primary key: a unique index stands for it, the same in snapshot, stretches and log."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from fetchers.sdk import Page
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MySql
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source

pytestmark = pytest.mark.integration
TABLES = {
    "one": ("unique (a)", {"a"}),
    "later": ("unique (s(2)), unique (n), unique z (c, a), unique b (a)", {"a", "c"}),
    "added": ("unique (n), unique y (c), unique x (a)", {"c"}),
    "prefixed": ("unique (s(2))", None),
    "nullable": ("unique (n)", None),
    "either": ("unique (c), primary key (a)", {"a"}),
    "part": ("primary key (s(2), a)", {"a", "s"}),
}
"""Indexes of tables, and the columns of the key of their events."""


def keys_of(pages: Sequence[Page], operation: str) -> dict[str, set[str | None]]:
    """By table the keys of events of one operation."""
    found: dict[str, set[str | None]] = {}
    for topic, key, value in rows_of(pages):
        if value is not None and value["op"] == operation:
            found.setdefault(topic.rpartition(".")[2], set()).add(key)
    return found


async def test_a_key_is_the_same_from_snapshot_stretch_and_log(each_mysql: MySql) -> None:
    """Else a compacted topic would hold a row twice, under two keys; the servers take such an index for the key."""
    columns = "a int not null, c int not null, n int, s varchar(20) not null, v int default 0"
    await each_mysql.rows(
        *(f"create table {name} ({columns}, {indexes})" for name, (indexes, _) in TABLES.items()),
        *(f"insert into {name} (a, c, n, s) values (1, 11, 21, 'one'), (2, 12, 22, 'two')" for name in TABLES),
        "create table end_ (id int primary key)",
    )
    context = FakeContext()
    begun = await read(
        source(each_mysql), context, until=lambda pages: bool(pages) and "tables_read" in pages[-1].offset
    )
    await each_mysql.rows(*(f"update {name} set v = 1" for name in TABLES), "insert into end_ values (1)")
    logged = keys_of(await read(source(each_mysql), context, until=has_row("end_", 1)), "u")
    keyed = {name for name, (_, key) in TABLES.items() if key}
    asked = {"snapshot.request.id": "1", "snapshot.request.tables": f"{each_mysql.name}\\.({'|'.join(keyed)})"}
    again = await read(
        source(each_mysql, **{**asked, "snapshot.fetch.size": "1"}),
        context,
        until=lambda pages: sum(map(len, keys_of(pages, "r").values())) == 2 * len(keyed),
    )
    assert logged.keys() == TABLES.keys()
    assert keys_of(begun, "r") == logged
    assert keys_of(again, "r") == {name: keys for name, keys in logged.items() if name in keyed}
    for name, (_, key) in TABLES.items():
        assert {one and frozenset(json.loads(one)) for one in logged[name]} == {key and frozenset(key)}, name
