"""SQLite, whose columns hold what they like: values that are not of the declared type, and files that others lock."""

from __future__ import annotations

import json
import sqlite3
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from fetchers.sdk import Disconnected, Page
from fetchers.sdk.testing.context import FakeContext
from fetchers.sql.config import JdbcConfig
from fetchers.sql.fetcher import JdbcSource
from tests.edge_values import OWN, SQLITE, own_text_of_sqlite, table_of


class RoundReadError(Exception):
    """Ends a fetch after its first round."""


def _end(_: int) -> None:
    raise RoundReadError


async def _read(path: Path, context: FakeContext | None = None, *, pages_max: int = 100, **keys: str) -> list[Page]:
    """Of one round, or the first pages of it; ``context``: whose offsets are gone on from."""
    properties = {"connection.url": f"jdbc:sqlite:{path}", "mode": "bulk", "topic.prefix": "x.", "table.whitelist": "t"}
    parsed = JdbcConfig.parse(properties | {name.replace("_", "."): value for name, value in keys.items()})
    assert parsed.config is not None, parsed.findings
    context = FakeContext() if context is None else context
    context.on_round = _end
    pages: list[Page] = []
    with suppress(RoundReadError):
        async with aclosing(JdbcSource(parsed.config).fetch(context)) as fetched:
            async for page in fetched:
                pages.append(page)
                context.commit(page)
                if len(pages) == pages_max:
                    break
    return pages


def _rows(pages: list[Page]) -> list[Any]:
    """Rows that were not rejected."""
    return [
        json.loads(value or b"")
        for page in pages
        for at, value in enumerate(page.values())
        if at not in {rejection.index for rejection in page.rejections}
    ]


