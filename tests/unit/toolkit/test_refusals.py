"""Refusals of database servers that no test's own server is made to say."""

from __future__ import annotations

import pytest

from fetchers.sdk import Disconnected, Fatal
from fetchers.toolkit.databases import mysql_error
from fetchers.toolkit.refusals import SessionRefused, Unreachable, postgresql_refusal, session_finding

_AT = 'connection failed: connection to server at "10.0.0.7", port 5432 failed: '


@pytest.mark.parametrize(
    "text",
    [
        f"{_AT}FATAL:  the database system is starting up",
        f"{_AT}FATAL:  sorry, too many clients already",
        f"{_AT}FATAL:  number of requested standby connections exceeds max_wal_senders (currently 4)",
        "server closed the connection unexpectedly\n\tThis probably means the server terminated abnormally",
        "",
    ],
)
def test_what_passes_by_itself_is_no_fault_of_a_config(text: str) -> None:
    """It is tried again, and is no finding."""
    found = postgresql_refusal(text, "db")
    assert isinstance(found, Disconnected)
    assert not isinstance(found, Unreachable)


def test_the_servers_word_goes_before_an_address_that_did_not_answer() -> None:
    """A name with two addresses, on one of which nobody listens; libpq tells of both."""
    both = (
        'connection to server at "db" (::1), port 5432 failed: Connection refused\n\tIs the server running?\n'
        'connection to server at "db" (10.0.0.7), port 5432 failed: FATAL:  role "shop" is not permitted to log in'
    )
    found = postgresql_refusal(both, "db")
    assert isinstance(found, SessionRefused)
    assert str(found) == 'db: role "shop" is not permitted to log in. Run: ALTER ROLE "shop" LOGIN'
    assert session_finding(found, "db").key == "database.user"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('permission denied for database "shop"\nDETAIL:  User does not have', 'GRANT CONNECT ON DATABASE "shop" TO …'),
        ("permission denied to start WAL sender\nDETAIL:  Only roles with", "ALTER ROLE … REPLICATION"),
        ('no pg_hba.conf entry for host "10.0.0.9", user "a", database "shop", no encryption', "pg_reload_conf()"),
        ('LDAP authentication failed for user "a"', "LDAP authentication failed"),
    ],
)
def test_what_a_person_must_mend_in_postgresql(text: str, words: str) -> None:
    """Newer releases' words too."""
    found = postgresql_refusal(f"{_AT}FATAL:  {text}", "db")
    assert isinstance(found, Fatal)
    assert words in str(found)


@pytest.mark.parametrize(
    ("code", "about", "words"),
    [
        (1130, "server", "CREATE USER"),
        (1698, "user", "ALTER USER"),
        (1820, "password", "ALTER USER"),
        (3118, "user", "ACCOUNT UNLOCK"),
        (3159, "server", "without TLS"),
    ],
)
def test_what_a_person_must_mend_in_mysql(code: int, about: str, words: str) -> None:
    """By the number; the text may be in any language."""
    found = mysql_error(Exception(code, "nein"), "db").failure
    assert isinstance(found, SessionRefused)
    assert found.about == about
    assert words in str(found)


@pytest.mark.parametrize("code", [1040, 1129, 1203, 2006, 2013])
def test_what_passes_by_itself_in_mysql(code: int) -> None:
    """Too many sessions, a host that is blocked until somebody flushes it, a connection that broke."""
    found = mysql_error(Exception(code, "no"), "db").failure
    assert isinstance(found, Disconnected)
    assert not isinstance(found, Unreachable)
