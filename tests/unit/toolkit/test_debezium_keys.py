"""Every key of Debezium's connectors is read, refused, or told: none is left out without a word.

``debezium_3_5_keys.tsv`` is what the ``ConfigDef`` of Debezium 3.5.0.Final says: connector, key, default.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.sdk import Finding, Severity
from fetchers.toolkit.debezium_keys import DebeziumConfig
from fetchers.toolkit.unread_keys import Unread

CONFIGS: dict[str, type[DebeziumConfig]] = {"postgresql": PostgresCdcConfig, "mysql": MySqlCdcConfig}
LEAST = {
    "postgresql": {
        "topic.prefix": "shop",
        "database.hostname": "localhost",
        "database.user": "headrace",
        "database.password": "secret",
        "database.dbname": "shop",
        "plugin.name": "pgoutput",
    },
    "mysql": {
        "topic.prefix": "shop",
        "database.hostname": "localhost",
        "database.user": "headrace",
        "database.password": "secret",
        "database.server.id": "7",
    },
}
OF_DEBEZIUM = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("debezium_3_5_keys.tsv").read_text(encoding="utf-8").split("\n")
    if line
]


def unread(key: str, connector: str) -> Unread | None:
    """The entry of a key that nothing reads."""
    return CONFIGS[connector].unread(key)


def findings_of(connector: str, key: str, value: str) -> list[Finding]:
    """What is said of one key, its connector's config otherwise right."""
    parsed = CONFIGS[connector].parse({**LEAST[connector], key: value})
    found = [finding for finding in parsed.findings if finding.key == key]
    assert (parsed.config is None) == any(finding.is_error for finding in found)
    return found


@pytest.mark.parametrize("connector", LEAST)
def test_the_least_config_is_right(connector: str) -> None:
    """Whatever is said below is said of the one key."""
    assert CONFIGS[connector].parse(LEAST[connector]).config is not None


@pytest.mark.parametrize(("connector", "key"), [(connector, key) for connector, key, _ in OF_DEBEZIUM])
def test_each_key_of_debezium_is_read_or_told(connector: str, key: str) -> None:
    """The list is Debezium's own."""
    is_read = key in {own.name for own in CONFIGS[connector].config_keys()}
    assert is_read or unread(key, connector) is not None


@pytest.mark.parametrize(("connector", "key", "default"), [row for row in OF_DEBEZIUM if row[2]])
def test_a_default_that_is_spelt_out_is_taken(connector: str, key: str, default: str) -> None:
    """Some tools write every key into a config."""
    is_read = key in {own.name for own in CONFIGS[connector].config_keys()}
    said = [] if is_read else findings_of(connector, key, default)
    assert [finding for finding in said if finding.is_error] == []


@pytest.mark.parametrize("connector", LEAST)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("column.mask.with.12.chars", "public.people.name"),
        ("column.mask.hash.SHA-256.with.salt.x", "public.people.name"),
        ("column.truncate.to.20.chars", "public.people.note"),
        ("message.key.columns", "public.orders:customer"),
        ("snapshot.select.statement.overrides", "public.orders"),
        ("skip.messages.without.change", "true"),
        ("provide.transaction.metadata", "true"),
        ("table.blacklist", "public.secrets"),
        ("converters", "isbn"),
    ],
)
def test_what_would_not_be_done_is_refused_by_name(connector: str, key: str, value: str) -> None:
    """It would show what was to be hidden, or drop what somebody relies on."""
    (finding,) = findings_of(connector, key, value)
    assert finding.is_error
    assert value not in finding.message  # it may be a salt


@pytest.mark.parametrize("connector", LEAST)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("include.schema.changes", "true"),
        ("snapshot.max.threads", "4"),
        ("skip.messages.without.change", "false"),
        ("converters", ""),
        ("errors.max.retries", "3"),
        ("driver.socketTimeout", "10"),
    ],
)
def test_what_changes_nothing_is_told_in_a_warning(connector: str, key: str, value: str) -> None:
    """The config runs, and nobody wonders later."""
    if unread(key, connector) is None:
        assert (connector, key) == ("postgresql", "include.schema.changes")
        return
    (finding,) = findings_of(connector, key, value)
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith("Nothing reads it.")


def test_a_key_of_nobody_s_is_left_to_those_who_look_for_slips() -> None:
    """The warning for unknown keys has the likely name."""
    assert unread("tabel.include.list", "postgresql") is None


def test_no_entry_stands_behind_one_that_has_all_its_keys() -> None:
    """The table is looked through in its order."""
    behind = [
        (one.key, connector)
        for connector in LEAST
        for one in CONFIGS[connector].unread_keys
        if unread(one.key, connector) is not one
    ]
    assert behind == []


@pytest.mark.parametrize(
    ("word", "mode"),
    [("disable", "disabled"), ("trust", "required"), ("verify-full", "verify_identity"), ("required", "required")],
)
def test_words_of_the_connector_for_mariadb_are_known(word: str, mode: str) -> None:
    """Debezium's two connectors have two lists of words."""
    config = MySqlCdcConfig.parse({**LEAST["mysql"], "database.ssl.mode": word}).config
    assert config is not None
    assert config.database_ssl_mode == mode
