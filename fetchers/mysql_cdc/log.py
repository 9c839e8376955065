"""The log as a server sends it to whoever behaves like a replica: login by asyncmy, then events without end.

asyncmy 0.2.18 has a reader of logs of its own, which decodes row by row and knows no MariaDB GTIDs; only its login and
its buffer of received bytes are used here (``_execute_command``, ``_proto``, ``_transport``).
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from fetchers.mysql_cdc.events import Event, MalformedError, ServerRefused
from fetchers.mysql_cdc.failover import dump_by_gtids, refused_gtids
from fetchers.mysql_cdc.places import GtidSet, Place
from fetchers.mysql_cdc.transactions import TransactionReader, Transactions
from fetchers.sdk import Disconnected, Fatal, Retriable
from fetchers.toolkit.mysql import MySqlConnection, told
from fetchers.toolkit.mysql_texts import text_literal

COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID = 0x12, 0x1E
HEARTBEAT_SECONDS_MAX = 1.0
_NANOSECONDS = 1_000_000_000
_LOG_REFUSED = 1236
_RIGHTS = {1045, 1142, 1227}


class Log:
    """Events from one place on."""

    def __init__(self, connection: MySqlConnection, *, server_id: int, silence_seconds: float) -> None:
        """``connection``: open, and for nothing else from now on."""
        self._connection = connection
        self._server_id = server_id
        self._silence_seconds = silence_seconds
        self._reader = TransactionReader()
        self._gtids: GtidSet | None = None
        """Behind which it was asked for; None: by file and position."""
        self._heard = 0.0
        """When the server said something, by the clock of the event loop."""

    async def begin(self, place: Place) -> None:
        """Ask for all events from a place on."""
        beat = min(HEARTBEAT_SECONDS_MAX, self._silence_seconds / 3)
        await self._connection.rows("SET @master_binlog_checksum = @@global.binlog_checksum")
        await self._connection.rows(f"SET @master_heartbeat_period = {int(beat * _NANOSECONDS)}")
        if self._connection.is_mariadb:
            await self._connection.rows("SET @mariadb_slave_capability = 4")  # else it leaves out the GTIDs
        command, begin = COM_BINLOG_DUMP, (place.position, place.file)
        asks_by_gtids = place.asks_by_gtids(is_mariadb=self._connection.is_mariadb)
        self._gtids = place.gtids if asks_by_gtids else None
        if self._gtids is not None and self._connection.is_mariadb:
            begin = (4, "")
            await self._connection.rows(f"SET @slave_connect_state = {text_literal(self._gtids.text)}")
            await self._connection.rows("SET @slave_gtid_strict_mode = 1")  # else a hole in its log is stepped over
        body = struct.pack("<IHI", begin[0], 0, self._server_id) + begin[1].encode()
        if self._gtids is not None and not self._connection.is_mariadb:
            command, body = COM_BINLOG_DUMP_GTID, dump_by_gtids(self._gtids, self._server_id)
        driver = self._connection.driver
        async with told(self._connection.host, self._silence_seconds):
            await driver._execute_command(command, body)  # noqa: SLF001 - see the module
        driver._transport.pause_reading()  # noqa: SLF001
        self._heard = asyncio.get_running_loop().time()

    async def events(self, *, wait_seconds_max: float | None = None) -> list[Event | Transactions]:
        """The next events; waits no longer than the limit of silence for a byte of them.

        ``wait_seconds_max``: there are none after so long a time, unless the server has been silent for too long.
        """
        silent = asyncio.get_running_loop().time() - self._heard
        seconds = max(0.0, self._silence_seconds - silent)
        may_be_none = wait_seconds_max is not None and wait_seconds_max < seconds
        proto: Any = self._connection.driver._proto  # noqa: SLF001
        transport: Any = self._connection.driver._transport  # noqa: SLF001
        host = self._connection.host
        if proto.length == proto.pos and not self._reader.is_ended:
            transport.resume_reading()
            try:
                async with asyncio.timeout(wait_seconds_max if may_be_none else seconds):
                    await proto.wait_for_data(1)
            except TimeoutError as late:
                if may_be_none:
                    return []
                raise Disconnected(f"{host}: the log fell silent") from late
            finally:
                transport.pause_reading()  # what nobody asks for stays with the server
        if proto.length == proto.pos and not self._reader.is_ended:
            raise Disconnected(f"{host}: the server has ended the connection of the log")
        self._heard = asyncio.get_running_loop().time()
        data = bytes(memoryview(proto.buffer)[proto.pos : proto.length])
        proto.pos = proto.length
        try:
            return self._reader.feed(data)
        except ServerRefused as refusal:
            raise _failure(refusal, host, self._gtids) from refusal
        except EOFError as end:
            raise Disconnected(f"{host}: {end}") from end
        except MalformedError as error:
            raise Retriable(f"{host}: {error}") from error

    async def has_more(self) -> bool:
        """Whether bytes are here that nobody has read."""
        proto: Any = self._connection.driver._proto  # noqa: SLF001
        transport: Any = self._connection.driver._transport  # noqa: SLF001
        transport.resume_reading()
        for _ in range(2):  # one turn of the loop to look at the socket, and one to take what is there
            await asyncio.sleep(0)
        transport.pause_reading()
        return bool(proto.length > proto.pos)


def _failure(refusal: ServerRefused, host: str, gtids: GtidSet | None) -> Exception:
    if refusal.code in _RIGHTS:
        return Fatal(f"{host}: {refusal} ({refusal.code}). Grant REPLICATION SLAVE")
    if refusal.code != _LOG_REFUSED:
        return Retriable(f"{host}: {refusal} ({refusal.code})")
    if "same server" in str(refusal):
        return Fatal(f"{host}: another reader has the same database.server.id: give each its own ({refusal})")
    if gtids is not None:
        return refused_gtids(host, gtids, str(refusal))
    return Fatal(
        f"{host}: the log does not have the stored place any more ({refusal}). What happened since is lost to the log: "
        "forget the offset (DELETE /connectors/NAME/offsets) so that snapshot.mode=initial reads all rows anew, or "
        "restore the log files on the server. Keep logs longer: binlog_expire_logs_seconds"
    )
