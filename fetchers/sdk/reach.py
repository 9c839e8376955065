"""Which files and addresses a connector may use: bounds that the worker sets, because configs come from others.

A path is followed through its links before it is compared, and compared once more with what was opened: whoever may
change a link between the two gains nothing. An address is judged when a connection is made, by the number that the name
stands for at that moment, so that a name which changes its address (DNS rebinding) gains nothing either.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PATHS_KEY, ADDRESSES_KEY = "connector.allowed.paths", "connector.allowed.addresses"
_PATTERN_SIGN = re.compile(r"[*?\[]")
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class PathRefusedError(Exception):
    """A path that the worker does not allow, or that is no regular file; the text shows nothing of a file."""


@dataclass(frozen=True, slots=True)
class AllowedPaths:
    """Files and folders that connectors' configs may name."""

    roots: tuple[str, ...] | None = None
    """Folders with all that is in them, and files; None: every path that the operating system allows."""

    def refusal(self, path: str | os.PathLike[str]) -> str | None:
        """Why a path may not be used, as text for a finding; None where it may. Looks at links, opens nothing.

        What is outside is refused alike whether it is there or not.
        """
        if self.roots is None:
            return None
        text = os.fspath(path)
        if not self.roots:
            return f"'{text}' is not allowed: the worker names no path in {PATHS_KEY}"
        try:
            real = os.path.realpath(text)
        except (OSError, ValueError):
            real = ""
        if real and any(_is_within(real, root) for root in self.roots):
            return None
        return f"'{text}' is not within {PATHS_KEY} of the worker"

    def pattern_refusal(self, pattern: str) -> str | None:
        """The same for a path or a pattern of paths (``*``, ``?``, ``[…]``): the folder before its first such sign."""
        match = _PATTERN_SIGN.search(pattern)
        if match is None:
            return self.refusal(pattern)
        if self.roots is not None and os.pardir in Path(pattern[match.start() :]).parts:
            return f"'{pattern}' is not allowed: behind a sign of a pattern, '..' may lead anywhere"
        return self.refusal(Path(f"{pattern[: match.start()]}x").parent)

    def check(self, path: str | os.PathLike[str]) -> None:
        """Before a path is opened. Raises PathRefusedError."""
        refusal = self.refusal(path)
        if refusal is not None:
            raise PathRefusedError(refusal)

    def check_open(self, descriptor: int, path: str | os.PathLike[str], *, is_regular: bool = False) -> None:
        """After ``path`` was opened: that what is open is what stands at an allowed place.

        ``is_regular``: and that it is a regular file, no pipe and no device, also where every path is allowed.
        Raises PathRefusedError, and OSError (EAGAIN) where something else stands there by now, as after a rotation.
        """
        if is_regular and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            message = f"'{os.fspath(path)}' is not a regular file"
            raise PathRefusedError(message)
        if self.roots is None:
            return
        self.check(path)
        try:
            is_same = os.path.samestat(os.fstat(descriptor), os.lstat(os.path.realpath(path)))
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise BlockingIOError(errno.EAGAIN, "it has changed while it was opened", os.fspath(path))

    def read(self, path: str | os.PathLike[str], *, bytes_max: int) -> bytes:
        """A whole regular file. Raises PathRefusedError, and OSError where it cannot be read."""
        self.check(path)
        # Without O_NONBLOCK a named pipe would wait here for somebody who writes.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as opened:
            self.check_open(descriptor, path, is_regular=True)
            content = opened.read(bytes_max + 1)
        if len(content) > bytes_max:
            message = f"'{os.fspath(path)}' is larger than {bytes_max} bytes"
            raise PathRefusedError(message)
        return content


def _is_within(real: str, root: str) -> bool:
    place = os.path.realpath(root)
    return real == place or real.startswith(place.rstrip(os.sep) + os.sep)


class AddressRefusedError(Exception):
    """A host whose address is one of the worker's own network, and is not allowed."""


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """Addresses that connections of connectors may be made to. Public ones always may."""

    is_internal_free: bool = True
    """Whether addresses of private networks, of links and of this machine may be used without being named."""
    networks: tuple[_Network, ...] = ()
    """Internal addresses that may be used all the same."""

    @property
    def for_strangers(self) -> AllowedAddresses:
        """The same for addresses that a server has named and no config: internal ones only where they are listed."""
        return AllowedAddresses(is_internal_free=False, networks=self.networks)

    def permits(self, address: str) -> bool:
        """Whether a connection to this address (IPv4 or IPv6, no name) may be made."""
        return self.is_internal_free or not is_internal(address) or self._is_named(address)

    def check(self, host: str, address: str) -> None:
        """Raises AddressRefusedError, with what would allow it."""
        if not self.permits(address):
            message = f"{host} is an internal address, and not within {ADDRESSES_KEY} of the worker"
            raise AddressRefusedError(message)

    def looked_up(self, host: str, port: int | None) -> list[str]:
        """The addresses that a name stands for now and that are allowed, to be dialled as they are.

        A client that is given the name would look it up again, and might be told others. Blocks. Raises OSError where
        nobody knows the name, ValueError for what is none, AddressRefusedError where it has no allowed address.
        """
        numbers = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
        found = list(dict.fromkeys(str(number[-1][0]) for number in numbers))
        allowed = [address for address in found if self.permits(address)]
        if found and not allowed:
            self.check(host, found[0])
        return allowed

    def _is_named(self, address: str) -> bool:
        number = _number(address)
        return number is not None and any(
            number.version == network.version and number in network for network in self.networks
        )


def is_internal(address: str) -> bool:
    """Whether an address is of this machine, its links or a private network: all that is not public (RFC 6890).

    So are the old short forms (``127.1``, ``2130706433``), which only systems read, each in its own way.
    """
    number = _number(address)
    return number is None or not number.is_global or number.is_multicast


def _number(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IPv6 address that stands for one of IPv4 is judged as that one: connections to it reach the same machine."""
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(number, ipaddress.IPv6Address):
        return number.ipv4_mapped or number.sixtofour or _nat64(number) or number
    return number


def _nat64(number: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """RFC 6052: the last four bytes after ``64:ff9b::/96``."""
    is_translated = number in ipaddress.IPv6Network("64:ff9b::/96")
    return ipaddress.IPv4Address(int(number) & 0xFFFFFFFF) if is_translated else None


def parse_networks(texts: Iterable[str]) -> tuple[_Network, ...]:
    """Addresses and networks such as ``10.0.0.0/8``; what is none is left out (its key says so)."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            continue
    return tuple(found)
