"""A connection to MySQL or MariaDB by asyncmy: each value as the server's own text, errors by what they need.

Used by the fetcher that polls tables and by the one that follows the log.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import asyncmy.errors
import pyarrow as pa
from asyncmy.cursors import SSCursor

from fetchers.sdk import Disconnected, Fatal, FetchError, Retriable
from fetchers.sdk.reach import AllowedAddresses
from fetchers.toolkit.databases import CONNECT_SECONDS_MAX, Login, connect_mysql, mysql_error

ANSWER_SECONDS_MAX = 300.0
LOCK_TIMED_OUT, NO_COLUMN, NO_TABLE, WAS_ALTERED = 1205, 1054, 1146, 1412
_CHANGED = {f"{NO_COLUMN}", f"{NO_TABLE}"}

_FIRST = "SET time_zone = '+00:00', net_write_timeout = 86400"
"""A day: the server ends a session to which it could write nothing for so long, by default for a minute. Rows wait for
their reader (``read``), and that for Kafka."""


class MySqlConnection:
    """One connection, whose session has the zone UTC. Raises ``Disconnected``, ``Retriable`` or ``Fatal``."""

    def __init__(self, host: str) -> None:
        """Nothing is opened yet. ``host``: as errors name it."""
        self.host = host
        self.driver: Any = None
        """asyncmy's connection, once it is open."""
        self.version = ""

    async def open(self, login: Login, addresses: AllowedAddresses) -> None:
        """Connect and log in; ``addresses``: what may be connected to."""
        async with told(self.host, CONNECT_SECONDS_MAX):
            self.driver = await connect_mysql(login, addresses=addresses, first_command=_FIRST)
        self.version = str(self.driver.get_server_info())

    @property
    def is_mariadb(self) -> bool:
        """Rather than MySQL."""
        return "mariadb" in self.version.lower()

    def close(self) -> None:
        """At once; the server notices that nobody reads any more."""
        if self.driver is not None:
            with suppress(asyncmy.errors.Error, OSError, RuntimeError):
                self.driver.close()

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        """All rows of a statement, by the columns' names in small letters."""
        async with told(self.host, ANSWER_SECONDS_MAX), self.driver.cursor() as cursor:
            await cursor.execute(sql)
            names = [entry[0].lower() for entry in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in await cursor.fetchall()]

    async def read(
        self, sql: str, *, rows_next: Callable[[pa.RecordBatch | None], int]
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Row by row from the socket, never the whole result; texts as they come, in columns ``c0``, ``c1``, ….

        What nobody asks for stays with the server: asyncmy 0.2.18 would take all that comes, at each turn of the loop.
        ``rows_next``: how many rows the next batch has, after the last one (None: there was none yet).
        """
        cursor, transport = self.driver.cursor(SSCursor), self.driver._transport  # noqa: SLF001 - asyncmy shows none
        async with told(self.host, ANSWER_SECONDS_MAX):
            await cursor.execute(sql)
        names = [f"c{at}" for at in range(len(cursor.description))]
        count = rows_next(None)
        while True:
            async with told(self.host, ANSWER_SECONDS_MAX):
                rows = await cursor.fetchmany(count)
            if not rows:
                break
            columns = [_texts(values) for values in zip(*rows, strict=True)]
            batch = pa.RecordBatch.from_arrays(columns, names=names)
            count = rows_next(batch)
            transport.pause_reading()
            try:
                yield batch
                await asyncio.sleep(0)
            finally:
                transport.resume_reading()
        async with told(self.host, ANSWER_SECONDS_MAX):
            await cursor.close()


def _texts(values: Sequence[Any]) -> Any:
    """A column of what asyncmy gives: texts, or bytes of binary columns."""
    if any(isinstance(value, bytes) for value in values[:1]) or isinstance(
        next((value for value in values if value is not None), None), bytes
    ):
        return pa.array(values, pa.binary())
    return pa.array(values, pa.string())


_NUMBERED_COLLATIONS = re.compile(r"(?<![.\d])(5|10\.\d)\.[.\d]*-MariaDB", re.IGNORECASE)
"""Versions of MariaDB in which each collation has a number; a server may tell 5.5.5 before its own."""


async def charsets_of(connection: MySqlConnection) -> dict[int, str]:
    """Names of the server's character sets by the numbers of their collations."""
    # MariaDB's later collations have no number of their own there, and its earlier versions none here (10.10.1).
    is_later = connection.is_mariadb and not _NUMBERED_COLLATIONS.search(connection.version)
    source = "collation_character_set_applicability" if is_later else "collations"
    rows = await connection.rows(
        f"SELECT id, character_set_name AS name FROM information_schema.{source}"  # noqa: S608 - one of two
    )
    return {int(row["id"]): str(row["name"]) for row in rows if row["id"] is not None}


class told:  # noqa: N801 - read as a word of a sentence
    """Raises what may pass as ``Retriable``, what a person must mend as ``Fatal``, within a time limit."""

    def __init__(self, host: str, seconds_max: float) -> None:
        self._host = host
        self._limit = asyncio.timeout(seconds_max)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise Retriable(f"{self._host}: no answer in time") from late
        if isinstance(error, asyncmy.errors.Error):
            raise _failure(error, self._host) from error
        if isinstance(error, UnicodeDecodeError):
            raise Fatal(f"{self._host}: the server has sent a text that is no UTF-8 ({error})") from error
        if isinstance(error, OSError | EOFError | asyncio.IncompleteReadError):
            raise Disconnected(f"{self._host}: the connection broke ({type(error).__name__})") from error


def number_of(error: BaseException) -> int:
    """The server's number of what a connection has raised; 0 where it has none."""
    args = () if error.__cause__ is None else error.__cause__.args
    return args[0] if args and isinstance(args[0], int) else 0


def _failure(error: BaseException, host: str) -> FetchError:
    found = mysql_error(error, host)
    if found.state in _CHANGED:
        return Retriable(f"{host}: {found.text} ({found.state}); what was read has changed meanwhile")
    return found.failure
