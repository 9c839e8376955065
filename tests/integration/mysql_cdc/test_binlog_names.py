# ruff: noqa: S608 - statements of tests
"""Names of tables and columns that must be quoted, from snapshot, stretch and log alike, of MariaDB and MySQL."""

from __future__ import annotations

import json
import re

import pytest

from fetchers.sdk import Page
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MySql
from tests.integration.mysql_cdc.test_binlog import read, rows_of, source

pytestmark = pytest.mark.integration
NAMES = ("a.b", "back`tick", 'dou"ble', "it's", "with space", "ünï€", "UPPER", "select", "100%_\\", "é" * 64)
"""The last one has as many letters as a name may have (manual, "Identifier Length Limits")."""


def quoted(name: str) -> str:
    """As SQL."""
    return "`" + name.replace("`", "``") + "`"


async def test_odd_names_are_those_of_the_database(each_mysql: MySql) -> None:
    """Each table has its topic, each column its field, and the key's bytes are the same from wherever they come."""
    columns = ", ".join(f"{quoted(name)} varchar(9)" for name in NAMES[1:])
    literals = ", ".join(f"'v{at}'" for at in range(len(NAMES)))
    expected = {name: f"v{at}" for at, name in enumerate(NAMES)}
    for name in NAMES:
        await each_mysql.rows(
            f"create table {quoted(name)} ({quoted(NAMES[0])} varchar(9), {columns}, primary key "
            f"({quoted(NAMES[0])}, {quoted(NAMES[-1])}))",
            f"insert into {quoted(name)} values ({literals})",
        )
    keys = {"event.form": "row", "snapshot.fetch.size": "1"}
    assert await source(each_mysql, **keys).check(FakeContext()) == []
    context = FakeContext()
    snapshot = await read(source(each_mysql, **keys), context, until=lambda pages: len(rows_of(pages)) == 2)
    snapshot += await read(source(each_mysql, **keys), context, until=lambda pages: len(rows_of(pages)) >= 8)
    for name in NAMES:
        await each_mysql.rows(
            f"update {quoted(name)} set {quoted(NAMES[1])} = 'new'",
            f"delete from {quoted(name)}",
        )
    logged = await read(source(each_mysql, **keys), context, until=_is_all_told)
    topics = {f"shop.{each_mysql.name}.{re.sub('[^A-Za-z0-9._-]', '_', name)}" for name in NAMES}
    key = json.dumps({NAMES[0]: "v0", NAMES[-1]: "v9"}, ensure_ascii=False, separators=(",", ":"))
    told = rows_of([*snapshot, *logged])
    assert {key for _, key, _ in told} == {key}
    for topic in topics:
        values = [value for found, _, value in told if found == topic]
        assert [value and value.pop("__deleted") for value in values] == ["false", "false", "true", None]
        assert values[:2] == [expected, {**expected, NAMES[1]: "new"}]
    assert {topic for topic, _, _ in told} == topics


def _is_all_told(pages: list[Page]) -> bool:
    """Whether the last of what follows a delete, a record without a value, has come of each table."""
    return len([1 for _, _, value in rows_of(pages) if value is None]) == len(NAMES)
