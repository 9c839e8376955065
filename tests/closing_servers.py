"""A connection that comes while its server closes: CPython drops it without a word, and so do tests.

Between accepting a socket and making its transport asyncio waits one round of its loop. A server that is closed in that
round fails the transport's construction, and the half-made object closes its socket when it is collected, with a
ResourceWarning that some test has to answer for (https://github.com/python/cpython/issues/109564). A client that
dials again and again, as Kafka's does while its broker is gone, meets this now and then.
"""

from __future__ import annotations

import socket
from asyncio import selector_events
from typing import Any

_Transport: Any = selector_events._SelectorTransport  # type: ignore[attr-defined]
_construct = _Transport.__init__


def _construct_or_close(transport: Any, loop: Any, sock: socket.socket, *args: Any, **named: Any) -> None:
    try:
        _construct(transport, loop, sock, *args, **named)
    except AssertionError:  # of Server._attach: closed meanwhile
        transport._sock = None
        sock.close()
        raise


_Transport.__init__ = _construct_or_close
