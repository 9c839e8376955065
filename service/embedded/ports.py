"""Ports on the loopback address: free ones to choose, taken ones to report before a JVM has been started."""

from __future__ import annotations

import socket

from service.embedded.errors import PortBusy

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on now. Somebody may be quicker: the caller starts again with others."""
    with_sockets = [socket.socket() for _ in range(count)]
    try:
        for one in with_sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in with_sockets]
    finally:
        for one in with_sockets:
            one.close()


def require_free(port: int) -> None:
    """Raise PortBusy where somebody listens on the port."""
    with socket.socket() as probe:
        # As Java servers do: connections of an earlier server that are still dying down are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise PortBusy(f"port {port} of {LOOPBACK} cannot be used ({error.strerror}): give another one") from error
