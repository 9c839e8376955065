"""Keys of Confluent's JDBC sink: each is known, and those that say nothing here are told as such."""

from __future__ import annotations

import pytest

from service.sinks.jdbc.config import JdbcSinkConfig

CONFLUENT = {
    "connection.url": "jdbc:sqlite:shop.db",
    "connection.user": "shop",
    "connection.password": "secret",
    "connection.attempts": "5",
    "connection.backoff.ms": "500",
    "dialect.name": "SqliteDatabaseDialect",
    "insert.mode": "upsert",
    "batch.size": "3000",
    "delete.enabled": "true",
    "table.types": "TABLE,PARTITIONED_TABLE",
    "table.name.format": "shop_${topic}",
    "pk.mode": "record_key",
    "pk.fields": "id",
    "fields.whitelist": "id,amount",
    "db.timezone": "UTC",
    "date.timezone": "DB_TIMEZONE",
    "auto.create": "true",
    "auto.evolve": "true",
    "quote.sql.identifiers": "never",
    "trim.sensitive.log": "true",
    "max.retries": "3",
    "retry.backoff.ms": "100",
}


def test_every_key_of_confluents_is_known() -> None:
    """None would be told as unknown, none is refused."""
    assert {key for key in CONFLUENT if key.replace(".", "_") not in JdbcSinkConfig.model_fields} == set()
    assert config().max_retries == 3
    assert list(config().own_findings()) == []


def config(**changes: str) -> JdbcSinkConfig:
    """All of them; ``_`` in names stands for a dot."""
    parsed = JdbcSinkConfig.parse(CONFLUENT | {name.replace("_", "."): value for name, value in changes.items()})
    assert isinstance(parsed.config, JdbcSinkConfig), parsed.findings
    return parsed.config


@pytest.mark.parametrize(
    ("date", "zone", "is_refused"), [("UTC", "Asia/Tokyo", False), ("DB_TIMEZONE", "Asia/Tokyo", True)]
)
def test_days_are_never_moved(date: str, zone: str, is_refused: bool) -> None:  # noqa: FBT001 - a parameter
    """A zone that would move days is refused, and not passed over."""
    found = config(date_timezone=date, db_timezone=zone).own_findings()
    assert [finding.key for finding in found] == ["date.timezone"] * is_refused
