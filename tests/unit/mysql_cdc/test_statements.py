"""Statements in the log, whatever their quotes and comments: TRUNCATE, bounds of transactions, names."""

from __future__ import annotations

import pytest

from fetchers.mysql_cdc.statements import Effect, effect_of, emptied_table, names_in

EMPTIED = {
    "TRUNCATE t": ("w", "t"),
    "truncate table t": ("w", "t"),
    "TRUNCATE TABLE `t`": ("w", "t"),
    "TRUNCATE`t`": ("w", "t"),
    "TRUNCATE TABLE a.b NOWAIT": ("a", "b"),
    "TRUNCATE TABLE `a``x` . `b.c`;": ("a`x", "b.c"),
    "truncate `table`": ("w", "table"),
    'TRUNCATE TABLE "a"."b"': ("a", "b"),
    "/* app: x */ TRUNCATE -- of today\n TABLE # now\n t /* end */": ("w", "t"),
    "/*!40000 TRUNCATE */ TABLE t": ("w", "t"),
    "/*M!100100 TRUNCATE TABLE */ `ü€`": ("w", "ü€"),
    "TRUNCATE TABLE 2024_rows WAIT 5": ("w", "2024_rows"),
}
OTHERS = (
    "",
    "/* TRUNCATE TABLE t */ DROP TABLE t",
    "-- TRUNCATE t\nDROP TABLE t",
    "ALTER TABLE t TRUNCATE PARTITION p",
    "CREATE TABLE `TRUNCATE` (id int)",
    "`TRUNCATE` t",
    "DROP TABLE t COMMENT 'TRUNCATE t'",
)


@pytest.mark.parametrize(("statement", "table"), EMPTIED.items())
def test_the_table_is_found(statement: str, table: tuple[str, str]) -> None:
    """With its database, or in that of the session."""
    assert emptied_table(statement, "w") == table


@pytest.mark.parametrize("statement", OTHERS)
def test_other_statements_are_none(statement: str) -> None:
    """Also where the word stands in a comment, in a name or behind another one."""
    assert emptied_table(statement, "w") is None


EFFECTS = {
    "BEGIN": Effect.BEGINS,
    "CREATE TABLE `t` (\n  `id` int\n) ENGINE=InnoDB START TRANSACTION": Effect.BEGINS,
    "CREATE TABLE t (id int) COMMENT 'START TRANSACTION'": Effect.NONE,
    "XA START X'61',X'',1": Effect.BEGINS_XA,
    "XA END X'61',X'',1": Effect.NONE,
    "XA COMMIT X'61',X'',1": Effect.COMMITS_XA,
    "XA ROLLBACK X'61',X'',1": Effect.ROLLS_BACK_XA,
    "COMMIT": Effect.ENDS,
    "ROLLBACK": Effect.ENDS,
    "ROLLBACK TO `a`": Effect.NONE,
    "SAVEPOINT `a`": Effect.NONE,
    "ALTER TABLE t RENAME TO u": Effect.NONE,
}


@pytest.mark.parametrize(("statement", "effect"), EFFECTS.items())
def test_bounds_of_transactions_are_known(statement: str, effect: Effect) -> None:
    """Rows follow a CREATE TABLE … SELECT of MySQL 8.0.21, which does not end its transaction."""
    assert effect_of(statement, has_rows=False) is effect


def test_names_are_those_of_the_statement() -> None:
    """Quoted or not; not those of comments. None where a letter is not known."""
    found = names_in('RENAME TABLE `A b`.t TO u /* v */, "W" TO x -- y')
    assert found is not None
    assert {"a b", "t", "u", "w", "x"} <= found
    assert not found & {"v", "y"}
    assert names_in("DROP TABLE \ufffd") is None
