"""What is done about what PostgreSQL says."""

from __future__ import annotations

import pytest
from adbc_driver_manager import AdbcStatusCode, OperationalError

from fetchers.sdk import Retriable
from fetchers.toolkit.databases import postgresql_error


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("40001", "canceling statement due to conflict with recovery"),
        ("40P01", "canceling statement due to conflict with recovery"),
        ("57014", "canceling statement due to user request"),
        ("57P04", "terminating connection due to conflict with recovery"),
    ],
)
def test_a_statement_that_a_standby_ends_is_tried_again(state: str, text: str) -> None:
    """The chapter "Handling Query Conflicts" of its manual, and ``ProcessInterrupts`` of its ``postgres.c``."""
    error = OperationalError(f"[libpq] COPY: ERROR:  {text}\n", status_code=AdbcStatusCode.IO, sqlstate=state)
    told = postgresql_error(error, "db")
    assert (type(told.failure), str(told.failure)) == (Retriable, f"db: {text} ({state})")
