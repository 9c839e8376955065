"""The one http session of a worker."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.helpers import is_ip_address
from yarl import URL

from fetchers.sdk.asker import Asker
from fetchers.sdk.errors import Fatal
from fetchers.sdk.http import TlsSettings
from fetchers.sdk.reach import AllowedAddresses, AllowedPaths, PathRefusedError, is_internal
from fetchers.toolkit.http.access import TaskHttp
from fetchers.toolkit.http.websocket import refuse_handshake

READ_BUFFER_BYTES = 256 * 1024
"""A connection that is not read stops reading from the network at twice this."""
KEEP_ALIVE_SECONDS = 30.0
CLOSE_SECONDS_MAX = 5.0
REQUEST_BYTES_IN_HEADERS_MAX = 64 * 1024


HOSTS_MAX = 1024
TLS_FILE_BYTES_MAX = 4 * 1024 * 1024


class BoundResolver(AbstractResolver):
    """Looks up names, and gives no address that is not allowed: what is connected to is what was judged."""

    def __init__(self, resolver: AbstractResolver, addresses: AllowedAddresses) -> None:
        """``resolver``: who looks them up."""
        self._resolver = resolver
        self._addresses = addresses
        self.internal_hosts: set[str] = set()
        """Names that last stood for an address of this machine or its network."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed ones of the name's addresses. Raises OSError, AddressRefusedError where it has no other ones."""
        found = await self._resolver.resolve(host, port, family)
        if len(self.internal_hosts) > HOSTS_MAX:
            self.internal_hosts.clear()
        if any(is_internal(each["host"]) for each in found):
            self.internal_hosts.add(host)
        else:
            self.internal_hosts.discard(host)
        allowed = [each for each in found if self._addresses.permits(each["host"])]
        if found and not allowed:
            self._addresses.check(host, found[0]["host"])
        return allowed

    async def close(self) -> None:
        """Close what looks them up."""
        await self._resolver.close()


def check_literal(host: str, addresses: AllowedAddresses) -> None:
    """Judge a host that is an address, which no resolver is asked about. Raises AddressRefusedError."""
    if is_ip_address(host):
        addresses.check(host, host)


class SharedHttpClosedError(RuntimeError):
    """The session is asked for outside its ``async with`` block: a mistake of the caller."""


class SharedHttp:
    """Owns the session; ``async with SharedHttp() as http: http.for_task(context)``.

    It keeps no cookies and reads no ``.netrc``: nothing of one connector may reach another. Connections are not
    limited here but for each task, so that a source that hangs cannot take the connections of the others.
    """

    def __init__(
        self,
        *,
        version: str = "0.1.0",
        resolver: AbstractResolver | None = None,
        paths: AllowedPaths | None = None,
        addresses: AllowedAddresses | None = None,
    ) -> None:
        """``version``: headrace's own, told to sources in ``User-Agent: headrace/<version>``.

        ``resolver``: who looks up names; the system when not given. ``paths``: files that TLS settings may name,
        ``addresses``: what may be connected to; all where not given.
        """
        self._resolver = resolver
        self._paths = paths or AllowedPaths()
        self._addresses = addresses or AllowedAddresses()
        self._user_agent = f"headrace/{version}"
        self._session: aiohttp.ClientSession | None = None
        self._strict: aiohttp.ClientSession | None = None
        """For addresses that no config names."""
        self._bound: BoundResolver | None = None
        self._tls: dict[TlsSettings, ssl.SSLContext] = {}

    async def __aenter__(self) -> Self:
        """Open the session; connections are made when they are needed."""
        resolver = self._resolver or aiohttp.DefaultResolver()
        self._bound = BoundResolver(resolver, self._addresses)
        self._session = self._opened(self._bound)
        self._strict = self._opened(BoundResolver(resolver, self._addresses.for_strangers))
        return self

    def _opened(self, resolver: BoundResolver) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, resolver=resolver),
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "gzip"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=READ_BUFFER_BYTES,
            max_field_size=REQUEST_BYTES_IN_HEADERS_MAX,
            max_line_size=REQUEST_BYTES_IN_HEADERS_MAX,
            middlewares=(refuse_handshake,),
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection; one that does not end in time is left, and what the block has raised is raised."""
        sessions = (self._session, self._strict)
        self._session = self._strict = None
        for session in filter(None, sessions):
            # Closed it is at once: what is waited for are the others' last words.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await session.close()

    def session(self, url: URL, *, is_strangers: bool) -> aiohttp.ClientSession:
        """The session for a URL, one that a server has named (``is_strangers``) or a config.

        Raises SharedHttpClosedError, and AddressRefusedError where the URL names an address that is not allowed; a name
        is looked up, and judged by what it stands for, when a connection is made.
        """
        session = self._strict if is_strangers else self._session
        if session is None:
            message = "the shared http client is used outside its async with block"
            raise SharedHttpClosedError(message)
        check_literal(url.host or "", self._addresses.for_strangers if is_strangers else self._addresses)
        return session

    def is_internal(self, url: URL) -> bool:
        """Whether a URL that was asked leads to this machine or its network."""
        host = url.host or ""
        if is_ip_address(host):
            return is_internal(host)
        return self._bound is not None and host in self._bound.internal_hosts

    def for_task(self, asker: Asker) -> TaskHttp:
        """The client as one task uses it: requests and waits are counted for ``asker``."""
        return TaskHttp(self, asker)

    async def tls_context(self, settings: TlsSettings) -> ssl.SSLContext:
        """The TLS context of these settings, made once. Raises Fatal where a file of them cannot be used."""
        if settings not in self._tls:
            self._tls[settings] = await asyncio.to_thread(_tls_context, settings, self._paths)
        return self._tls[settings]


def _tls_context(settings: TlsSettings, paths: AllowedPaths) -> ssl.SSLContext:
    try:
        for file in filter(None, (settings.ca_file, settings.certificate_file, settings.key_file)):
            paths.read(file, bytes_max=TLS_FILE_BYTES_MAX)  # refused here is what would hang, or is not allowed
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.key_file)
    except PathRefusedError as error:
        message = f"a TLS file cannot be used: {error}"
        raise Fatal(message) from error
    except OSError as error:  # ssl.SSLError is one
        message = f"a TLS file cannot be used ({error.strerror or type(error).__name__})"
        raise Fatal(message) from error
    if not settings.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
