"""Readiness is read from the broker's own answer, and nothing that answers otherwise passes for a broker."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.embedded.probe import broker_ports, is_broker_ready

_hosts = st.text(st.characters(codec="ascii"), max_size=40)
_brokers = st.lists(st.tuples(st.integers(0, 9), _hosts, st.integers(0, 65535), st.none() | _hosts), max_size=5)


def _string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def _answer(brokers: list[tuple[int, str, int, str | None]]) -> bytes:
    body = struct.pack(">iii", 1, 0, len(brokers))
    for node, host, port, rack in brokers:
        body += struct.pack(">i", node) + _string(host) + struct.pack(">i", port) + _string(rack)
    return body + _string("cluster") + struct.pack(">ii", 1, 0)


@given(_brokers)
def test_ports_of_all_brokers_are_found(brokers: list[tuple[int, str, int, str | None]]) -> None:
    """Whatever hosts and racks are called, every broker's port is read."""
    assert broker_ports(_answer(brokers)) == [port for _, _, port, _ in brokers]


async def _probed(answer: bytes) -> tuple[bool, int]:
    """What the probe says of a server that gives this answer, ends the connection, and its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Nothing comes where the probe's limit passes before it has asked.
        if await reader.read(4):
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    async with server:
        return await is_broker_ready(port), port


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", 5) + b"\0\0\0\1\0",
        struct.pack(">i", -1),
        struct.pack(">i", 12) + _answer([])[:12],
    ],
    ids=["nothing", "http", "too short", "negative length", "no live broker"],
)
async def test_other_answers_are_not_a_ready_broker(answer: bytes) -> None:
    """A server that closes, speaks something else, or knows of no live broker is not ready."""
    is_ready, _ = await _probed(answer)
    assert not is_ready


async def test_nobody_listening_is_not_ready() -> None:
    """A port that nobody listens on is not ready, rather than an error."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    assert not await is_broker_ready(port)
