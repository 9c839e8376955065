"""Configs of Confluent's JDBC source: each of its keys is read, refused where it asks for something else, or told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fetchers.sdk import Finding, Severity
from fetchers.sdk.testing import FakeContext
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Table
from fetchers.sql.fetcher import JdbcSource
from fetchers.sql.places import query_partition, stored_offset, stored_query_offset, table_partition
from fetchers.sql.tables import selected_tables

LEAST = {"connection.url": "jdbc:postgresql://db/shop", "mode": "incrementing", "topic.prefix": "t."}
KEYS = [
    "connection.attempts",
    "connection.backoff.ms",
    "connection.url",
    "connection.user",
    "connection.password",
    "catalog.pattern",
    "schema.pattern",
    "dialect.name",
    "mode",
    "incrementing.column.name",
    "incrementing.column.mapping",
    "timestamp.column.name",
    "timestamp.columns.mapping",
    "incrementing.relaxed.monotonic",
    "timestamp.initial",
    "timestamp.granularity",
    "timestamp.delay.interval.ms",
    "validate.non.null",
    "table.whitelist",
    "table.blacklist",
    "table.include.list",
    "table.exclude.list",
    "table.types",
    "query",
    "query.masked",
    "query.suffix",
    "query.retry.attempts",
    "topic.prefix",
    "poll.interval.ms",
    "batch.max.rows",
    "max.buffer.size",
    "poll.linger.ms",
    "table.poll.interval.ms",
    "table.monitoring.startup.polling.limit.ms",
    "numeric.mapping",
    "numeric.precision.mapping",
    "db.timezone",
    "date.calendar.system",
    "quote.sql.identifiers",
    "transaction.isolation.mode",
    "jdbc.credentials.provider.class.name",
]
"""Of releases 5 to 10.9."""
SHOP = [Table("orders", "public", database="shop"), Table("items", "public", database="shop")]


def findings_of(**changed: str) -> list[Finding]:
    """All that is said without asking the database."""
    parsed = JdbcConfig.parse(LEAST | {key.replace("__", "."): value for key, value in changed.items()})
    own = JdbcSource(parsed.config).findings() if parsed.config is not None else ()
    return [*parsed.findings, *own]


def errors(found: Iterable[Finding]) -> list[str]:
    """The keys that are refused."""
    return [finding.key for finding in found if finding.is_error]


@pytest.mark.parametrize("key", KEYS)
def test_each_key_of_confluent_is_read_or_told(key: str) -> None:
    """None is left out without a word."""
    assert key in {own.name for own in JdbcConfig.config_keys()} or JdbcConfig.unread(key) is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("query.masked", "select 1"),  # without it all tables would be read
        ("connection.ssl", "true"),  # goes to the driver, and would not be encrypted here
        ("incrementing.column.mapping", ".*orders:id"),
        ("timestamp.columns.mapping", ".*:[changed_at]"),
        ("numeric.precision.mapping", "true"),
        ("jdbc.credentials.provider.class.name", "com.example.Vault"),
    ],
)
def test_what_would_not_be_done_is_refused_by_name(key: str, value: str) -> None:
    """It would show what was not asked for, or in another form."""
    (finding,) = findings_of(**{key: value})
    assert (finding.key, finding.is_error) == (key, True)
    assert value not in finding.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connection.attempts", "3"),
        ("connection.backoff.ms", "10000"),
        ("query.retry.attempts", "-1"),
        ("numeric.precision.mapping", "false"),
        ("transaction.isolation.mode", "DEFAULT"),
        ("max.buffer.size", "0"),
        ("date.calendar.system", "LEGACY"),
        ("table.monitoring.startup.polling.limit.ms", "10000"),
        ("query.masked", ""),
    ],
)
def test_what_changes_nothing_is_told_in_a_warning(key: str, value: str) -> None:
    """The config runs, and nobody wonders later."""
    (finding,) = findings_of(**{key: value})
    assert (finding.key, finding.severity) == (key, Severity.WARNING)


def test_enumerations_are_in_small_and_capital_letters() -> None:
    """Confluent's validator takes both."""
    assert not findings_of(numeric__mapping="BEST_FIT", timestamp__granularity="MICROS_LONG")


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"table.types": "SYNONYM"}, "table.types"),
        ({"table.types": "MATERIALIZED VIEW", "connection.url": "jdbc:mysql://db/shop"}, "table.types"),
        ({"catalog.pattern": "other"}, "catalog.pattern"),
        ({"catalog.pattern": "other", "connection.url": "jdbc:mysql://db/shop"}, "catalog.pattern"),
        ({"schema.pattern": "other", "connection.url": "jdbc:mysql://db/shop"}, "schema.pattern"),
        ({"table.include.list": "(?!x)y"}, "table.include.list"),
        ({"table.exclude.list": "("}, "table.exclude.list"),
    ],
)
def test_what_narrows_the_tables_is_never_left_out(changed: dict[str, str], key: str) -> None:
    """Other tables would be read, or none for ever."""
    assert errors(findings_of(**changed)) == [key]


@pytest.mark.parametrize(
    "changed",
    [
        {"table.types": "table,View,PARTITIONED TABLE"},
        {"catalog.pattern": "shop"},
        {"catalog.pattern": "SH%"},
        {"catalog.pattern": ""},
        {"schema.pattern": "public"},
        {"catalog.pattern": "shop", "connection.url": "jdbc:mysql://db/shop"},
    ],
)
def test_what_narrows_nothing_runs(changed: dict[str, str]) -> None:
    """Such configs are printed in guides."""
    assert findings_of(**changed) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"table.whitelist": "orders"},
        {"table.whitelist": "shop.public.orders"},
        {"table.whitelist": '"shop"."public"."orders"'},
        {"table.include.list": "shop\\.public\\.ord.*"},
        {"table.include.list": "public\\.ord.*"},
        {"table.blacklist": "shop.public.items"},
        {"table.exclude.list": "shop\\.public\\.items"},
    ],
)
def test_the_database_may_stand_before_a_tables_name(changed: dict[str, str]) -> None:
    """So do releases have it whose driver of PostgreSQL is 42.7.5 or newer."""
    config = JdbcConfig.parse(LEAST | changed).config
    assert config is not None
    assert [table.name for table in selected_tables(config, SHOP)] == ["orders"]


@pytest.mark.parametrize(
    "partition",
    [
        {"protocol": "1", "table": "shop.public.orders"},
        {"protocol": "1", "table": "public.orders"},
        {"protocol": "1", "table": "orders"},
        {"table": "public.orders"},
        {"table": "orders"},
    ],
)
def test_each_form_of_confluents_partition_is_taken_over(partition: dict[str, str]) -> None:
    """Else all rows would come again."""
    context = FakeContext(offsets={tuple(sorted(partition.items())): {"incrementing": 7}})
    assert stored_offset(context, SHOP[0]) == {"incrementing": 7}
    assert stored_offset(context, SHOP[1]) == {}


def test_the_place_of_confluents_query_is_taken_over_once() -> None:
    """Its partition does not say which query it was; once one was read here, another begins anew, as it is told."""
    one = "select * from orders"
    theirs: dict[Any, Any] = {(("query", "query"),): {"incrementing": 7}}
    assert stored_query_offset(FakeContext(offsets=theirs), one) == {"incrementing": 7}
    ours = theirs | {tuple(query_partition(one).items()): {"incrementing": 9}}
    assert stored_query_offset(FakeContext(offsets=ours), one) == {"incrementing": 9}
    assert stored_query_offset(FakeContext(offsets=ours), "select 2") == {}
    assert table_partition("x") not in [dict(key) for key in ours]
