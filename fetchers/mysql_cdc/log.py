"""The log as a server sends it to whoever behaves like a replica: login by asyncmy, then events without end.

asyncmy 0.2.18 has a reader of logs of its own, which decodes row by row and knows no MariaDB GTIDs; only its login and
its buffer of received bytes are used here (``_execute_command``, ``_proto``, ``_transport``).
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from fetchers.mysql_cdc.events import Event, EventReader, MalformedError, ServerRefused
from fetchers.mysql_cdc.places import Place
from fetchers.sdk import Disconnected, Fatal, Retriable
from fetchers.toolkit.mysql import MySqlConnection, told

COM_BINLOG_DUMP = 0x12
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
        self._reader = EventReader()

    async def begin(self, place: Place) -> None:
        """Ask for all events from a place on."""
        beat = min(HEARTBEAT_SECONDS_MAX, self._silence_seconds / 3)
        await self._connection.rows("SET @master_binlog_checksum = @@global.binlog_checksum")
        await self._connection.rows(f"SET @master_heartbeat_period = {int(beat * _NANOSECONDS)}")
        if self._connection.is_mariadb:
            await self._connection.rows("SET @mariadb_slave_capability = 4")  # else it leaves out the GTIDs
        body = struct.pack("<IHI", place.position, 0, self._server_id) + place.file.encode()
        driver = self._connection.driver
        async with told(self._connection.host, self._silence_seconds):
            await driver._execute_command(COM_BINLOG_DUMP, body)  # noqa: SLF001 - see the module
        driver._transport.pause_reading()  # noqa: SLF001

    async def events(self) -> list[Event]:
        """The next events, at least one byte of them; waits for it no longer than the limit of silence."""
        proto: Any = self._connection.driver._proto  # noqa: SLF001
        transport: Any = self._connection.driver._transport  # noqa: SLF001
        host = self._connection.host
        if proto.length == proto.pos:
            transport.resume_reading()
            try:
                async with asyncio.timeout(self._silence_seconds):
                    await proto.wait_for_data(1)
            except TimeoutError as late:
                raise Disconnected(f"{host}: the log fell silent") from late
            finally:
                transport.pause_reading()  # what nobody asks for stays with the server
        if proto.length == proto.pos:
            raise Disconnected(f"{host}: the server has ended the connection of the log")
        data = bytes(memoryview(proto.buffer)[proto.pos : proto.length])
        proto.pos = proto.length
        try:
            return self._reader.feed(data)
        except ServerRefused as refusal:
            raise _failure(refusal, host) from refusal
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


def _failure(refusal: ServerRefused, host: str) -> Exception:
    if refusal.code in _RIGHTS:
        return Fatal(f"{host}: {refusal} ({refusal.code}). Grant REPLICATION SLAVE")
    if refusal.code != _LOG_REFUSED:
        return Retriable(f"{host}: {refusal} ({refusal.code})")
    if "same server" in str(refusal):
        return Fatal(f"{host}: another reader has the same database.server.id: give each its own ({refusal})")
    return Fatal(
        f"{host}: the log does not have the stored place any more ({refusal}). What happened since is lost to the log: "
        "forget the offset (DELETE /connectors/NAME/offsets) so that snapshot.mode=initial reads all rows anew, or "
        "restore the log files on the server. Keep logs longer: binlog_expire_logs_seconds"
    )
