"""``PUT /connector-plugins/…/config/validate`` recommends tables and columns that a real database has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from service.validation import deep
from service.validation.plugins import ConnectorPlugins
from service.validation.validator import Validation
from service.worker.foreign_calls import ForeignCalls
from tests.databases import MySql, Postgres
from tests.integration.sql.reading import SECONDS_MAX
from tests.unit.validation.test_deep import WORKER, checks

pytestmark = pytest.mark.integration
KEYS = ("table.whitelist", "table.blacklist", "incrementing.column.name", "timestamp.column.name", "key.columns")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form waits for seconds; these tests wait for the database."""
    monkeypatch.setattr(deep, "RECOMMENDED_SECONDS_MAX", SECONDS_MAX)


async def recommended(url: str, **keys: str) -> Mapping[str, Sequence[str]]:
    """What the answer has for each key of ``KEYS``."""
    plugins = ConnectorPlugins(Validation(WORKER), ForeignCalls(), deep=checks())
    config = {"connector.class": "JdbcSource", "connection.url": url}
    validated = await plugins.validate("JdbcSource", config | {key.replace("_", "."): keys[key] for key in keys})
    found = {config.value.name: tuple(config.value.recommended_values) for config in validated.infos.configs}
    return {key: found[key] for key in KEYS}


async def test_postgresql_recommends_what_the_user_may_read(postgres: Postgres) -> None:
    """Names that two schemas have come with their schema; columns are those that all listed tables have."""
    role = postgres.name
    postgres.run(
        'create schema "Ot.her"',
        'create table "Ot.her".orders (id int)',
        "create table orders (id bigserial primary key, n numeric(9,0), u uuid, at timestamptz, d date, day timestamp)",
        'create table "Cust""omers" (id smallint primary key, day timestamp not null, name text)',
        "create view seen as select * from orders",
        "create table secret (id int)",
        f"create role {role} login",
        f'grant usage on schema "Ot.her" to {role}',
        f'grant select on orders, seen, "Cust""omers", "Ot.her".orders to {role}',
    )
    try:
        url = postgres.url.replace("user=postgres", f"user={role}")
        begun = await recommended(url)
        assert set(begun["table.whitelist"]) == {"Ot.her.orders", "public.orders", 'Cust"omers'}
        assert begun["table.blacklist"] == begun["table.whitelist"]
        assert {begun[key] for key in KEYS[2:]} == {()}
        assert set((await recommended(url, table_types="VIEW"))["table.whitelist"]) == {"seen"}
        one = await recommended(url, table_whitelist="public.orders")
        assert one["incrementing.column.name"] == ("id",)
        assert one["timestamp.column.name"] == ("at", "day")
        assert one["key.columns"] == ("id", "n", "u", "at", "d", "day")
        both = await recommended(url, table_whitelist='public.orders,Cust"omers')
        assert (both["incrementing.column.name"], both["timestamp.column.name"]) == (("id",), ("day",))
        assert both["key.columns"] == ("id", "day")
        nobody = await recommended(url.replace(role, "nobody", 2))
        assert set(nobody.values()) == {()}
    finally:
        postgres.run(f"drop owned by {role}", f"drop role {role}")


async def test_mysql_and_mariadb_recommend_what_the_user_may_read(each_mysql: MySql) -> None:
    """Of the URL's database; columns are those that all listed tables have."""
    user = f"'{each_mysql.name}'@'%'"
    await each_mysql.rows(
        "create table orders (id int unsigned primary key auto_increment, big bigint unsigned, n decimal(9,0), "
        "at timestamp null, day datetime(6), d date, note text)",
        "create table `Cust``o.mers` (id tinyint primary key, day datetime not null, name text)",
        "create view seen as select * from orders",
        "create table secret (id int)",
        f"create user {user}",
        *(f"grant select on {name} to {user}" for name in ("orders", "seen", "`Cust``o.mers`")),
    )
    try:
        url = each_mysql.url.replace("user=root", f"user={each_mysql.name}")
        begun = await recommended(url)
        assert set(begun["table.whitelist"]) == {"orders", "Cust`o.mers"}
        assert begun["table.blacklist"] == begun["table.whitelist"]
        assert {begun[key] for key in KEYS[2:]} == {()}
        assert set((await recommended(url, table_types="VIEW"))["table.whitelist"]) == {"seen"}
        one = await recommended(url, table_whitelist="orders")
        assert one["incrementing.column.name"] == ("id",)
        assert one["timestamp.column.name"] == ("at", "day")
        assert one["key.columns"] == ("id", "big", "n", "at", "day", "d", "note")
        both = await recommended(url, table_whitelist="orders,Cust`o.mers")
        assert (both["incrementing.column.name"], both["timestamp.column.name"]) == (("id",), ("day",))
        assert both["key.columns"] == ("id", "day")
        nobody = await recommended(url.replace(f"user={each_mysql.name}", "user=nobody"))
        assert set(nobody.values()) == {()}
    finally:
        await each_mysql.rows(f"drop user {user}")
