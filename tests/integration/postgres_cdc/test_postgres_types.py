# ruff: noqa: S608 - tables and rows are this test's own
"""What a real server is asked about types and keys, and that a type is always what it is when a table is met."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest

from fetchers.postgres_cdc import fetcher
from fetchers.postgres_cdc.catalogue import Catalogue, catalogue
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.sdk import Page
from tests.databases import Postgres
from tests.integration.postgres_cdc.test_postgres_log import Followed, is_after_snapshot, records

TABLES = 20


@pytest.fixture
def followed(postgres: Postgres) -> Iterator[Followed]:
    """A database with a marker table, of which all tables are published, those too that are made later."""
    postgres.run("create table marker (id serial primary key)")
    made = Followed(postgres, publication_autocreate_mode="all_tables")
    yield made
    made.drop()


async def read_on(followed: Followed, *statements: str) -> dict[str, list[Page]]:
    """What statements, each in a transaction of its own, bring about: pages by table."""
    followed.postgres.run(*statements, "insert into marker default values")
    found: dict[str, list[Page]] = {}
    for page in await followed.read(stops=lambda page: page.topic == "srv.public.marker"):
        if len(page):
            found.setdefault(str(page.topic).removeprefix("srv.public."), []).append(page)
    return found


def forms(page: Page) -> dict[str, Any]:
    """The Avro forms of the row's columns, without their being optional."""
    assert page.schema is not None
    (before,) = (field for field in page.schema.document["fields"] if field["name"] == "before")
    return {field["name"]: optional(field["type"]) for field in before["type"][1]["fields"]}


def optional(form: Any) -> Any:
    """What a form is when it is not null."""
    return form[1] if isinstance(form, list) else form


def labels(form: Any) -> str:
    """Those of an enum, in order."""
    return str(form["connect.parameters"]["allowed"])


def rows(pages: Sequence[Page]) -> list[dict[str, Any]]:
    """Rows after the changes."""
    return [value["after"] for page in pages for _, value in records(page)]


async def test_types_that_are_made_in_mid_stream_are_what_they_are(followed: Followed) -> None:
    """An enum, a domain of a domain, and arrays of both, none of which was there when the stream began."""
    await followed.read(stops=is_after_snapshot)
    found = await read_on(
        followed,
        "create type mood as enum ('sad', 'ok')",
        "create domain money5 as numeric(7, 2)",
        "create domain price as money5 check (value >= 0)",
        "create table t (id int primary key, m mood, p price, ms mood[], ps price[])",
        "insert into t values (1, 'ok', 1.5, '{sad,ok}', '{2.50,3}')",
    )
    of = forms(found["t"][0])
    assert labels(of["m"]) == labels(optional(of["ms"]["items"])) == "sad,ok"
    for price in (of["p"], optional(of["ps"]["items"])):
        assert (price["logicalType"], price["precision"], price["scale"]) == ("decimal", 7, 2)
    ((row,),) = (rows(found["t"]),)
    assert (row["m"], row["ms"], row["p"]) == ("ok", ["sad", "ok"], row["p"])


async def test_a_type_that_is_altered_is_asked_for_anew(followed: Followed) -> None:
    """A label more, for a table that comes later and for one whose columns change; no value waits for that."""
    followed.postgres.run("create type mood as enum ('sad', 'ok')", "create table a (id int primary key, m mood)")
    await followed.read(stops=is_after_snapshot)
    before = await read_on(followed, "insert into a values (1, 'ok')")
    assert labels(forms(before["a"][0])["m"]) == "sad,ok"
    found = await read_on(
        followed,
        "alter type mood add value 'happy'",
        "insert into a values (2, 'happy')",
        "create table b (id int primary key, m mood)",
        "insert into b values (1, 'happy')",
        "alter table a add column n int",
        "insert into a values (3, 'happy', 1)",
    )
    assert [row["m"] for row in rows(found["a"])] == ["happy", "happy"]
    assert labels(forms(found["b"][0])["m"]) == labels(forms(found["a"][-1])["m"]) == "sad,ok,happy"


async def test_a_type_that_is_gone_is_text(followed: Followed) -> None:
    """The log still has rows of it; one of the same name that was made since is another type."""
    await followed.read(stops=is_after_snapshot)
    found = await read_on(
        followed,
        "create type mood as enum ('sad', 'ok')",
        "create table t (id int primary key, m mood)",
        "insert into t values (1, 'ok')",
        "drop table t",
        "drop type mood",
        "create type mood as enum ('other')",
        "create table u (id int primary key, m mood)",
        "insert into u values (1, 'other')",
    )
    assert forms(found["t"][0])["m"] == "string"
    assert labels(forms(found["u"][0])["m"]) == "other"
    assert [row["m"] for row in rows([*found["t"], *found["u"]])] == ["ok", "other"]


async def test_a_table_that_is_renamed_goes_on_under_its_new_name(followed: Followed) -> None:
    """Its number is the same; another one may take the name that it had."""
    followed.postgres.run("create table t (id int primary key, n int)")
    await followed.read(stops=is_after_snapshot)
    found = await read_on(
        followed,
        "insert into t values (1, 1)",
        "alter table t rename to u",
        "insert into u values (2, 2)",
        "create table t (name text primary key)",
        "insert into t values ('x')",
    )
    assert rows(found["u"]) == [{"id": 2, "n": 2}]
    assert rows(found["t"]) == [{"id": 1, "n": 1}, {"name": "x"}]


async def test_tables_that_are_new_together_are_asked_for_in_one_session(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the server's own types once; a server has thousands of types, two more of them with each table."""
    names = [f"t{number}" for number in range(TABLES)]
    followed.postgres.run(*(f"create table {name} (id int primary key, n int, b text)" for name in names))
    await followed.read(stops=is_after_snapshot)
    sessions, fetched = 0, 0
    ask = Catalogue.rows

    def counted(config: PostgresCdcConfig) -> AbstractContextManager[Catalogue]:
        nonlocal sessions
        sessions += 1
        return catalogue(config)

    def rows_counted(server: Catalogue, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        nonlocal fetched
        found = ask(server, sql, values)
        fetched += len(found)
        return found

    followed.postgres.run(*(f"insert into {name} values (1, 2, 'x')" for name in names))
    monkeypatch.setattr(fetcher, "catalogue", counted)
    monkeypatch.setattr(Catalogue, "rows", rows_counted)
    found = await read_on(followed)
    assert sorted(found) == sorted([*names, "marker"])
    assert sessions < TABLES / 2  # the place in the log, where it ends, how much is held back, and one for the tables
    assert fetched < 10 * TABLES
