"""``jdbc:`` URLs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fetchers.toolkit.databases import DatabaseUrl, read_url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "jdbc:mysql://127.0.0.1:3306/test?user=root",
            DatabaseUrl("mysql", "127.0.0.1", 3306, "test", "root"),
        ),
        ("jdbc:postgresql:shop", DatabaseUrl("postgresql", "localhost", 5432, "shop")),
        (
            "jdbc:postgresql://db/shop?user=a&password=b%26c&sslmode=require",
            DatabaseUrl("postgresql", "db", 5432, "shop", "a", "b&c", {"sslmode": "require"}),
        ),
        ("jdbc:mariadb://[::1]:1/x", DatabaseUrl("mariadb", "::1", 1, "x")),
        ("jdbc:sqlite:/data/shop.db", DatabaseUrl("sqlite", "", 0, "/data/shop.db")),
    ],
)
def test_forms_that_people_have_are_read(text: str, expected: DatabaseUrl) -> None:
    """As Java's drivers take them."""
    assert read_url(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:hunter2@db/shop",
        "jdbc:oracle:thin:@db:1521/x?password=hunter2",
        "jdbc:postgresql://a,b/shop?password=hunter2",
        "jdbc:mysql://db:x/shop?password=hunter2",
        "jdbc:mysql://db?password=hunter2",
        "jdbc:sqlite::memory:",
    ],
)
def test_others_are_refused_without_being_repeated(text: str) -> None:
    """A URL may hold a password."""
    with pytest.raises(ValueError, match="Expected") as refused:
        read_url(text)
    assert "hunter2" not in str(refused.value)


def test_sources_of_postgresql_do_without_the_driver_of_mysql() -> None:
    """It brings cryptography with it, and takes 10 MB that a worker without a MySQL has no use for."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, fetchers.postgres_cdc.fetcher, fetchers.sql.fetcher; print(*sys.modules)"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "psycopg" in loaded
    assert {"asyncmy", "cryptography"}.isdisjoint(loaded)
