"""What a server, a login or a publication lacks for ``PostgresCdcSource``: told at validation, and where it starts.

Settings that only a start of the server changes are those of a server of its own, for all tests of this file.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from fetchers.sdk import Fatal, Finding, Page, Retriable
from fetchers.toolkit.refusals import Unreachable
from tests.databases import DatabaseServer, Postgres, own_postgres, running_postgres
from tests.integration.postgres_cdc.test_postgres_log import SECONDS_MAX, Followed, is_after_snapshot, records

pytestmark = pytest.mark.integration
SLOTS = "select slot_name from pg_replication_slots where database = current_database()"
RULES = """
host all guest 127.0.0.1/32 scram-sha-256
host all barred 127.0.0.1/32 reject
host all all 127.0.0.1/32 trust
"""
"""Of the server, in the form of its ``pg_hba.conf``: who is asked for a password, who is let in, and who is not."""


@pytest.fixture(scope="module")
def replica_level(database_folder: Path) -> Iterator[DatabaseServer]:
    """A server whose log is for physical replicas, and that asks some users for a password."""
    folder = database_folder / uuid.uuid4().hex
    folder.mkdir()
    rules = folder / "rules"
    rules.write_text(RULES)
    with running_postgres(folder, "wal_level=replica", f"hba_file={rules}") as server:
        Postgres(server, "postgres").run(
            "create role guest login replication password 'right'", "create role barred login", "create role idle"
        )
        yield server


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Followed]:
    """A database with a table, and a role of the database's name that may log in and replicate, and nothing else."""
    role = postgres.name
    postgres.run("create table t (id int primary key)", "insert into t values (1)", f"create role {role} login")
    postgres.run(f"alter role {role} replication")
    made = Followed(postgres, database_user=role)
    yield made
    made.drop()
    postgres.run(f"drop owned by {role} cascade", f"drop role {role}")


async def checked(followed: Followed) -> list[tuple[str, str]]:
    """Keys and words of what validation finds."""
    return told(await followed.connector().check(followed.context()))


def told(findings: object) -> list[tuple[str, str]]:
    """Keys and words of errors."""
    assert isinstance(findings, list)
    return [(one.key, one.message) for one in findings if isinstance(one, Finding) and one.is_error]


async def started(followed: Followed) -> list[Page]:
    """Pages up to the end of the snapshot; raises what a task would fail with, and retries nothing."""
    pages = []
    async with asyncio.timeout(SECONDS_MAX), aclosing(followed.connector().fetch(followed.context())) as fetched:
        async for page in fetched:
            pages.append(page)
            if is_after_snapshot(page):
                break
    return pages


async def refused_at_both(followed: Followed, key: str, words: str) -> None:
    """Validation has this one error, and a task fails for the same, before it has made a slot."""
    ((found, message),) = await checked(followed)
    assert found == key
    assert re.search(words, message), message
    with pytest.raises(Fatal, match=words):
        await started(followed)
    assert followed.postgres.rows(SLOTS) == []


async def test_a_log_that_is_not_logical_is_refused(replica_level: DatabaseServer) -> None:
    """The server says of it that it may pass (55000), and it does not."""
    with own_postgres(Postgres(replica_level, f"test_{uuid.uuid4().hex[:10]}")) as postgres:
        postgres.run("create table t (id int primary key)")
        await refused_at_both(
            Followed(postgres), "database.hostname", r"wal_level is replica\. Run: ALTER SYSTEM SET wal_level = logical"
        )


@pytest.mark.parametrize(
    ("changed", "key", "words"),
    [
        (
            {"database.user": "guest", "database.password": "wrong"},
            "database.password",
            'password authentication failed for user "guest".* ALTER ROLE "guest" PASSWORD \'…\'',
        ),
        ({"database.user": "guest"}, "database.password", "no password supplied.*name the user's in the config"),
        ({"database.user": "barred"}, "database.hostname", r"pg_hba.*SELECT pg_reload_conf\(\)"),
        ({"database.user": "idle"}, "database.user", 'not permitted to log in.* ALTER ROLE "idle" LOGIN'),
        ({"database.user": 'so "so'}, "database.user", 'does not exist.* CREATE ROLE "so ""so" LOGIN'),
        ({"database.dbname": "No where"}, "database.dbname", 'does not exist.* CREATE DATABASE "No where"'),
        ({"database.sslmode": "require"}, "database.hostname", "does not support SSL.*The server speaks no TLS"),
    ],
)
async def test_a_login_that_is_refused_is_told_with_what_mends_it(
    replica_level: DatabaseServer, changed: dict[str, str], key: str, words: str
) -> None:
    """Waiting mends none of it; a password that was named is not shown."""
    followed = Followed(Postgres(replica_level, "postgres"))
    followed.properties |= changed
    ((found, message),) = await checked(followed)
    assert found == key
    assert re.search(words, message), message
    assert "wrong" not in message
    with pytest.raises(Fatal, match=words):
        await started(followed)


