"""A client of Kafka Connect's REST: one method a verb, errors by what a script may do about them."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

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
    """A worker that is asked; by the standard library's client, since others take long to import."""

    settings: RemoteSettings
    tls: ssl.SSLContext | None

    @classmethod
    @contextmanager
    def opened(cls, settings: RemoteSettings) -> Iterator[RemoteWorker]:
        """For the length of a block; raises ``UnreachableError`` for unusable TLS files, and what is no URL."""
        place = _place(settings.url)
        try:
            context = settings.ssl_context() if place.scheme == "https" else None
        except OSError as error:
            message = f"TLS files cannot be used: {error}"
            raise UnreachableError(message) from error
        yield cls(settings, context)

    def get(self, *path: str, query: Mapping[str, str] | None = None) -> Any:
        """The body of a 200."""
        return (self.ask("GET", *path, query=query)).body

    def ask(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str] | list[tuple[str, str]] | None = None,
        body: object = None,
    ) -> Answer:
        """One request, its path by segments (quoted here); raises ``RemoteError``. A conflict is tried again."""
        target = "/".join(quote(part, safe="") for part in path)
        target = f"{target}?{urlencode(query)}" if query else target
        for _ in range(CONFLICT_TRIES - 1):
            try:
                return self._send(method, target, body)
            except ConflictError:
                wait(CONFLICT_WAIT_SECONDS)
        return self._send(method, target, body)

    def _send(self, method: str, target: str, body: object) -> Answer:
        place = _place(self.settings.url)
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": "application/json"})
        connection = self._connection(place.hostname or "", place.port)
        try:
            connection.request(
                method, f"{place.path.rstrip('/')}/{target}", body=data, headers=headers | self.settings.headers()
            )
            response = connection.getresponse()
            text = response.read()
        except (http.client.HTTPException, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            message = f"no worker answers at {self.settings.url}: {reason} (--url or $HEADRACE_URL names another)"
            raise UnreachableError(message) from error
        finally:
            connection.close()
        found = _decoded(text)
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            return Answer(response.status, found)
        raise _error(response.status, found, text)

    def _connection(self, host: str, port: int | None) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection(host, port, timeout=REQUEST_SECONDS_MAX)
        return http.client.HTTPSConnection(host, port, timeout=REQUEST_SECONDS_MAX, context=self.tls)


def wait(seconds: float) -> None:
    """Until so much time has passed, or Ctrl-C."""
    threading.Event().wait(seconds)


def _place(url: str) -> SplitResult:
    """The parts of the worker's URL; raises ``UnreachableError``."""
    try:
        place = urlsplit(url)
        _ = place.port
    except ValueError as error:
        message = f"'{url}' is no URL of a worker: {error}"
        raise UnreachableError(message) from error
    if place.scheme not in {"http", "https"} or not place.hostname:
        message = f"'{url}' is no URL of a worker: expected http://HOST:PORT or https://HOST:PORT"
        raise UnreachableError(message)
    return place


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        return None


def _error(status: int, body: Any, text: bytes) -> AnsweredError:
    told = body.get("message") if isinstance(body, dict) else None
    message = str(told) if told else f"HTTP {status}: {text[:200].decode(errors='replace')}".rstrip(": ")
    # A name that is taken is a conflict too, but waiting does not help.
    is_passing = status == HTTPStatus.CONFLICT and "already exists" not in message
    return (ConflictError if is_passing else AnsweredError)(status, message)
