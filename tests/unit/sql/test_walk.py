# ruff: noqa: D102 - the methods are those of Database
"""A table's way, over a database that a migration changes between two looks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest

from fetchers.sdk import Fatal, Page
from fetchers.sdk.testing.context import FakeContext
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Range, Relation, Table
from fetchers.sql.kinds import INT64, STRING, ColumnPlan
from fetchers.sql.places import Place
from fetchers.sql.ranges import Selection, wanted_range
from fetchers.sql.settling import Holder
from fetchers.sql.walk import Walk

TABLE = Table("t", "public")
ID = ColumnPlan("id", '"id"', INT64, is_nullable=False, is_numeric=True)
AT = ColumnPlan("at", '"at"', STRING, is_nullable=False)


class MigratedDatabase:
    """A migration adds a column and a row with it; it is under way when the bound is taken, and then committed."""

    def __init__(self, columns: tuple[ColumnPlan, ...], added: tuple[ColumnPlan, ...], row: dict[str, Any]) -> None:
        self.columns, self.added, self.row = columns, added, row

    async def relation(self, table: Table) -> Relation:
        return Relation("t", '"t"', self.columns, table, ("id",), "id")

    async def bound(self, wanted: Range) -> str | None:
        del wanted
        self.columns += self.added
        return "1"

    async def holders(self, wanted: Range) -> frozenset[Holder]:
        del wanted
        return frozenset()

    async def counter(self, wanted: Range) -> int | None:
        del wanted
        return None

    async def read(self, sql: str, *, rows_max: int) -> AsyncGenerator[pa.RecordBatch, None]:
        del rows_max
        names = [
            part.split(" as ")[1].strip('"') for part in sql.removeprefix("select ").split(" from ")[0].split(", ")
        ]
        values = [pa.array([self.row[name]]) for name in names]
        yield pa.RecordBatch.from_arrays(values, names=[f"c{at}" for at in range(len(names))])

    def quoted(self, name: str) -> str:
        return f'"{name}"'

    def text_of(self, expression: str, relation: Relation, column: str) -> str:
        del relation, column
        return expression

    def literal_of(self, text: str, relation: Relation, column: str) -> str:
        del relation, column
        return f"'{text}'"


async def _read(database: MigratedDatabase, **changes: str) -> list[Page]:
    properties = {"connection.url": "jdbc:postgresql://db/x", "mode": "incrementing", "topic.prefix": "t."} | changes
    config = JdbcConfig.parse({name.replace("_", "."): value for name, value in properties.items()}).config
    assert config is not None
    walk = Walk(config, cast("Any", database), cast("Any", FakeContext()), TABLE)
    return [page async for page in walk.round()]


async def test_a_migrations_own_rows_have_the_column_that_it_added() -> None:
    """The columns are those of the moment when the range is settled, not of the one before its bound was taken."""
    added = ColumnPlan("note", '"note"', STRING, is_nullable=True)
    pages = await _read(MigratedDatabase((ID,), (added,), {"id": 1, "note": "x", "headrace_0": "1"}))
    assert [list(page.values()) for page in pages] == [[b'{"id":1,"note":"x"}']]


async def test_a_row_without_a_place_ends_the_task() -> None:
    """Reading could not go on behind it: a null that became the text None would be compared with keys."""
    database = MigratedDatabase(
        (ID, AT), (), {"id": 1, "at": "2024-01-01", "headrace_0": "2024-01-01", "headrace_1": None}
    )
    with pytest.raises(Fatal, match="t: a row has no place"):
        await _read(database, mode="timestamp", timestamp_column_name="at")


class TextsDatabase(MigratedDatabase):
    """One that writes a literal as it is."""

    def literal_of(self, text: str, relation: Relation, column: str) -> str:
        del relation, column
        return text


@pytest.mark.parametrize(
    ("before", "now", "goes_on"),
    [
        (replace(ID, tells="numbers"), replace(ID, tells="numbers"), True),
        (replace(ID, tells="numbers"), replace(ID, kind=STRING, tells="neither"), False),  # in the order of texts
        (replace(ID, order="a"), replace(ID, order="b"), False),
        (None, ID, True),
        (None, replace(ID, exact="({} + 0e0)"), False),  # an earlier release wrote a FLOAT with six digits
    ],
)
def test_behind_a_key_of_another_order_all_rows_of_its_time_are_read(
    before: ColumnPlan | None, now: ColumnPlan, *, goes_on: bool
) -> None:
    """Behind the same text are other rows then, and none may be left out; ``before``: None: of an earlier release."""

    def selection(key: ColumnPlan) -> Selection:
        relation = Relation("t", '"t"', (key, AT), TABLE, ("id",))
        return Selection(cast("Any", TextsDatabase((), (), {})), Range(relation, None, '"at"', ("at",)))

    place = Place(None, "7", ("5",)) if before is None else selection(before).place_of(["7", "5"])
    sql = selection(now).sql(place, "9")
    key = now.exact.format('"id"')
    tie = f'"at" >= 7 and ("at" > 7 or ({key}) > (5))' if goes_on else '"at" >= 7'
    assert f'where "at" < 9 and {tie} order by' in sql


class ClockDatabase(MigratedDatabase):
    """One whose clock is what a test says; it has one row, of half past three."""

    settling_ms = 1000

    def __init__(self) -> None:
        super().__init__(
            (ID, replace(AT, tells="times")), (), {"id": 1, "at": "x", "headrace_0": "2024-01-01 03:30:00"}
        )
        self.row["headrace_1"] = "1"
        self.clock = "2024-01-01 03:30:01"

    async def bound(self, wanted: Range) -> str | None:
        del wanted
        return self.clock

    async def read(self, sql: str, *, rows_max: int) -> AsyncGenerator[pa.RecordBatch, None]:
        if '"at" >' not in sql:
            async for batch in super().read(sql, rows_max=rows_max):
                yield batch


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_clock_that_was_set_back_ends_the_task(*, is_restarted: bool) -> None:
    """Rows that are written now have times before those that were read; the moment that settles is none of it."""
    properties = {"connection.url": "jdbc:postgresql://db/x", "mode": "timestamp", "topic.prefix": "t."}
    config = JdbcConfig.parse({**properties, "timestamp.column.name": "at"}).config
    assert config is not None
    database, context = ClockDatabase(), FakeContext()
    walk = Walk(config, cast("Any", database), cast("Any", context), TABLE)
    (page,) = [page async for page in walk.round()]
    context.commit(page)
    if is_restarted:
        walk = Walk(config, cast("Any", database), cast("Any", context), TABLE)
    database.clock = "2024-01-01 03:29:59.5"
    assert [page async for page in walk.round()] == []
    database.clock = "2024-01-01 03:29:58"
    with pytest.raises(
        Fatal, match=r"t: the database's clock is at 2024-01-01 03:29:59.* rows up to 2024-01-01 03:30:00"
    ):
        assert [page async for page in walk.round()] == []


async def test_a_beginning_that_is_yet_to_come_is_waited_for() -> None:
    """No row was read up to it."""
    properties = {"connection.url": "jdbc:postgresql://db/x", "mode": "timestamp", "topic.prefix": "t."}
    properties |= {"timestamp.column.name": "at", "timestamp.initial": "4102444800000"}
    config = JdbcConfig.parse(properties).config
    assert config is not None
    context = FakeContext()
    for _ in range(2):
        walk = Walk(config, cast("Any", ClockDatabase()), cast("Any", context), TABLE)
        for page in [page async for page in walk.round()]:
            assert not len(page)
            context.commit(page)


def test_instants_and_times_without_a_zone_are_not_compared() -> None:
    """The server takes both for times of UTC."""
    columns = (ID, replace(AT, name="a", tells="times"), replace(AT, name="b", tells="times"))
    relation = Relation("t", '"t"', columns, TABLE, ("id",), "id", zoned=frozenset(["a"]))
    properties = {"connection.url": "jdbc:postgresql://db/x", "mode": "timestamp", "topic.prefix": "t."}
    properties |= {"timestamp.column.name": "a,b"}
    database = cast("Any", MigratedDatabase(columns, (), {}))
    config = JdbcConfig.parse(properties).config
    assert config is not None
    assert wanted_range(config, relation, database).time == 'coalesce("a", "b")'
    config = JdbcConfig.parse({**properties, "db.timezone": "Europe/Berlin"}).config
    assert config is not None
    with pytest.raises(Fatal, match="a of t has a zone, and b has none"):
        wanted_range(config, relation, database)
