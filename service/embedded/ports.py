"""Ports on the loopback address: free ones to choose, taken ones to report before a JVM has been started."""

from __future__ import annotations

import random
import socket

from service.embedded.errors import EmbeddedError, PortBusy

LOOPBACK = "127.0.0.1"
CHOICE = range(20_000, 32_000)
"""Below what systems give to outgoing connections (Linux 32768 up, others 49152 up): the seconds that a JVM needs
to start, and a restart later on, are long enough for such a connection to take a port from there."""

_TRIES_MAX = 1_000
_given: set[int] = set()
"""Ports that this process has chosen: who was given one may not listen on it yet, or be about to start anew."""


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on now, and that were not given lately.

    Somebody may be quicker: the caller starts again with others.
    """
    ports: list[int] = []
    if len(_given) + count > len(CHOICE) // 2:
        _given.clear()
    # Not the shared generator: two processes with the same seed would choose the same ports at the same moment.
    for port in random.SystemRandom().sample(CHOICE, _TRIES_MAX):
        if len(ports) == count:
            return ports
        if port not in _given and _reason_against(port) is None:
            ports.append(port)
            _given.add(port)
    raise EmbeddedError(f"no {count} free ports found between {CHOICE.start} and {CHOICE.stop}")


def require_free(port: int, *, key: str = "") -> None:
    """Raise PortBusy where somebody listens on the port that ``key`` names."""
    reason = _reason_against(port)
    if reason:
        raise PortBusy(
            f"port {port} of {LOOPBACK} cannot be used ({reason}): give {key or 'it'} another, 0 is a free one"
        )


def _reason_against(port: int) -> str | None:
    with socket.socket() as probe:
        # As Java servers do: connections of an earlier server that are still dying down are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return error.strerror
    return None
