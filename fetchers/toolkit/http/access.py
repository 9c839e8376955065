"""What a fetcher holds of the http client: requests, streams and polls of one task."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Protocol, Unpack

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from fetchers.sdk.asker import Asker
from fetchers.sdk.errors import Fatal, FetchError, RateLimited, Retriable
from fetchers.sdk.http import (
    Credentials,
    HttpLimits,
    RequestBudget,
    RequestOptions,
    StatusTable,
    StatusVerdict,
    TlsSettings,
)
from fetchers.toolkit.fields import text_at
from fetchers.toolkit.http import redirects
from fetchers.toolkit.http.answer import HttpAnswer
from fetchers.toolkit.http.failures import outside_errors, place_of
from fetchers.toolkit.http.headers import is_page
from fetchers.toolkit.http.retry_after import retry_after_seconds
from fetchers.toolkit.http.stream import ResponseStream, TooLargeError
from fetchers.toolkit.http.websocket import CLOSE_SECONDS_MAX, HandshakeRefusedError, OpenSocket
from metrics.events import FetchCompleted

REQUESTS_OPEN_MAX = 16
"""Requests that one task may have open at once."""
_UNAUTHORIZED = 401
_SOCKET_SCHEME = re.compile(r"^ws(?=s?:)", re.IGNORECASE)
_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request ready to be sent, and what may be said of it."""

    method: str
    url: URL
    options: RequestOptions
    credentials: Credentials = field(default_factory=Credentials)
    is_strangers: bool = False
    """Whether a public server named the URL's host by a redirect, and no config did."""

    @property
    def headers(self) -> CIMultiDict[str]:
        return CIMultiDict({**self.options.get("headers", {}), **self.credentials.headers})

    @property
    def secrets(self) -> Sequence[str]:
        auth = self.options.get("auth")
        password = (self.url.password,) if self.url.password else ()
        return (*self.options.get("secrets", ()), *(auth.secrets if auth else ()), *password)

    @property
    def place(self) -> str:
        return place_of(self.url, self.secrets)

    @property
    def carries_credentials(self) -> bool:
        return redirects.has_credentials(
            self.options.get("headers", {}),
            is_authorized=self.options.get("auth") is not None or self.url.user is not None,
            has_secrets=bool(self.options.get("secrets")) or self.options.get("body") is not None,
        )


class SessionOwner(Protocol):
    """Lends what all tasks share."""

    def session(self, url: URL, *, is_strangers: bool) -> aiohttp.ClientSession:
        """The open session for a URL that a server has named, or a config. Raises AddressRefusedError."""

    def is_internal(self, url: URL) -> bool:
        """Whether a URL that was asked leads to this machine or its network."""

    async def tls_context(self, settings: TlsSettings) -> ssl.SSLContext:
        """The TLS context of these settings. Raises Fatal where a file of them cannot be used."""


