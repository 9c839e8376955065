"""The one http session of a worker."""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver

from fetchers.sdk.asker import Asker
from fetchers.sdk.errors import Fatal
from fetchers.sdk.http import TlsSettings
from fetchers.toolkit.http.access import TaskHttp

READ_BUFFER_BYTES = 256 * 1024
"""A connection that is not read stops reading from the network at twice this."""
KEEP_ALIVE_SECONDS = 30.0
CLOSE_SECONDS_MAX = 5.0
REQUEST_BYTES_IN_HEADERS_MAX = 64 * 1024


class SharedHttpClosedError(RuntimeError):
    """The session is asked for outside its ``async with`` block: a mistake of the caller."""


class SharedHttp:
    """Owns the session; ``async with SharedHttp() as http: http.for_task(context)``.

    It keeps no cookies and reads no ``.netrc``: nothing of one connector may reach another. Connections are not
    limited here but for each task, so that a source that hangs cannot take the connections of the others.
    """

    def __init__(self, *, version: str = "0.1.0", resolver: AbstractResolver | None = None) -> None:
        """``version``: headrace's own, told to sources in ``User-Agent: headrace/<version>``.

        ``resolver``: who looks up names; the system when not given.
        """
        self._resolver = resolver
        self._user_agent = f"headrace/{version}"
        self._session: aiohttp.ClientSession | None = None
        self._tls: dict[TlsSettings, ssl.SSLContext] = {}

    async def __aenter__(self) -> Self:
        """Open the session; connections are made when they are needed."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, resolver=self._resolver),
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "gzip"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=READ_BUFFER_BYTES,
            max_field_size=REQUEST_BYTES_IN_HEADERS_MAX,
            max_line_size=REQUEST_BYTES_IN_HEADERS_MAX,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session. Raises SharedHttpClosedError."""
        if self._session is None:
            message = "the shared http client is used outside its async with block"
            raise SharedHttpClosedError(message)
        return self._session

    def for_task(self, asker: Asker) -> TaskHttp:
        """Access for this task."""
        return TaskHttp(self, asker)

    async def tls_context(self, settings: TlsSettings) -> ssl.SSLContext:
        """The TLS context of these settings, made once. Raises Fatal where a file of them cannot be used."""
        if settings not in self._tls:
            self._tls[settings] = await asyncio.to_thread(_tls_context, settings)
        return self._tls[settings]


def _tls_context(settings: TlsSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.key_file)
    except OSError as error:  # ssl.SSLError is one
        message = f"a TLS file cannot be used ({error.strerror or type(error).__name__})"
        raise Fatal(message) from error
    if not settings.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
