"""Addresses that a worker listens on, as ``listeners`` has them: ``http://HOST:PORT``, no host for every interface."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

PORT_BY_DEFAULT = 8083


@dataclass(frozen=True, slots=True)
class Listener:
    """One address. Port 0 picks a free one."""

    scheme: str
    host: str
    """Empty for every interface."""
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_everywhere(self) -> bool:
        """Whether it listens on every interface."""
        return self.host in {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound

    def url(self, port: int) -> str:
        """Where it can be reached from this machine, on the port it was given."""
        host = self.host
        if self.is_everywhere:
            host = "::1" if host == "::" else "127.0.0.1"
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """A list separated by commas; ValueError names what is no address."""
    return tuple(_listener(item.strip()) for item in text.split(",") if item.strip())


def listeners_text(listeners: str, host: str | None, port: int | None) -> str:
    """``listeners``, or what its old form says: ``rest.host.name`` and ``rest.port``, where one of them is given."""
    if host is None and port is None:
        return listeners
    return f"http://{host or '127.0.0.1'}:{port or PORT_BY_DEFAULT}"


def _listener(text: str) -> Listener:
    try:
        address = urlsplit(text)
        port = PORT_BY_DEFAULT if address.port is None else address.port
    except ValueError:
        address, port = urlsplit(""), 0
    if address.scheme not in {"http", "https"} or address.path not in {"", "/"} or address.query or "@" in text:
        raise ValueError(f"Expected http://HOST:PORT or https://HOST:PORT, found '{text}'")
    return Listener(address.scheme, address.hostname or "", port)