class TaskHttp:
    """The ``HttpAccess`` of one task."""

    def __init__(self, shared: SessionOwner, asker: Asker) -> None:
        self._shared = shared
        self._asker = asker
        self._open_requests = asyncio.Semaphore(REQUESTS_OPEN_MAX)

    async def poll(self, url: str, *, every: float, **options: Unpack[RequestOptions]) -> AsyncIterator[HttpAnswer]:
        """Ask again and again, ``every`` seconds from start to start; each time is one round of the source."""
        clock = self._asker.clock
        while True:
            started = clock.monotonic()
            yield await self.request("GET", url, **options)
            self._asker.finish_round()
            await clock.sleep(max(0.0, started + every - clock.monotonic()))

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpAnswer:
        """One request with its whole answer."""
        async with self._opened(method, url, options, is_whole=True) as stream:
            return HttpAnswer(
                stream.status,
                stream.headers,
                await _read_whole(stream, place_of(URL(url), options.get("secrets", ())), options),
                stream.url,
                links=stream.links,
                is_skipped=stream.is_skipped,
                is_framed=stream.is_framed,
            )

    @asynccontextmanager
    async def stream(self, method: str, url: str, **options: Unpack[RequestOptions]) -> AsyncIterator[ResponseStream]:
        """One request whose body is read in chunks and never held whole."""
        async with self._opened(method, url, options, is_whole=False) as stream:
            yield stream

    @asynccontextmanager
    async def _opened(
        self, method: str, url: str, options: RequestOptions, *, is_whole: bool
    ) -> AsyncIterator[ResponseStream]:
        """One request whose answer was judged, by its body too where all of it is wanted (``is_whole``)."""
        request = _Request(method.upper(), _url(url, options), options)
        clock = self._asker.clock
        stream: ResponseStream | None = None
        outcome = "ok"
        await self._enter(request)
        started = clock.monotonic()
        try:
            stream = await self._authorized(request)
            if is_whole and options.get("statuses", StatusTable()).needs_body(stream.status):
                await _read_whole(stream, request.place, options)
            await self._judge(stream, request)
            yield stream
        except FetchError as error:
            outcome = _outcome(error)
            raise
        finally:
            self._open_requests.release()
            if stream is not None:
                stream.close()
            if stream is not None or outcome != "ok":
                received = stream.bytes_received if stream is not None else 0
                self._emit(outcome, received, clock.monotonic() - started)

    @asynccontextmanager
    async def websocket(
        self, url: str, *, message_bytes_max: int, **options: Unpack[RequestOptions]
    ) -> AsyncIterator[OpenSocket]:
        """A WebSocket that is open as long as the block lasts."""
        request = _Request("GET", _url(_SOCKET_SCHEME.sub("http", url), options), options)
        clock = self._asker.clock
        started, outcome, socket = clock.monotonic(), "ok", None
        await self._enter(request)
        try:
            auth = options.get("auth")
            if auth is not None:
                request = replace(request, credentials=await auth.credentials(self))
            socket = await self._connected(request, message_bytes_max)
            yield socket
        except FetchError as error:
            outcome = _outcome(error)
            raise
        finally:
            self._open_requests.release()
            if socket is not None:
                await socket.close()
            if socket is not None or outcome != "ok":
                received = socket.bytes_received if socket is not None else 0
                self._emit(outcome, received, clock.monotonic() - started)

    async def _connected(self, request: _Request, message_bytes_max: int) -> OpenSocket:
        """Shake hands, and judge an answer that is none."""
        limits = request.options.get("limits", HttpLimits())
        tls = await self._shared.tls_context(request.options.get("tls", TlsSettings()))
        url = request.url.update_query(request.credentials.query) if request.credentials.query else request.url
        try:
            with outside_errors(request.place):
                async with asyncio.timeout(limits.connect_seconds):
                    socket = await self._shared.session(url, is_strangers=False).ws_connect(
                        url,
                        headers=request.headers,
                        ssl=tls,
                        autoping=False,
                        autoclose=True,
                        decode_text=False,
                        max_msg_size=message_bytes_max,
                        timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS_MAX),
                    )
        except HandshakeRefusedError as error:
            refusal = ResponseStream(error.response, place=request.place, secrets=request.secrets, is_skipped=False)
            try:
                await self._judge(refusal, request)
                words = f"no WebSocket is spoken here, {_status_words(refusal.status)}"
                raise Fatal(await _quoting(refusal, request, words)) from None
            finally:
                refusal.close()
        return OpenSocket(
            socket, place=request.place, secrets=tuple(request.secrets), message_bytes_max=message_bytes_max
        )

    def _emit(self, outcome: str, received: int, seconds: float) -> None:
        asker = self._asker
        event = FetchCompleted(asker.connector, asker.task, outcome=outcome, bytes=received, seconds=seconds)
        asker.emit(event)

    async def _enter(self, request: _Request) -> None:
        """Take one of the task's places; a fetcher that holds them all would wait for itself for ever."""
        limits = request.options.get("limits", HttpLimits())
        try:
            async with asyncio.timeout(limits.connect_seconds):
                await self._open_requests.acquire()
        except TimeoutError as error:
            message = f"{request.place}: {REQUESTS_OPEN_MAX} requests of this task are open already"
            raise Retriable(message) from error

    async def _authorized(self, request: _Request) -> ResponseStream:
        """The answer; after a 401 once more when the credentials can be renewed."""
        auth = request.options.get("auth")
        if auth is None:
            return await self._followed(request)
        first = replace(request, credentials=await auth.credentials(self))
        stream = await self._followed(first)
        if stream.status != _UNAUTHORIZED or not auth.refuse(first.credentials):
            return stream
        stream.close()
        return await self._followed(replace(request, credentials=await auth.credentials(self)))

    async def _followed(self, request: _Request) -> ResponseStream:
        """The answer that is no redirect."""
        for _ in range(redirects.REDIRECTS_MAX + 1):
            stream = await self._sent(request)
            if stream.status not in redirects.STATUSES:
                return stream
            stream.close()
            method = redirects.method_after(stream.status, request.method, place=request.place)
            if method != request.method:  # a body belongs to the method that was asked for
                request = replace(request, method=method, options=_without_body(request.options))
            target = redirects.redirected(
                request.url,
                stream.headers.get("Location"),
                place=request.place,
                carries_credentials=request.carries_credentials,
            )
            # A server that is public must not send us to an address of our own network.
            is_strangers = request.is_strangers or (
                target.host != request.url.host and not self._shared.is_internal(request.url)
            )
            request = replace(request, url=target, is_strangers=is_strangers)  # the query is part of it
        message = f"{request.place}: redirected more than {redirects.REDIRECTS_MAX} times"
        raise Fatal(message)

    async def _sent(self, request: _Request) -> ResponseStream:
        """Send it, when the budget allows, and wait for the beginning of the answer."""
        options = request.options
        limits = options.get("limits", HttpLimits())
        budget = options.get("budget")
        tls = await self._shared.tls_context(options.get("tls", TlsSettings()))
        url = request.url.update_query(request.credentials.query) if request.credentials.query else request.url
        # ``connect`` and not ``sock_connect``: looking up the name must not take for ever either.
        timeout = aiohttp.ClientTimeout(connect=limits.connect_seconds, sock_read=limits.read_seconds)
        async with budget.admitted(self._asker) if budget else nullcontext():
            with outside_errors(request.place):
                session = self._shared.session(url, is_strangers=request.is_strangers)
                response = await session.request(
                    request.method,
                    url,
                    headers=request.headers,
                    data=options.get("body"),
                    allow_redirects=False,
                    timeout=timeout,
                    ssl=tls,
                )
        table = options.get("statuses", StatusTable())
        is_skipped = table.verdict(response.status) is StatusVerdict.SKIP and not table.needs_body(response.status)
        return ResponseStream(response, place=request.place, secrets=request.secrets, is_skipped=is_skipped)

    async def _judge(self, stream: ResponseStream, request: _Request) -> None:
        """Raise what the status table says about the answer."""
        verdict = _verdict(stream, request.options)
        stream.is_skipped = verdict is StatusVerdict.SKIP
        if verdict is StatusVerdict.ACCEPT and request.options.get("is_page_refused"):
            await _refuse_page(stream, request)
        budget: RequestBudget | None = request.options.get("budget")
        if verdict in {StatusVerdict.ACCEPT, StatusVerdict.SKIP}:
            if budget is not None:
                budget.accept(self._asker.clock)
                budget.hear(stream.headers, self._asker.clock)
            return
        message = await _quoting(stream, request, _status_words(stream.status))
        if verdict is StatusVerdict.FATAL:
            raise Fatal(message)
        wait = retry_after_seconds(stream.headers.get("Retry-After"), now=self._asker.clock.now())
        if verdict is StatusVerdict.RATE_LIMITED:
            if budget is not None:
                told = budget.hear(stream.headers, self._asker.clock)
                wait = told if wait is None else wait
                wait = budget.refuse(self._asker.clock, asked_seconds=wait)
            raise RateLimited(message, wait_seconds=wait)
        raise Retriable(message, wait_seconds=wait)


