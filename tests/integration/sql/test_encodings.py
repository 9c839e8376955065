# ruff: noqa: S608 - statements of tests
"""``JdbcSource`` and ``JdbcSink`` on databases of PostgreSQL that have another encoding than UTF-8, or none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.databases import DatabaseServer, Postgres, own_postgres
from tests.integration.sql.reading import RealContext, read_until, rows_of
from tests.jdbc_sink_suite import batch_of, order, running

pytestmark = pytest.mark.integration


@pytest.fixture
def postgres_without_encoding(postgres_server: DatabaseServer) -> Iterator[Postgres]:
    """An empty database whose texts are any bytes (``SQL_ASCII``)."""
    settings = "encoding 'SQL_ASCII' template template0 locale 'C'"
    with own_postgres(Postgres(postgres_server, f"test_{uuid.uuid4().hex[:10]}"), settings) as made:
        yield made


@pytest.fixture
def postgres_latin1(postgres_server: DatabaseServer) -> Iterator[Postgres]:
    """An empty database whose texts the server converts."""
    settings = "encoding 'LATIN1' template template0 locale 'C'"
    with own_postgres(Postgres(postgres_server, f"test_{uuid.uuid4().hex[:10]}"), settings) as made:
        yield made


async def test_texts_of_another_encoding_come_as_what_they_are(postgres_latin1: Postgres) -> None:
    """The server converts them, whatever the default of its sessions is."""
    postgres_latin1.run("create table t (id int, v text)", "insert into t values (1, U&'gr\\00FCn')")
    properties = {"connection.url": postgres_latin1.url, "mode": "bulk", "table.whitelist": "t"}
    (page, *_) = await read_until(properties, lambda pages: len(pages) == 1)
    assert (rows_of([page]), page.rejections) == ([{"id": 1, "v": "grün"}], ())


@pytest.mark.parametrize("asked", [{"table.whitelist": "t"}, {"query": "select * from t", "key.columns": "id"}])
async def test_a_text_that_is_no_utf8_rejects_its_row_alone(
    postgres_without_encoding: Postgres, asked: dict[str, str]
) -> None:
    """In every type that is told as a text. The row's key is told, for who has the task fail at it."""
    postgres_without_encoding.run(
        "create type mood as enum ('so')",
        "create table t (id int primary key, v text, c char(3), a text[], m mood)",
        "insert into t values (1, 'grün', 'a', '{b}', 'so'), (3, null, null, null, null)",
        r"insert into t (id, v) values (2, E'\xfcber')",
        r"insert into t (id, a) values (4, array[E'\xe4'])",
        r"insert into t (id, c) values (5, E'\xf6')",
    )
    properties = {"connection.url": postgres_without_encoding.url, "mode": "incrementing"}
    properties |= {"incrementing.column.name": "id", "validate.non.null": "false", **asked}
    pages = await read_until(properties, lambda pages: sum(map(len, pages)) == 5)
    rows = rows_of(pages)
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[0] == {"id": 1, "v": "grün", "c": "a  ", "a": "{b}", "m": "so"}
    told = [one.message.partition(", key ")[2] for page in pages for one in page.rejections]
    why = "are no UTF-8: is the database's encoding SQL_ASCII?"
    assert told == [
        f'{{"id":2}}: column v: the bytes fc626572 {why}',
        f'{{"id":4}}: column a: the bytes 7be47d {why}',
        f'{{"id":5}}: column c: the bytes f62020 {why}',
    ]


async def test_rows_of_one_time_are_told_apart_by_keys_of_any_bytes(postgres_without_encoding: Postgres) -> None:
    """A source that goes on behind each page anew shows each row once, in the server's order."""
    keys = [r"\'", r"\\", r"\\x", "a", r"\xfc", r"\xfc\\\xff", "ü", r"\377"]
    postgres_without_encoding.run(
        "create table t (k text, u varchar(9), n serial, at timestamp default '2024-05-01', primary key (k, u))",
        *(f"insert into t (k, u) values (E'{key}', E'{other}')" for key in keys for other in ("b", key)),
    )
    properties = {"connection.url": postgres_without_encoding.url, "mode": "timestamp", "table.whitelist": "t"}
    properties |= {"timestamp.column.name": "at", "validate.non.null": "false", "batch.max.rows": "1"}
    context, found = RealContext(), []
    for _ in keys:
        pages = await read_until(properties, lambda pages: sum(map(len, pages)) >= 2, context)
        found += [row["n"] for row in rows_of(pages)]
    expected = postgres_without_encoding.rows("select n from t order by k, u")
    assert found == [number for (number,) in expected]


async def test_a_sink_writes_what_its_records_say(postgres_latin1: Postgres) -> None:
    """Letters that the database has are written as such; a record with another one is refused alone."""
    properties = {"connection.url": postgres_latin1.url, "insert.mode": "insert", "auto.create": "true"}
    refused: list[tuple[int, str, str]] = []
    async with running({"name": "s", "topics": "orders", **properties}) as sink:
        await sink.put(batch_of([(1, order("grün")), (2, order("5 €")), (3, order("ß"))], refused=refused))
    assert postgres_latin1.rows("select encode(status::bytea, 'hex') from orders") == [("6772fc6e",), ("df",)]
    ((at, _, message),) = refused
    assert (at, "0xe2 0x82 0xac" in message) == (1, True)
