"""Rows that nobody has asked for stay with the server: the real driver, and a server that sends as fast as it can."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from fetchers.sdk.reach import AllowedAddresses
from fetchers.toolkit.databases import Login, read_url
from fetchers.toolkit.mysql import MySqlConnection

COM_QUERY = 3
UTF8MB4 = 45
_CAPABILITIES = 0x8_0000 | 0x8000 | 0x200 | 0x8
"""Names of plugins, the handshake of 4.1 and its salt, a database at login; no other end of rows than EOF."""
GREETING = b"".join(
    (
        *(b"\x0a8.0.0\0", b"\1\0\0\0", b"saltsalt\0", (_CAPABILITIES & 0xFFFF).to_bytes(2, "little")),
        *(bytes([UTF8MB4]), b"\2\0", (_CAPABILITIES >> 16).to_bytes(2, "little"), b"\x15", bytes(10)),
        *(b"saltsaltsalt\0", b"mysql_native_password\0"),
    )
)
OK = b"\0\0\0\2\0\0\0"
END = b"\xfe\0\0\2\0"
COLUMN = b"\3def\0\0\0\1v\0\x0c" + UTF8MB4.to_bytes(2, "little") + (4000).to_bytes(4, "little") + b"\xfd\0\0\0\0\0"
VALUE = b"x" * 1_000
ROWS = 64_000
"""Of a thousand bytes."""
TURNS = 20
HELD_BYTES_MAX = 4 * 1024 * 1024


def _packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number % 256]) + body


@asynccontextmanager
async def _server() -> AsyncIterator[tuple[int, list[str]]]:
    """Its port, and what it was asked; ``rows`` are many, and everything else is done."""
    asked: list[str] = []
    serving: list[asyncio.Task[object] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def received() -> bytes:
            head = await reader.readexactly(4)
            return await reader.readexactly(int.from_bytes(head[:3], "little"))

        serving.append(asyncio.current_task())
        try:
            writer.write(_packet(0, GREETING))
            await received()
            writer.write(_packet(2, OK))
            while (body := await received())[0] == COM_QUERY:
                asked.append(body[1:].decode())
                if asked[-1] != "rows":
                    writer.write(_packet(1, OK))
                    continue
                writer.write(b"".join((_packet(1, b"\1"), _packet(2, COLUMN), _packet(3, END))))
                row = b"\xfc" + len(VALUE).to_bytes(2, "little") + VALUE
                for number in range(ROWS):
                    writer.write(_packet(4 + number, row))
                    await writer.drain()
                writer.write(_packet(4 + ROWS, END))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked
        for task in filter(None, serving):
            await task  # its client has gone


async def test_rows_that_are_not_asked_for_stay_with_the_server() -> None:
    """The driver takes all that the socket has at each turn of the loop, whether anybody reads or not."""
    connection = MySqlConnection("h")
    async with _server() as (port, asked):
        try:
            await connection.open(Login(read_url(f"jdbc:mysql://127.0.0.1:{port}/d?user=u")), AllowedAddresses())
            rows, held = 0, 0
            async with aclosing(connection.read("rows", rows_next=lambda _: 1_000)) as batches:
                async for batch in batches:
                    rows += len(batch)
                    for _ in range(TURNS):
                        await asyncio.sleep(0)
                    held = max(held, len(connection.driver._proto.buffer))
            assert rows == ROWS
            assert held <= HELD_BYTES_MAX
            async with aclosing(connection.read("rows", rows_next=lambda _: 1_000)) as batches:
                await anext(batches)  # and no more of them
            assert connection.driver._transport.is_reading()  # else the rest could not be done away with
        finally:
            connection.close()
    (first,) = [text for text in asked if "time_zone" in text]
    assert "net_write_timeout = 86400" in first, "a reader that waits, such as for Kafka, is let go after a minute"
