"""Keys of Confluent's JDBC source that nothing here reads (``JdbcSourceConnectorConfig`` of ``kafka-connect-jdbc`` 10).

Its connector gives every other key that begins with ``connection.`` to the JDBC driver, without that beginning.
"""

from __future__ import annotations

from typing import Final

from fetchers.toolkit.unread_keys import ANY, NONE, Unread

_BY_TABLE = "Columns cannot be given table by table: give such tables a connector of their own, with"
_WORKER = "The worker makes a lost connection anew, as often as it takes."
UNREAD: Final = (
    Unread("connection.attempts", ANY, _WORKER),
    Unread("connection.backoff.ms", ANY, _WORKER),
    Unread("connection.", NONE, "Properties of a JDBC driver are not read here: put what the database's own client "
           "knows behind a ? in connection.url, such as sslmode=verify-full."),
    Unread("jdbc.credentials.provider.", NONE, "Java classes cannot be loaded: give connection.user and "
           "connection.password, as by ${env:NAME} or ${file:PATH:KEY}."),
    Unread("query.masked", NONE, "It would not be read, and tables would be: set query, with what is secret in it as "
           "${env:NAME} or ${file:PATH:KEY}."),
    Unread("query.retry.attempts", ANY, _WORKER),
    Unread("incrementing.column.mapping", NONE, f"{_BY_TABLE} incrementing.column.name."),
    Unread("timestamp.columns.mapping", NONE, f"{_BY_TABLE} timestamp.column.name."),
    Unread("incrementing.relaxed.monotonic", ANY, "Rows that commit late are waited for (late.commits)."),
    Unread("numeric.precision.mapping", ("", "false"), "It would not be read: set numeric.mapping=precision_only."),
    Unread("transaction.isolation.mode", ANY, "Each table is read as it is committed, in one statement."),
    Unread("date.calendar.system", ANY, "Days are those of the proleptic Gregorian calendar, as the database has them; "
           "LEGACY ones before 15 October 1582 would be others."),
    Unread("max.buffer.size", ANY, "Queues are bounded by the worker."),
    Unread("poll.linger.ms", ANY, "A page goes on as soon as it is read."),
    Unread("table.monitoring.startup.polling.limit.ms", ANY, "Tables are looked for when the task begins."),
)  # fmt: skip
"""In the order in which they are looked through: what is more exact comes first."""
