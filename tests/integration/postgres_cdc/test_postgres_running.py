# ruff: noqa: S608 - tables and rows are this test's own
"""What is altered and dropped on a real server while ``PostgresCdcSource`` reads its log over one connection."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Iterator

import pytest

from fetchers.postgres_cdc import fetcher
from fetchers.postgres_cdc.log import Batch, Framing, Log
from fetchers.sdk import Page
from tests.databases import Postgres
from tests.integration.postgres_cdc.test_postgres_log import Followed, is_after_snapshot, records
from tests.integration.postgres_cdc.test_postgres_types import forms, labels, rows

pytestmark = pytest.mark.integration
ARRIVAL_SECONDS = 60.0


@pytest.fixture
def followed(postgres: Postgres) -> Iterator[Followed]:
    """A database with a marker table, of which all tables are published, those too that are made later."""
    postgres.run("create table marker (id serial primary key)")
    made = Followed(postgres, publication_autocreate_mode="all_tables")
    yield made
    made.drop()


def running(followed: Followed, table: str, *statements: str) -> Callable[[Page], bool]:
    """Run statements, and a marker, at the first page of a table; stop at the marker."""
    is_run = False

    def stops(page: Page) -> bool:
        nonlocal is_run
        if page.topic == f"srv.public.{table}" and len(page) and not is_run:
            is_run = True
            followed.postgres.run(*statements, "insert into marker default values")
        return page.topic == "srv.public.marker"

    return stops


async def test_a_label_that_is_added_is_known_with_its_first_row(followed: Followed) -> None:
    """The server tells of no altered type, neither for a column nor for an array nor for a domain."""
    followed.postgres.run(
        "create type mood as enum ('sad', 'ok')",
        "create domain feeling as mood",
        "create table a (id int primary key, m mood, ms mood[], f feeling)",
    )
    await followed.read(stops=is_after_snapshot)
    followed.postgres.run("insert into a values (1, 'ok', '{sad}', 'ok')")
    for number, (label, column) in enumerate((("m", "m"), ("ms", "ms"), ("f", "f")), 2):
        value = f"'{{{label}}}'" if column == "ms" else f"'{label}'"
        alter = f"alter type mood add value '{label}' before 'ok'"
        insert = f"insert into a (id, {column}) values ({number}, {value})"
        found = await followed.read(stops=running(followed, "a", alter, insert))
        pages = [page for page in found if page.topic == "srv.public.a"]
        first, last = forms(pages[0]), forms(pages[-1])
        assert label not in labels(first["m"]).split(",")
        assert labels(last["m"]) == labels(last["f"]) == labels(first["m"]).replace("ok", f"{label},ok")
        assert rows(pages[-1:])[-1][column] == ([label] if column == "ms" else label)
        followed.postgres.run(f"insert into a values ({number * 10}, 'ok')")


async def test_a_dropped_table_is_forgotten_behind_its_last_row_and_no_other_is(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is renamed, taken out of the publication or not wanted is still there; so is one of the same name."""
    monkeypatch.setattr(fetcher, "FORGETTING_SECONDS", 0.0)
    forgotten: list[int] = []
    forget = Framing.forget

    def told(framing: Framing, oids: Iterable[int]) -> None:
        forgotten.extend(oids)
        forget(framing, oids)

    monkeypatch.setattr(Framing, "forget", told)
    followed.properties["table.exclude.list"] = "public\\.unwanted"
    names = ("gone", "renamed", "unwanted", "kept")
    followed.postgres.run(*(f"create table {name} (id int primary key)" for name in names))
    await followed.read(stops=is_after_snapshot)
    ((oid,),) = followed.postgres.rows("select 'gone'::regclass::oid::int8")
    inserts = [f"insert into {name} values (1)" for name in names]
    followed.postgres.run(*inserts)
    altered = ("insert into gone values (2)", "drop table gone", "alter table renamed rename to other",
               "create table gone (name text primary key)", "insert into gone values ('new')")  # fmt: skip
    marked = running(followed, "kept", *altered)
    later = ("insert into other values (3)", "insert into unwanted values (3)", "insert into gone values ('x')",
             "insert into kept values (3)")  # fmt: skip
    is_late = False

    def stops(page: Page) -> bool:
        nonlocal is_late
        if marked(page) and not is_late and oid not in forgotten:
            followed.postgres.run("insert into marker default values")  # the log goes on, until it is forgotten
        elif oid in forgotten and not is_late:
            is_late = True
            followed.postgres.run(*later)
        return is_late and page.topic == "srv.public.kept"

    found = await followed.read(stops=stops)
    told_rows = {
        name: [value["after"] for page in found if page.topic == f"srv.public.{name}" for _, value in records(page)]
        for name in (*names, "other")
    }
    assert set(forgotten) == {oid}
    assert told_rows["gone"] == [{"id": 1}, {"id": 2}, {"name": "new"}, {"name": "x"}]
    assert (told_rows["renamed"], told_rows["other"], told_rows["unwanted"]) == ([{"id": 1}], [{"id": 3}], [])
    assert told_rows["kept"] == [{"id": 1}, {"id": 3}]


async def test_what_the_slot_holds_back_is_told_before_the_first_page(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the log has come when it is first looked at; a page may wait for Kafka for long."""
    followed.postgres.run("create table t (id int primary key, v text)")
    await followed.read(stops=is_after_snapshot)
    followed.postgres.run("insert into t select g, repeat('x', 1000) from generate_series(1, 100) g")
    drain = Log.drain

    def drained(log: Log, confirmed: int) -> Batch | None:
        """All of the transaction is there at the first look."""
        while True:
            batch = drain(log, confirmed)
            if batch is not None and batch.groups:
                return batch
            assert log._replication is not None
            assert select.select([log._replication.fileno()], [], [], ARRIVAL_SECONDS)[0]

    monkeypatch.setattr(Log, "drain", drained)
    assert await followed.backlog(stops=lambda page: page.topic == "srv.public.t" and len(page) > 0) > 100_000