def _made(path: Path, *statements: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        database.execute(statement)
    return database


async def test_a_value_of_another_type_is_a_dead_letter_and_its_neighbours_are_not(tmp_path: Path) -> None:
    """A text, a fraction or bytes in a column of integers: SQLite keeps them as they are (type affinity)."""
    path = tmp_path / "x.db"
    values = "(1), ('nine'), (2.5), (x'00ff'), (null), ('3'), (9223372036854775807)"
    _made(path, "create table t (n integer)", f"insert into t values {values}").close()  # noqa: S608
    pages = await _read(path)
    assert _rows(pages) == [{"n": 1}, {"n": None}, {"n": 3}, {"n": 9223372036854775807}]
    told = [rejection.message for page in pages for rejection in page.rejections]
    assert len(told) == 3
    assert all("n" in message for message in told)


async def test_reals_that_are_none_and_bytes_come_as_they_are(tmp_path: Path) -> None:
    """SQLite turns NaN into null by itself; infinity it keeps."""
    path = tmp_path / "x.db"
    database = _made(path, "create table t (r real, b blob)")
    database.execute("insert into t values (?, ?)", (float("nan"), b"\x00\xff"))
    database.execute("insert into t values (9e999, zeroblob(2))")
    database.close()
    (page,) = await _read(path)
    assert page.payload_column.to_pylist() == [{"r": None, "b": b"\x00\xff"}, {"r": float("inf"), "b": b"\x00\x00"}]


async def test_a_table_without_rowids_is_read_in_the_order_of_its_key(tmp_path: Path) -> None:
    """And its columns of days, times and decimals are typed as those of any other."""
    path = tmp_path / "x.db"
    _made(
        path,
        "create table t (id int primary key not null, at timestamp, day date, price decimal(5,2)) without rowid",
        "insert into t values (2, '2024-03-31 12:00:00.5', '2024-03-31', '1.50'), (1, null, null, null)",
    ).close()
    pages = await _read(path, mode="incrementing", incrementing_column_name="id")
    assert [row["id"] for row in _rows(pages)] == [1, 2]
    assert _rows(pages)[1] | {"price": None} == {
        "id": 2,
        "at": "2024-03-31T12:00:00.500Z",
        "day": "2024-03-31",
        "price": None,
    }


async def test_a_writer_of_a_log_ahead_holds_up_only_what_it_could_still_change(tmp_path: Path) -> None:
    """In WAL mode others read while it writes; ids are waited for until it has committed, which may pass."""
    path = tmp_path / "x.db"
    writer = _made(
        path,
        "pragma journal_mode = wal",
        "create table t (id integer primary key autoincrement, n int)",
        "insert into t (n) values (1)",
        "begin immediate",
        "insert into t (n) values (2)",
    )
    assert [row["n"] for row in _rows(await _read(path))] == [1], "a bulk read sees what is committed"
    with pytest.raises(Disconnected, match="locked"):
        await _read(path, mode="incrementing")
    writer.execute("commit")
    assert [row["n"] for row in _rows(await _read(path, mode="incrementing"))] == [1, 2]
    writer.close()


@pytest.mark.parametrize(
    ("zone", "local", "instant"),
    [
        ("Europe/Berlin", "2024-10-27 02:30:00", "2024-10-27T00:30:00.000Z"),
        ("Europe/Berlin", "2024-03-31 02:30:00", None),
        ("Europe/Berlin", "2024-03-31 03:00:00", "2024-03-31T01:00:00.000Z"),
        ("America/New_York", "2024-11-03 01:59:59", "2024-11-03T05:59:59.000Z"),
    ],
    ids=["passed twice: its first", "passed over: dead letter", "behind the gap", "in the west"],
)
async def test_hours_in_which_a_clock_is_changed_are_told_apart(
    tmp_path: Path, zone: str, local: str, instant: str | None
) -> None:
    """A time without a zone is of ``db.timezone``; one that never was is no other one."""
    path = tmp_path / "x.db"
    _made(path, "create table t (at timestamp)", f"insert into t values ('{local}')").close()  # noqa: S608
    pages = await _read(path, db_timezone=zone)
    assert _rows(pages) == ([] if instant is None else [{"at": instant}])
    assert sum(len(page.rejections) for page in pages) == (1 if instant is None else 0)


async def test_every_declared_type_comes_as_the_file_has_it(tmp_path: Path) -> None:
    """Each value against what is written in the list, which for texts is SQLite's own; or rejected by its column."""
    path = tmp_path / "x.db"
    database = _made(path, *table_of(SQLITE, "integer primary key autoincrement"))
    (page,) = await _read(path, table_whitelist="kinds")
    rows = [json.loads(value or b"", parse_float=str) for value in page.values()]
    rejected = {rejection.index: rejection.message for rejection in page.rejections}
    wrong = []
    for at, (row, (kind, literal, told)) in enumerate(zip(rows, SQLITE, strict=True)):
        ((own,),) = database.execute(f"select {own_text_of_sqlite(f'c{at}')} from kinds where id = {at + 1}").fetchall()  # noqa: S608
        expected = own if told == OWN else told
        is_right = f"column c{at}" in rejected.get(at, "") if told is None else row[f"c{at}"] == expected
        if not is_right or (told is not None and at in rejected):
            wrong.append((kind, literal, row[f"c{at}"], own, rejected.get(at)))
    database.close()
    assert not wrong


@pytest.mark.parametrize(
    "declared", ["blob", "text", "integer", "real", "boolean", "date", "timestamp", "decimal(5,2)"]
)
async def test_what_becomes_of_a_value_does_not_hang_on_its_neighbours(tmp_path: Path, declared: str) -> None:
    """Values of all types in one page, and each in a page of its own: the same value, or a dead letter in both."""
    values = ["x'00ff'", "x'3132'", "'ab'", "'12'", "1", "2.5", "null", "'2024-02-29'", "1711852200500"]
    tables = [f"create table t{at} (v {declared})" for at in range(len(values))]
    singly = [f"insert into t{at} values ({value})" for at, value in enumerate(values)]  # noqa: S608
    together = f"insert into t values {', '.join(f'({value})' for value in values)}"  # noqa: S608
    _made(tmp_path / "x.db", f"create table t (v {declared})", together, *tables, *singly).close()
    (all_of_them,) = await _read(tmp_path / "x.db")
    alone = [(await _read(tmp_path / "x.db", table_whitelist=f"t{at}"))[0] for at in range(len(values))]
    assert list(all_of_them.values()) == [value for page in alone for value in page.values()]
    rejected = [rejection.index for rejection in all_of_them.rejections]
    assert rejected == [at for at, page in enumerate(alone) if page.rejections]


async def test_rows_of_one_time_come_together_whatever_types_their_values_have(tmp_path: Path) -> None:
    """Without a key a page has all rows of a time, also where it is put together of several reads."""
    path = tmp_path / "x.db"
    values = ("1", "'a'", "'b'", "null", "null", "2", "null", "null", "1.5", "'c'", "'d'", "x'00'")
    rows = ", ".join(f"({value}, '2024-01-0{1 + at // 6}')" for at, value in enumerate(values))
    _made(path, "create table t (n text, at date not null)", f"insert into t values {rows}").close()  # noqa: S608
    pages = await _read(path, mode="timestamp", timestamp_column_name="at", batch_max_rows="2")
    assert [len(page) for page in pages] == [6, 6]
    found = [row["n"] for row in _rows(pages)]
    assert found == ["1", "a", "b", None, None, "2", None, None, "1.5", "c", "d", "\0"]


BY_TIME: dict[str, Any] = {"mode": "timestamp", "timestamp_column_name": "at", "batch_max_rows": "2"}
ALTERED = {
    "other collation": ("text", "text collate nocase", ["'B'", "'D'", "'a'", "'c'"]),
    "blanks that do not count": ("text", "text collate rtrim", ["'A'", "'a' || char(9)", "'a '", "'b'"]),
    "numbers": ("text", "numeric", ["'10'", "'11'", "'8'", "'9'"]),
    "longer": ("varchar(9)", "varchar(99)", ["'a'", "'b'", "'c'", "'d'"]),
}
"""What becomes of a key after two of its values were read; one that keeps its order is no reason to read them again."""


@pytest.mark.parametrize("case", ALTERED)
async def test_rows_of_one_time_are_read_again_where_their_key_has_another_order(tmp_path: Path, case: str) -> None:
    """In their new order others are behind the last one that was read than were left."""
    before, after, values = ALTERED[case]
    rows = ", ".join(f"({value}, {number}, '2024-05-01')" for number, value in enumerate(values))
    columns, context = "(k {} primary key not null, n int, at timestamp not null)", FakeContext()
    database = _made(
        tmp_path / "x.db",
        f"create table t {columns.format(before)}",
        f"insert into t values {rows}",  # noqa: S608 - this test's own
    )
    first = await _read(tmp_path / "x.db", context, pages_max=1, **BY_TIME)
    for statement in (f"create table u {columns.format(after)}", "insert into u select * from t", "drop table t"):
        database.execute(statement)
    database.execute("alter table u rename to t")
    database.close()
    rest = await _read(tmp_path / "x.db", context, **BY_TIME)
    assert [row["n"] for row in _rows(first)] == [0, 1]
    assert sorted(row["n"] for row in _rows(rest)) == ([2, 3] if case == "longer" else [0, 1, 2, 3])


@pytest.mark.parametrize(
    "values",
    [
        ["null", "null", "'A'", "'NULL'", "'Z'"],
        ["-9e999", "-1.5", "'-Inf'", "'A'", "x'00'"],
        ["1", "9e999", "'A'", "'Inf'", "x'00'"],
        ["'a' || char(0)", "'a' || char(0, 1)", "'b'"],
        ["'it''s'", "'X''00'''", "'cast(x''00'' as text)'"],
    ],
    ids=["nulls", "least", "greatest", "letters zero", "quotes"],
)
async def test_keys_of_every_kind_are_gone_on_from(tmp_path: Path, values: list[str]) -> None:
    """Each row once, page by page; a primary key of SQLite may be null, and then tells no rows apart."""
    rows = ", ".join(f"({value}, {number}, '2024-05-01')" for number, value in enumerate(values))
    _made(
        tmp_path / "x.db",
        "create table t (k blob, n int, at timestamp not null, primary key (k))",
        f"insert into t values {rows}",  # noqa: S608 - this test's own
    ).close()
    context, found = FakeContext(), list[Any]()
    for _ in range(len(values) + 2):
        for page in await _read(tmp_path / "x.db", context, pages_max=1, **BY_TIME):
            made = cast("pa.StructArray", page.payload_column)
            found += cast("list[int]", made.field("n").to_pylist())  # also of rows that are rejected
    assert sorted(found) == list(range(len(values)))


@pytest.mark.parametrize("declared", ["date", "text"])
async def test_days_are_read_when_they_are_over(tmp_path: Path, declared: str) -> None:
    """Rows of today may still come, with keys before those that are there; whatever the column is declared as."""
    rows = "insert into t values (5, date('now')), (9, date('now', '-1 day'))"
    _made(tmp_path / "x.db", f"create table t (k int primary key not null, at {declared} not null)", rows).close()
    pages = await _read(tmp_path / "x.db", mode="timestamp", timestamp_column_name="at")
    assert [row["k"] for row in _rows(pages)] == [9]