def _url(text: str, options: RequestOptions) -> URL:
    """The URL with the query of the options. Raises Fatal where it is none."""
    try:
        url = URL(text)
    except ValueError as error:
        message = "the URL cannot be read"
        raise Fatal(message) from error
    if url.scheme not in {"http", "https"} or not url.host:
        message = f"{place_of(url, options.get('secrets', ()))}: not an absolute http(s) URL"
        raise Fatal(message)
    return url.update_query(dict(options["query"])) if options.get("query") else url


async def _read_whole(stream: ResponseStream, place: str, options: RequestOptions) -> bytes:
    limits = options.get("limits", HttpLimits())
    try:
        with outside_errors(place):
            async with asyncio.timeout(limits.total_seconds):
                return await stream.read(bytes_max=limits.response_bytes_max)
    except TooLargeError as error:
        message = f"{place}: the answer is larger than {error.bytes_max} bytes"
        raise Fatal(message) from error


def _verdict(stream: ResponseStream, options: RequestOptions) -> StatusVerdict:
    """What the first rule says that is met, else the status."""
    table = options.get("statuses", StatusTable())
    for rule in table.rules:
        if stream.status not in rule.statuses:
            continue
        if rule.header is not None:
            found = stream.headers.get(rule.header)
        else:
            found = text_at(stream.read_body, rule.path or "")
        if found is not None and rule.text in {None, found.strip()}:
            return rule.verdict
    return table.verdict(stream.status)


def _without_body(options: RequestOptions) -> RequestOptions:
    bare = options.copy()
    bare["body"] = None
    return bare


async def _refuse_page(stream: ResponseStream, request: _Request) -> None:
    """Raise where a web page comes in place of an answer."""
    if stream.status in _SUCCESS and is_page(stream.headers):
        words = "a web page (HTML) came and no records, as from a proxy or a login wall"
        raise Retriable(await _quoting(stream, request, words))


async def _quoting(stream: ResponseStream, request: _Request, words: str) -> str:
    """A message about an answer, with the beginning of its body."""
    limits = request.options.get("limits", HttpLimits())
    try:
        async with asyncio.timeout(limits.read_seconds):
            quoted = await stream.excerpt()
    except TimeoutError:
        quoted = ""  # the words alone are enough to act on
    return f"{request.place}: {words}" + (f": {quoted}" if quoted else "")


def _status_words(status: int) -> str:
    try:
        return f"status {status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return f"status {status}"


def _outcome(error: FetchError) -> str:
    if isinstance(error, RateLimited):
        return "rate_limited"
    return "retriable" if isinstance(error, Retriable) else "fatal"
