"""Asks a broker, in Kafka's own protocol, whether it serves clients: no client library is needed for that.

A listening socket is not enough: the broker must have registered with its controller and be unfenced, which
shows in its answer to a metadata request. Metadata v4, request header v1, response header v0:
https://kafka.apache.org/41/design/protocol/#The_Messages_Metadata
"""

from __future__ import annotations

import asyncio
import struct

from service.embedded.ports import LOOPBACK

_ANSWER_SECONDS_MAX = 10.0
_ANSWER_BYTES_MAX = 1 << 20
_METADATA_KEY = 3
_METADATA_VERSION = 4
_CLIENT = b"headrace-probe"
_REQUEST = (
    struct.pack(f">hhih{len(_CLIENT)}s", _METADATA_KEY, _METADATA_VERSION, 1, len(_CLIENT), _CLIENT)
    # No topic at all, and none to be created.
    + struct.pack(">i?", 0, False)  # noqa: FBT003 -- a value on the wire
)


async def is_broker_ready(port: int) -> bool:
    """Whether the broker on this port of the loopback address names itself among the live brokers."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            return port in await _live_broker_ports(port)
    except (OSError, TimeoutError, EOFError, struct.error):
        return False


async def _live_broker_ports(port: int) -> list[int]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(struct.pack(">i", len(_REQUEST)) + _REQUEST)
        await writer.drain()
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        if not 0 <= length <= _ANSWER_BYTES_MAX:
            return []
        return broker_ports(await reader.readexactly(length))
    finally:
        writer.close()


def broker_ports(answer: bytes) -> list[int]:
    """The ports of the brokers in a metadata answer v4: correlation id, throttle time, then the brokers."""
    _, _, count = struct.unpack_from(">iii", answer)
    place = 12
    ports = []
    for _ in range(count):
        place += 4  # node id
        (host_bytes,) = struct.unpack_from(">h", answer, place)
        place += 2 + host_bytes
        (port, rack_bytes) = struct.unpack_from(">ih", answer, place)
        place += 6 + max(rack_bytes, 0)
        ports.append(port)
    return ports