@pytest.mark.parametrize("changed", [{"database.port": "1"}, {"database.hostname": "nobody.invalid"}])
async def test_a_server_that_does_not_answer_is_a_finding_and_may_come_back(
    shop: Followed, changed: dict[str, str]
) -> None:
    """At validation the address is wrong; a task waits for it."""
    shop.properties |= changed
    ((key, message),) = await checked(shop)
    assert key == "database.hostname"
    assert "Is a server running there" in message
    with pytest.raises(Unreachable) as failed:
        await started(shop)
    assert isinstance(failed.value, Retriable)


async def test_a_role_that_may_not_replicate_is_refused(shop: Followed) -> None:
    """Also when the right is taken from it later: the log is not read any more."""
    role = shop.postgres.name
    shop.postgres.run(f"alter table t owner to {role}", f"grant create on database {role} to {role}")
    shop.postgres.run(f"alter role {role} noreplication")
    await refused_at_both(shop, "database.user", f'may not replicate. Run: ALTER ROLE "{role}" REPLICATION')
    shop.postgres.run(f"alter role {role} replication")
    assert await checked(shop) == []
    await shop.read(stops=is_after_snapshot)
    shop.postgres.run(f"alter role {role} noreplication")
    with pytest.raises(Fatal, match="ALTER ROLE … REPLICATION"):
        await read_on(shop)


async def read_on(shop: Followed) -> None:
    """Until the task fails; while its last reader still has the slot it is tried again."""
    async with asyncio.timeout(SECONDS_MAX):
        async for _ in shop.pages(stops=lambda _: False):
            pass


@contextmanager
def no_slot_free(postgres: Postgres) -> Iterator[None]:
    """All slots of the server are taken by others."""
    mine = f"filler_{postgres.name}"
    (free,) = postgres.rows(
        "select current_setting('max_replication_slots')::int - count(*) from pg_replication_slots"
    )[0]
    names = [f"{mine}_{at}" for at in range(free)]
    try:
        postgres.run(*(f"select pg_create_physical_replication_slot('{name}')" for name in names))
        yield
    finally:
        found = f"from pg_replication_slots where starts_with(slot_name, '{mine}')"
        postgres.run(f"select pg_drop_replication_slot(slot_name) {found}")


async def test_a_server_without_a_free_slot_is_refused(shop: Followed) -> None:
    """The server says of it that it may pass (53400); only a person lets a slot go."""
    shop.properties["database.user"] = "postgres"
    with no_slot_free(shop.postgres):
        await refused_at_both(shop, "slot.name", r"No replication slot is free.*pg_drop_replication_slot")
    pages = await shop.read(stops=is_after_snapshot)
    assert [value["op"] for page in pages for _, value in records(page)] == ["r"]
    with no_slot_free(shop.postgres):  # its own is there
        assert await checked(shop) == []


async def test_a_slot_of_another_plugin_is_refused(shop: Followed) -> None:
    """It is somebody else's, of a program of another kind."""
    name = shop.postgres.name
    shop.properties["database.user"] = "postgres"
    shop.postgres.run(f"select pg_create_physical_replication_slot('{name}')")
    try:
        ((key, message),) = await checked(shop)
        assert (key, "name another in slot.name" in message) == ("slot.name", True)
        with pytest.raises(Fatal, match="name another in slot"):
            await started(shop)
    finally:
        shop.drop()


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("all_tables", 'Run as .*: CREATE PUBLICATION "dbz_publication" FOR ALL TABLES'),
        ("filtered", 'Run as a superuser, .*: CREATE PUBLICATION "dbz_publication" FOR TABLE "public"."t"'),
        ("disabled", 'Run: CREATE PUBLICATION "dbz_publication" FOR TABLE "public"."t"'),
    ],
)
async def test_a_publication_that_the_role_may_not_make_is_refused(shop: Followed, mode: str, words: str) -> None:
    """With the SQL; once somebody who may has run it, the source runs."""
    shop.postgres.run(f"grant select on t to {shop.postgres.name}")
    shop.properties["publication.autocreate.mode"] = mode
    await refused_at_both(shop, "publication.name", words)
    ((_, message),) = await checked(shop)
    (sql,) = re.findall("(CREATE PUBLICATION .*?)(?:;|$)", message)
    shop.postgres.run(sql)
    assert await checked(shop) == []
    pages = await shop.read(stops=is_after_snapshot)
    assert [value["op"] for page in pages for _, value in records(page)] == ["r"]


