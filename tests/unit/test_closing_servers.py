"""What tests/closing_servers.py mends of CPython."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from typing import Any


async def test_a_connection_that_comes_as_its_server_closes_is_closed_without_a_warning() -> None:
    """The server is closed in the one round of the loop between accept and transport."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    accepted = asyncio.Event()

    def closing_first(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
        if "_accept_connection2" in repr(coroutine):
            loop.call_soon(server.close)
            accepted.set()
        return asyncio.Task(coroutine, loop=loop, **named)

    with warnings.catch_warnings(record=True) as told, socket.socket() as client:
        warnings.simplefilter("always")
        client.setblocking(False)  # noqa: FBT003 - sockets' own
        loop.set_task_factory(closing_first)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        await accepted.wait()
        await asyncio.sleep(0)  # the transport is made, and is not to be had
        gc.collect()
        assert await loop.sock_recv(client, 1) == b""
    assert [str(warning.message) for warning in told] == []
