"""A client of Kafka Connect's REST: one method a verb, errors by what a script may do about them."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_fixed

DEFAULT_URL = "http://127.0.0.1:8083"
REQUEST_SECONDS_MAX = 95.0
"""A little more than a worker itself allows a request (90 s), so that its own text is seen."""
CONFLICT_TRIES, CONFLICT_WAIT_SECONDS = 40, 0.25
"""As Kafka's own clients do: 409 means that the group is rebalancing."""


class RemoteError(Exception):
    """The worker has not done what it was asked; the text is for people."""


class UnreachableError(RemoteError):
    """Nobody answers, or nobody who speaks this protocol."""


@dataclass
class AnsweredError(RemoteError):
    """The worker answered with an error."""

    status: int
    message: str

    def __str__(self) -> str:
        """The worker's own words."""
        return self.message


class ConflictError(AnsweredError):
    """Not now; tried again before it is told."""


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """Which worker, and who asks."""

    url: str = DEFAULT_URL
    user: str | None = None
    """``name:password``."""
    token: str | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    """PEM with the client's certificate and key."""

    def headers(self) -> dict[str, str]:
        """Headers that every request to the worker carries."""
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is not None:
            return {"Authorization": f"Basic {base64.b64encode(self.user.encode()).decode()}"}
        return {}

    def ssl_context(self) -> ssl.SSLContext:
        """For https; raises ``OSError`` for files that cannot be read."""
        context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file)
        return context


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body; None where there is none."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class RemoteWorker:
    """An open connection; use it inside ``opened``."""

    session: aiohttp.ClientSession
    url: str

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: RemoteSettings) -> AsyncIterator[RemoteWorker]:
        """Connect for the length of a block; raises ``UnreachableError`` for unusable TLS files."""
        try:
            context = settings.ssl_context()
        except OSError as error:
            message = f"TLS files cannot be used: {error}"
            raise UnreachableError(message) from error
        async with aiohttp.ClientSession(
            headers=settings.headers(),
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS_MAX),
        ) as session:
            yield cls(session, settings.url.rstrip("/"))

    async def get(self, *path: str, query: Mapping[str, str] | None = None) -> Any:
        """The body of a 200."""
        return (await self.ask("GET", *path, query=query)).body

    async def ask(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str] | list[tuple[str, str]] | None = None,
        body: object = None,
    ) -> Answer:
        """One request, its path by segments (quoted here); raises ``RemoteError``."""
        tries = AsyncRetrying(
            retry=retry_if_exception_type(ConflictError),
            stop=stop_after_attempt(CONFLICT_TRIES),
            wait=wait_fixed(CONFLICT_WAIT_SECONDS),
            reraise=True,
        )
        answer = Answer(0, None)
        async for attempt in tries:
            with attempt:
                answer = await self._ask(method, "/".join(quote(part, safe="") for part in path), query, body)
        return answer

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str] | list[tuple[str, str]] | None, body: object
    ) -> Answer:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": "application/json"})
        try:
            async with self.session.request(
                method, f"{self.url}/{path}", params=query, headers=headers, data=data
            ) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            message = f"no worker answers at {self.url}: {str(error) or type(error).__name__}"
            raise UnreachableError(message) from error
        found = _decoded(text)
        if response.ok:
            return Answer(response.status, found)
        raise _error(response.status, found, text)


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text) if text.strip() else None
    except msgspec.DecodeError:
        return None


def _error(status: int, body: Any, text: bytes) -> AnsweredError:
    told = body.get("message") if isinstance(body, dict) else None
    message = str(told) if told else f"HTTP {status}: {text[:200].decode(errors='replace')}".rstrip(": ")
    # A name that is taken is a conflict too, but waiting does not help.
    is_passing = status == HTTPStatus.CONFLICT and "already exists" not in message
    return (ConflictError if is_passing else AnsweredError)(status, message)