async def test_a_publication_of_somebody_else_that_lacks_a_table_is_told(shop: Followed) -> None:
    """Where tables are added at the start it is refused; elsewhere nothing is read of them, which is a warning."""
    postgres = shop.postgres
    postgres.run(
        "create table u (id int primary key)",
        "create publication mine for table t",
        f"grant select on t, u to {postgres.name}",
    )
    shop.properties["publication.name"] = "mine"
    sql = 'ALTER PUBLICATION "mine" ADD TABLE "public"."u"'
    await refused_at_both(shop, "publication.name", f"Run as a superuser, .*: {sql}")
    shop.properties["publication.autocreate.mode"] = "disabled"
    (finding,) = await shop.connector().check(shop.context())
    assert not finding.is_error
    assert (finding.key, "Nothing is read of tables that it has not" in finding.message) == ("publication.name", True)
    assert sql in finding.message
    postgres.run(sql)
    assert list(await shop.connector().check(shop.context())) == []


async def test_changes_that_a_publication_leaves_out_are_told(shop: Followed) -> None:
    """Deletes that never come are a choice that somebody may have made without knowing of this reader."""
    shop.postgres.run(
        f"grant select on t to {shop.postgres.name}",
        "create publication dbz_publication for table t with (publish = 'insert, truncate')",
    )
    shop.properties["publication.autocreate.mode"] = "disabled"
    (finding,) = await shop.connector().check(shop.context())
    assert not finding.is_error
    assert "does not publish update, delete: these changes never come" in finding.message
    shop.properties["skipped.operations"] = "t,d,u"
    assert await checked(shop) == []
    del shop.properties["skipped.operations"]
    (sql,) = re.findall("ALTER PUBLICATION .*", finding.message)
    shop.postgres.run(sql)
    assert await checked(shop) == []
    assert shop.postgres.rows("select pubinsert, pubupdate, pubdelete, pubtruncate from pg_publication") == [
        (True,) * 4
    ]


async def test_tables_whose_rows_could_not_be_changed_any_more_are_told(shop: Followed) -> None:
    """A publication of a table without a replica identity would end the application's updates."""
    postgres = shop.postgres
    postgres.run(
        "create table bare (n int)",
        "create table whole (n int)",
        "alter table whole replica identity full",
        "create publication dbz_publication for table t, bare, whole",
        f"grant select on t, bare, whole to {postgres.name}",
    )
    shop.properties["publication.autocreate.mode"] = "disabled"
    (finding,) = await shop.connector().check(shop.context())
    assert (finding.is_error, finding.key, finding.value) == (False, "table.include.list", '"public"."bare"')
    postgres.run("insert into bare values (1)")
    with pytest.raises(Exception, match="does not have a replica identity"):
        postgres.run("update bare set n = 2")
    (sql,) = re.findall("ALTER TABLE .*", finding.message)
    postgres.run(sql, "update bare set n = 2")
    assert await checked(shop) == []


async def test_tables_that_may_not_be_read_are_refused_before_a_slot_holds_back_log(shop: Followed) -> None:
    """The schema, the table, its rows: each with its right; all of them are told at validation."""
    postgres, role = shop.postgres, shop.postgres.name
    postgres.run(
        "create schema hidden",
        "create table hidden.h (id int primary key)",
        "create table guarded (id int primary key)",
        "alter table guarded enable row level security",
        f"grant select on guarded to {role}",
        "create publication dbz_publication for all tables",
    )
    shop.properties["table.include.list"] = "(hidden|public)\\..*"
    mended = [
        f'ALTER ROLE "{role}" BYPASSRLS',
        f'GRANT SELECT ON "hidden"."h" TO "{role}"',
        f'GRANT SELECT ON "public"."t" TO "{role}"',
        f'GRANT USAGE ON SCHEMA "hidden" TO "{role}"',
    ]
    found = await checked(shop)
    assert {key for key, _ in found} == {"database.user"}
    assert sorted(message.partition("Run: ")[2] for _, message in found) == mended
    with pytest.raises(Fatal, match="Run: "):
        await started(shop)
    assert postgres.rows(SLOTS) == []
    postgres.run(*mended)
    assert await checked(shop) == []
    pages = await shop.read(stops=is_after_snapshot)
    assert [value["op"] for page in pages for _, value in records(page)] == ["r"]
