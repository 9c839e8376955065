"""Prepared transactions when they are committed, and which are prepared where the log is begun.

What is no more at hand is read from the log a second time, over a connection of its own. A reader whose number of a
server is 0 ends no other reader, and is not kept waiting at the log's end: so the servers treat ``mysqlbinlog``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace

from fetchers.mysql_cdc.events import XA_PREPARE, XID, Event
from fetchers.mysql_cdc.log import Log
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.prepared import Committed, read_xa, xid_text
from fetchers.mysql_cdc.segment import Segment
from fetchers.mysql_cdc.segments import Segments
from fetchers.mysql_cdc.snapshot import log_end
from fetchers.mysql_cdc.table_map import NotDescribed
from fetchers.mysql_cdc.transactions import Transactions
from fetchers.sdk import Clock, Fatal, FetchError
from fetchers.toolkit.mysql import MySqlConnection, number_of

NOBODY = 0
"""The number of a server that such a reader has."""
SILENCE_SECONDS = 30.0
PAUSE_SECONDS = 1.0
"""A transaction is in the log a moment before it is listed as prepared."""
WAIT_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.1
_NOT_ALLOWED = (1227, 1401)
"""What MySQL answers to ``XA RECOVER`` without the right."""
Opened = Callable[[], AbstractAsyncContextManager[MySqlConnection]]


async def _log(opened: Opened, place: Place) -> AsyncGenerator[list[Event | Transactions], None]:
    async with opened() as connection:
        log = Log(connection, server_id=NOBODY, silence_seconds=SILENCE_SECONDS)
        await log.begin(place)
        while True:
            yield await log.events()


async def _held(committed: Committed) -> AsyncGenerator[list[Event | Transactions], None]:
    yield list(committed.held or ())


async def segments_of(committed: Committed, around: Segments, opened: Opened) -> AsyncGenerator[Segment, None]:
    """What there is to be delivered now that a transaction is committed; ``around``: has read the commit.

    All of the transaction, of which the last segment ends one; none where it has no rows of tables that are wanted.
    Where it is among others, it goes to them, and what comes is what that has closed.

    Raises ``NotDescribed`` where the log has another transaction there, ``Fatal`` where it has none any more.
    """
    async with aclosing(_parts(committed, around.replaying(committed), opened)) as parts:
        async for part in parts:
            if committed.is_among:
                around.join(part)
            else:
                yield part
    if committed.is_among and around.is_between:
        yield around.close()


async def _parts(committed: Committed, reader: Segments, opened: Opened) -> AsyncGenerator[Segment, None]:
    source = _log(opened, committed.at) if committed.held is None else _held(committed)
    async with aclosing(source) as found:
        try:
            has_rows = False
            async for event in _events(reader, found):
                closed = reader.take(event)
                if isinstance(event, Event) and event.kind == XA_PREPARE and read_xa(event)[0] == committed.xid:
                    last = closed or reader.close()
                    if last.runs or has_rows:
                        yield replace(last, committed=committed)
                    return
                if isinstance(event, Transactions) or event.kind in (XID, XA_PREPARE):
                    break
                if closed is not None:
                    has_rows = True
                    yield replace(closed, committed=committed)
        except Fatal as error:
            raise Fatal(
                f"the XA transaction {committed.xid} was committed, and its rows are not in the log any more: {error}"
            ) from error
    raise NotDescribed(
        f"the XA transaction {committed.xid} was committed, and the log has another one at {committed.at.file}:"
        f"{committed.at.position}, where it was prepared"
    )


async def _events(
    reader: Segments, found: AsyncIterator[list[Event | Transactions]]
) -> AsyncGenerator[Event | Transactions, None]:
    async for events in found:
        for event in reader.each(events):
            yield event


async def listed(connection: MySqlConnection) -> frozenset[str] | None:
    """The xids that are prepared; None where the user may not know (MySQL without ``XA_RECOVER_ADMIN``)."""
    try:
        rows = await connection.rows("XA RECOVER" if connection.is_mariadb else "XA RECOVER CONVERT XID")
    except FetchError as error:
        if number_of(error) in _NOT_ALLOWED:
            return None
        raise
    found = set()
    for row in rows:
        data, at = row["data"], int(row["gtrid_length"])
        if not connection.is_mariadb:
            octets = bytes.fromhex(str(data)[2:])
        else:
            octets = data if isinstance(data, bytes) else str(data).encode()
        found.add(xid_text(octets[:at], octets[at:], int(row["formatid"])))
    return frozenset(found)


async def begun(
    connection: MySqlConnection, opened: Opened, clock: Clock, begin: Callable[[], Awaitable[Place]]
) -> Place:
    """Begin (a snapshot, or the log alone), and know which XA transactions are prepared there.

    Their rows lie before the place, and a snapshot does not show them. Where the older ones lie nobody says; so the
    beginning waits until all have ended that are listed first, and what was prepared since then is read from the log.
    Raises ``Fatal`` where one of them does not end.
    """
    since = await log_end(connection)
    (used,) = await connection.rows("SHOW GLOBAL STATUS LIKE 'Com_xa_start'") or [{"value": 0}]
    if int(used["value"]):
        await clock.sleep(PAUSE_SECONDS)
    left = await listed(connection)
    if left is None:
        return replace(await begin(), is_unlisted=True)
    for _ in range(int(WAIT_SECONDS_MAX / LOOK_SECONDS)):
        if not left:
            break
        await clock.sleep(LOOK_SECONDS)
        left &= await listed(connection) or frozenset()
    if left:
        raise Fatal(
            f"{connection.host}: XA transactions are prepared whose rows would be missing, because they lie in the log "
            f"before the place at which it is begun, and are not committed yet. Run for each: XA COMMIT or XA ROLLBACK "
            f"{'; '.join(sorted(left))}"[:2000]
        )
    place = await begin()
    scanned = Segments(since, lambda _: False, is_mariadb=connection.is_mariadb, bytes_max=1 << 20)
    if since.order < place.order:
        async with aclosing(_log(opened, since)) as found:
            async for event in _events(scanned, found):
                scanned.take(event)
                if scanned.reached >= place.order and scanned.is_between:
                    break
    return replace(place, prepared=scanned.place.prepared)
