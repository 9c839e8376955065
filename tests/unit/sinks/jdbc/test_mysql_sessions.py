"""What is told a server of MySQL around a transaction, so that it ends one whose worker is frozen, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from fetchers.sdk import Disconnected
from fetchers.sdk.reach import AllowedAddresses
from service.sinks.jdbc.mysql import IDLE_SECONDS_MAX, MySqlTarget
from service.sinks.jdbc.sink import JdbcSink


class Session(MySqlTarget):
    """Keeps what it is told; breaks at one statement."""

    def __init__(self, *, is_mariadb: bool, breaks_at: str = "") -> None:
        config = JdbcSink.config_class.parse({"connection.url": "jdbc:mysql://localhost/shop"}).config
        super().__init__(config, AllowedAddresses())  # type: ignore[arg-type]
        self._is_mariadb = is_mariadb
        self.breaks_at = breaks_at
        self.told: list[str] = []
        self.is_closed = False

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Nothing is found."""
        if sql == self.breaks_at:
            raise Disconnected("gone")
        self.told.append(sql)
        return []

    def close(self) -> None:
        """Noted."""
        self.is_closed = True


@pytest.mark.parametrize(
    ("is_mariadb", "around"),
    [(True, ([], [])), (False, ([f"SET wait_timeout = {IDLE_SECONDS_MAX}"], ["SET wait_timeout = DEFAULT"]))],
)
def test_the_limit_is_there_for_the_length_of_a_transaction(
    *, is_mariadb: bool, around: tuple[list[str], list[str]]
) -> None:
    """MariaDB has one for transactions, set once; a session between two puts may be silent for hours."""
    session = Session(is_mariadb=is_mariadb)
    session.begin()
    session.commit()
    assert session.told == [*around[0], "start transaction", "commit", *around[1]]


def test_a_session_that_is_lost_behind_the_commit_is_no_failure_of_the_put() -> None:
    """Its rows are there: if the put were tried again, they would come twice. The next one has another session."""
    session = Session(is_mariadb=False, breaks_at="SET wait_timeout = DEFAULT")
    session.begin()
    session.commit()
    assert session.is_closed


def test_a_commit_that_breaks_is_a_failure() -> None:
    """Nobody knows whether it was made."""
    session = Session(is_mariadb=False, breaks_at="commit")
    session.begin()
    with pytest.raises(Disconnected):
        session.commit()
