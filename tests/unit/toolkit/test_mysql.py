"""What is asked of servers of different versions."""

from __future__ import annotations

from typing import Any

import pytest

from fetchers.toolkit.mysql import MySqlConnection, charsets_of


class Session(MySqlConnection):
    """Knows one collation, by its number."""

    def __init__(self, version: str) -> None:
        super().__init__("h")
        self.version = version
        self.asked = ""

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        """The same for every statement."""
        self.asked = sql
        return [{"id": "45", "name": "utf8mb4"}, {"id": None, "name": "utf8mb4"}]


@pytest.mark.parametrize(
    ("version", "view"),
    [
        ("8.0.15", "collations"),
        ("10.5.23-MariaDB", "collations"),
        ("10.6.18-MariaDB-log", "collations"),
        ("5.5.5-10.6.18-MariaDB-0ubuntu0", "collations"),
        ("5.5.68-MariaDB", "collations"),
        ("10.10.1-MariaDB", "collation_character_set_applicability"),
        ("10.11.6-MariaDB-0+deb12u1", "collation_character_set_applicability"),
        ("5.5.5-10.11.6-MariaDB-log", "collation_character_set_applicability"),
        ("11.4.5-MariaDB", "collation_character_set_applicability"),
    ],
)
async def test_numbers_of_collations_are_where_the_version_has_them(version: str, view: str) -> None:
    """The column ID came to that view with MariaDB 10.10.1; to the other, later collations come without a number."""
    session = Session(version)
    assert await charsets_of(session) == {45: "utf8mb4"}
    assert session.asked.endswith(f" FROM information_schema.{view}")
