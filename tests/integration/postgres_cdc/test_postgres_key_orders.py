# ruff: noqa: S608 - tables and rows are this test's own
"""Places in the order of a key that an ALTER has given another order meanwhile, on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from fetchers.sdk import Page
from tests.databases import Postgres
from tests.integration.postgres_cdc.test_postgres_log import SECONDS_MAX, Followed, records

pytestmark = pytest.mark.integration
TYPES = (
    "create type word as enum ('a', 'b', 'c', 'd')",
    "create collation folded (provider = icu, locale = 'en-u-kn-true')",
    'create domain letters as text collate "C"',
    "create collation loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
    "create extension citext",
)
TURNED = [f"alter type word rename value '{one}' to '{other}'" for one, other in ("ax", "da", "xd", "bx", "cb", "xc")]
FOLDED = ["alter table t alter k type text collate folded"]
ALTERED = {
    "enum turned": ("word", TURNED, ["a", "b", "c", "d"]),
    "enum of an array turned": ("word[]", TURNED, ["{a}", "{b}", "{c}", "{d}"]),
    "enum with a new value": ("word", ["alter type word add value 'a2' before 'b'"], ["a", "b", "c", "d"]),
    "other collation": ('text collate "C"', FOLDED, ["B", "D", "a", "c"]),
    "domain of another collation": ("letters", FOLDED, ["B", "D", "a", "c"]),
    "other type": ("int", ["alter table t alter k type varchar(9)"], ["8", "9", "10", "11"]),
    "blanks that do not count": (
        'varchar(9) collate "C"', ['alter table t alter k type char(9) collate "C"'], ["A", "a\t", "a ", "b"]
    ),
    "longer": ("varchar(9)", ["alter table t alter k type text"], ["a", "b", "c", "d"]),
}  # fmt: skip
"""What becomes of a key after two of its values were read; one that keeps its order is no reason to begin anew."""
KEPT = {"longer"}


@pytest.fixture
def followed(postgres: Postgres) -> Iterator[Followed]:
    """A database whose tables are read by two rows at a time."""
    postgres.run(*TYPES)
    made = Followed(postgres, snapshot_fetch_size="2")
    yield made
    made.drop()


async def begun(followed: Followed) -> list[Page]:
    """What is read of the table up to its first two rows."""
    return await followed.read(stops=lambda page: "snapshot_key" in page.offset)


def numbers(pages: list[Page]) -> list[int]:
    """The column n of all rows."""
    return [value["after"]["n"] for page in pages for _, value in records(page)]


@pytest.mark.parametrize("case", ALTERED)
async def test_a_key_whose_order_is_altered_is_read_anew(followed: Followed, case: str) -> None:
    """Behind its last place the table would have other rows than those that were not read yet."""
    kind, changes, values = ALTERED[case]
    rows = ", ".join(f"(E'{value}', {number})" for number, value in enumerate(values))
    followed.postgres.run(f"create table t (k {kind} primary key, n int)", f"insert into t values {rows}")
    assert numbers(await begun(followed)) == [0, 1]
    followed.postgres.run(*changes)
    rest = numbers(await followed.read(stops=lambda _: followed.is_read))
    assert sorted(rest) == ([2, 3] if case in KEPT else [0, 1, 2, 3])


@pytest.mark.parametrize("key", ["b, a", "b, c"])
async def test_a_key_of_other_columns_is_read_anew(followed: Followed, key: str) -> None:
    """As many as before, in another order or not the same ones; in the snapshot as in stretches beside the log."""
    followed.postgres.run(
        "create table t (a int, b int, c int, n int, primary key (a, b))",
        "insert into t select g, 9 - g, 9 - g, g from generate_series(1, 8) g",
    )
    assert numbers(await begun(followed)) == [1, 2]
    followed.postgres.run("alter table t drop constraint t_pkey", f"alter table t add primary key ({key})")
    seen = numbers(await followed.read(stops=lambda page: len(page) > 0))
    assert seen == [8, 7]
    followed.postgres.run("alter table t drop constraint t_pkey", "alter table t add primary key (a, b)")
    assert numbers(await followed.read(stops=lambda _: followed.is_read)) == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_places_of_an_earlier_release_are_gone_on_from(followed: Followed) -> None:
    """They say no order."""
    followed.postgres.run(
        "create table t (k int primary key, n int)", "insert into t select g, g from generate_series(1, 6) g"
    )
    await begun(followed)
    stored = followed.offsets["log"]
    texts = json.loads(str(stored["snapshot_key"]))
    followed.offsets["log"] = {**stored, "snapshot_key": json.dumps(texts[:1])}
    assert numbers(await followed.read(stops=lambda page: "key" in page.offset and len(page) > 0)) == [3, 4]
    stored = followed.offsets["tables"]
    assert json.loads(str(stored["key"]))[:-1] == ["4"]
    followed.offsets["tables"] = {**stored, "key": '["4"]'}
    assert numbers(await followed.read(stops=lambda _: followed.is_read)) == [5, 6]


async def test_the_log_goes_on_while_a_stretch_waits_for_an_alter(followed: Followed) -> None:
    """One that waits until who has read the table commits holds up all that come behind it."""
    postgres = followed.postgres
    postgres.run(
        "create table t (k int primary key, n int)",
        "insert into t select g, g from generate_series(1, 6) g",
        "create table u (k int primary key)",
    )
    await begun(followed)
    found: list[Page] = []
    altering: asyncio.Task[None] | None = None
    with postgres.connect(autocommit=False) as reader, reader.cursor() as cursor:
        cursor.execute("select * from t limit 1")
        cursor.fetchall()
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            async for page in followed.pages(stops=lambda _: followed.is_read):
                found.append(page)
                if altering is None:
                    added = asyncio.to_thread(postgres.run, "alter table t add m int default 7")
                    altering = group.create_task(added, name="alter")
                    while not postgres.rows("select 1 from pg_locks where not granted and database is not null"):
                        await asyncio.sleep(0.05)
                    postgres.run("insert into u values (1)")
                elif page.topic == "srv.public.u" and not altering.done():
                    reader.rollback()
                    await altering
    rows = [value["after"] for page in found if page.topic == "srv.public.t" for _, value in records(page)]
    assert [row["n"] for row in rows] == [3, 4, 5, 6]
    assert rows[-1]["m"] == 7


KEYED = {
    "float8": ["'-Infinity'", "-0.0", "5e-324", "0.1", "1e308", "'Infinity'", "'NaN'"],
    "float4": ["-0.0", "1e-45", "0.1", "16777217", "'Infinity'", "'NaN'"],
    "numeric": ["'-Infinity'", "-1.50", "0.000", "1.10", "1.2", "1e30", "'Infinity'", "'NaN'"],
    "numeric(5,2)": ["-1.5", "0", "1.1", "1.25"],
    "char(4)": ["'a'", "E'a\\t'", "'ab'", "'b  c'"],
    "varchar(9)": ["''", "'a'", "E'a\\t'", "'a '", "E'\\\\'", "''''", "'ü'"],
    "text collate loose": ["'B'", "'a'", "'É'", "'z'"],
    "citext": ["'B'", "'a'", "'C'", "'d'"],
    "letters": ["'B'", "'a'", "'Z'"],
    "word": ["'d'", "'a'", "'c'"],
    "name": ["'B'", "'a'"],
    '"char"': ["''", "'A'", "'\\377'"],
    "bool": ["true", "false"],
    "uuid": ["'ffffffff-0000-0000-0000-000000000000'", "'00000000-0000-0000-0000-000000000001'"],
    "bytea": ["''", "'\\x00'", "'\\xff00'", "'\\x5c'"],
    "bit varying(9)": ["B''", "B'01'", "B'1'"],
    "timestamptz": ["'-infinity'", "'4713-01-01 BC'", "'2024-10-27 02:30+02'", "'2024-10-27 02:30+01'", "'infinity'"],
    "timestamp": ["'2024-10-27 02:30:00.000001'", "'294276-12-31'"],
    "date": ["'-infinity'", "'0044-03-15 BC'", "'2024-02-29'", "'infinity'"],
    "timetz": ["'12:00+02'", "'10:00+00'", "'10:00:00.5-01'"],
    "interval": ["'-1 mon'", "'29 days'", "'1 mon'", "'1 year -1 day'", "'720:00:01'"],
    "money": ["-1.5", "1234.5"],
    "inet": ["'10.0.0.1'", "'10.0.0.0/8'", "'::1'"],
    "int[]": ["'{}'", "'{1}'", "'{1,NULL}'", "'{1,2}'"],
    "text[]": ["'{\"a,b\"}'", "'{NULL}'", "'{\"NULL\"}'"],
    "int4range": ["'empty'", "'[1,)'", "'(,3)'"],
    "jsonb": ["'null'", "'\"a\"'", "'{\"a\": 1}'", "'[]'"],
    "pg_lsn": ["'0/A'", "'F/0'"],
}  # fmt: skip
"""Values of keys, by type."""


async def test_keys_of_every_type_are_gone_on_from(followed: Followed) -> None:
    """Each row once and in order, one a stretch; alone and as the second column of a key."""
    postgres = followed.postgres
    for at, (kind, values) in enumerate(KEYED.items()):
        rows = ", ".join(f"({number}, {value}, {place})" for number in (1, 2) for place, value in enumerate(values))
        postgres.run(
            f"create table k{at} (a int, k {kind}, n int, primary key (a, k))",
            f"insert into k{at} values {rows}",
            f"create table s{at} (k {kind} primary key, n int)",
            f"insert into s{at} select k, n from k{at} where a = 1",
        )
    followed.properties |= {"snapshot.mode": "no_data", "snapshot.fetch.size": "1", "table.poll.interval.ms": "60000"}
    await followed.read(stops=lambda _: followed.is_read)
    followed.properties |= {"snapshot.request.id": "1"}
    pages = await followed.read(stops=lambda _: followed.is_read and followed.offsets["tables"].get("request") == "1")
    for at, kind in enumerate(KEYED):
        for table, order in ((f"s{at}", "k"), (f"k{at}", "a, k")):
            told = [number for (number,) in postgres.rows(f"select n from {table} order by {order}")]
            own = numbers([page for page in pages if page.topic == f"srv.public.{table}"])
            assert (kind, own) == (kind, told)


@pytest.mark.parametrize("case", ["generated", "not published"])
async def test_a_key_of_which_the_log_lacks_a_column_is_none(followed: Followed, case: str) -> None:
    """The rest of it tells no rows apart: a snapshot that goes on behind it, and a topic's compaction, lose rows."""
    postgres, is_generated = followed.postgres, case == "generated"
    kind = "int generated always as (n * 2) stored" if is_generated else "int default 7"
    postgres.run(
        f"create table t (a int, n int, b {kind}, primary key (a, {'b' if is_generated else 'n, b'}))",
        "insert into t select 1, g from generate_series(1, 7) g",
        "create publication own for table t (a, n) with (publish = 'insert')",
    )
    if not is_generated:
        followed.properties |= {"publication.name": "own", "publication.autocreate.mode": "disabled"}
    begun = await followed.read(stops=lambda page: len(page) > 0)
    assert numbers(begun) == [1, 2]
    rest = await followed.read(stops=lambda _: followed.is_read)
    assert sorted(numbers(rest)) == [1, 2, 3, 4, 5, 6, 7]
    postgres.run("insert into t values (1, 8)")
    logged = await followed.read(stops=lambda page: len(page) > 0)
    assert numbers(logged) == [8]
    assert {repr(key) for page in (*begun, *rest, *logged) for key, _ in records(page)} == {"None"}


@pytest.mark.parametrize("how", ["made again", "exchanged"])
async def test_another_table_of_the_name_is_read_from_its_beginning(followed: Followed, how: str) -> None:
    """Of the time before it is published the log has nothing, and the place is one of the table before."""
    made = ("create table {} (k int primary key, n int)", "insert into {} select g, g from generate_series(1, {}) g")
    followed.postgres.run(made[0].format("t"), made[1].format("t", 4))
    assert numbers(await begun(followed)) == [1, 2]
    if how == "made again":
        followed.postgres.run("drop table t", made[0].format("t"), made[1].format("t", 5))
    else:
        followed.postgres.run(made[0].format("other"), made[1].format("other", 5))
        followed.postgres.run("alter table t rename to old", "alter table other rename to t")
    rest = await followed.read(stops=lambda _: followed.is_read)
    assert numbers([page for page in rest if page.topic == "srv.public.t"]) == [1, 2, 3, 4, 5]
