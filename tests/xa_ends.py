"""What sessions of MariaDB and MySQL leave behind: prepared transactions, which other sessions end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncmy.errors

UNKNOWN_XID = 1397
LEFT_SECONDS_MAX = 120
LOOK_SECONDS = 0.05
Rows = Callable[..., Awaitable[list[tuple[Any, ...]]]]


async def executed(cursor: Any, statement: str) -> None:
    """Execute it; a prepared transaction is another session's to end only once the server has let go of its own.

    That is a moment after the client has closed it; up to then the server says ``XAER_NOTA: Unknown XID``.
    """
    until = time.monotonic() + LEFT_SECONDS_MAX
    while True:
        try:
            await cursor.execute(statement)
            return
        except asyncmy.errors.Error as error:
            if error.args[0] != UNKNOWN_XID or time.monotonic() > until:
                raise
        await asyncio.sleep(LOOK_SECONDS)


async def drop(rows: Rows, name: str) -> None:
    """Drop a database, also behind a test that failed: what it left holds tables, by default for a year.

    Those of its sessions that are in the database are ended, and all prepared transactions of the server: it belongs to
    one process, which runs one test at a time. ``rows`` executes statements, in no database.
    """
    until = time.monotonic() + LEFT_SECONDS_MAX
    while sessions := await rows(f"select id from information_schema.processlist where db = '{name}'"):  # noqa: S608
        assert time.monotonic() < until, f"sessions do not end: {sessions}"
        for (session,) in sessions:
            with suppress(asyncmy.errors.Error):  # it has ended by itself
                await rows(f"kill {session}")
        await asyncio.sleep(LOOK_SECONDS)
    ((version,),) = await rows("select version()")
    form = "format = 'sql'" if "mariadb" in str(version).lower() else "convert xid"
    for number, first, _, data in await rows(f"xa recover {form}"):
        await rows(f"xa rollback {_xid(int(number), int(first), str(data))}")
    await rows(f"set lock_wait_timeout = {LEFT_SECONDS_MAX}", f"drop database {name}")


def _xid(number: int, first: int, data: str) -> str:
    """As statements have it, of what ``XA RECOVER`` tells: hexadecimal digits, or that already."""
    at = 2 + 2 * first
    return f"x'{data[2:at]}', x'{data[at:]}', {number}" if data.startswith("0x") else data
