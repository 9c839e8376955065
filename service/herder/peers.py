"""Requests of a worker to the leader of its group: a small HTTP client."""

from __future__ import annotations

from ssl import SSLContext
from types import TracebackType
from typing import Self
from urllib.parse import quote

import aiohttp

from service.herder.api import Signature
from service.herder.parts import PeerError

REQUEST_SECONDS_MAX = 30.0
_TEXT_MAX = 300


class HttpPeers:
    """Use as an async context manager; connects when asked."""

    def __init__(self, *, tls: SSLContext | None = None) -> None:
        """``tls``: how to trust the others where they speak https."""
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the client."""
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS_MAX)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    async def publish_tasks(self, url: str, connector: str, body: bytes, signature: Signature | None) -> None:
        """``POST /connectors/{connector}/tasks``; raises ``PeerError``."""
        headers = {"Content-Type": "application/json"}
        if signature is not None:
            headers |= signature.headers
        target = f"{url.rstrip('/')}/connectors/{quote(connector, safe='')}/tasks"
        if self._session is None:
            raise PeerError("this worker is ending")
        try:
            async with self._session.post(
                target, data=body, headers=headers, ssl=True if self._tls is None else self._tls
            ) as answer:
                if not answer.ok:
                    raise PeerError(f"{url} answered {answer.status}: {(await answer.text())[:_TEXT_MAX]}")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise PeerError(f"{url} cannot be reached: {type(error).__name__}: {error}") from error
