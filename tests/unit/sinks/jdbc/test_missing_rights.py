"""What a person runs where the user of a ``JdbcSink`` lacks a right; real servers say so in the integration tests."""

from __future__ import annotations

import pytest

from service.sinks.jdbc.rights import mysql_mend, postgresql_mend


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("permission denied for schema public", "GRANT CREATE ON SCHEMA public TO w"),
        ("permission denied for schema Shop 1", 'GRANT USAGE ON SCHEMA "Shop 1" TO w'),
        ("must be owner of table orders", "ALTER TABLE orders OWNER TO w"),
        ("must be owner of relation orders", "GRANT <owner> TO w"),
        ('permission denied to create temporary tables in database "lake"', "GRANT TEMPORARY ON DATABASE lake TO w"),
        ("permission denied for table orders", "GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO w"),
        ('permission denied for view o"dd', 'GRANT SELECT, INSERT, UPDATE, DELETE ON "o""dd" TO w'),
        ("permission denied for sequence orders_id_seq", "GRANT USAGE ON SEQUENCE orders_id_seq TO w"),
        ("keine Berechtigung für Tabelle orders", "GRANT SELECT, INSERT, UPDATE, DELETE ON <table> TO w"),
    ],
)
def test_postgresql(text: str, statement: str) -> None:
    """By its own words."""
    assert statement in postgresql_mend(text, "w")
    assert 'TO "Write-R"' in postgresql_mend(text, "Write-R")


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("CREATE command denied to user 'w'@'h' for table `shop`.`orders`", "GRANT CREATE ON `shop`.* TO w"),
        ("CREATE command denied to user 'w'@'h' for table 'orders'", "GRANT CREATE ON `own`.* TO w"),
        ("ALTER command denied to user 'w'@'h' for table 'orders'", "GRANT ALTER, CREATE, INSERT ON `own`.`orders` TO"),
        (
            "INSERT, UPDATE command denied to user 'w'@'h' for table `shop`.`orders`",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON `shop`.`orders` TO w",
        ),
        ("Access denied for user 'w'@'h' to database 'shop'", "GRANT SELECT, INSERT, UPDATE, DELETE ON `own`.* TO w"),
    ],
)
def test_mariadb_and_mysql(text: str, statement: str) -> None:
    """By theirs."""
    assert statement in mysql_mend(text, "w", "own")
