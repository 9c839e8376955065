"""A local X: a real HTTP server with the filtered stream of API v2, its rules, the recent search and tokens.

As strict as the real one where that is known: the bearer token, parameters by name, fields only by request, rules by
their syntax, one connection, limits by windows. Whoever tests says what is posted, and what goes wrong and when.

Facts: X's documentation, ``x-api/posts/filtered-stream``, ``x-api/posts/search`` and ``x-api/fundamentals``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from fetchers.sdk import Clock, SystemClock
from service.simulators.x_ledger import Ledger, RequestSeen, Truth
from service.simulators.x_posts import Fields, FieldsRefused, Post, PostMaker, message_of
from service.simulators.x_requests import (
    RateWindows,
    RequestRefused,
    RuleBook,
    backfill_from,
    bearer_refusal,
    search,
    token_answer,
)
from service.simulators.x_settings import (
    RULES_PATH,
    SEARCH_PATH,
    STREAM_PATH,
    TOKEN_PATH,
    Fault,
    SecondConnection,
    XSettings,
    no_rules,
    operational_disconnect,
    problem,
    too_many_connections,
)
from service.simulators.x_stream import Connection, Ending

_PROBLEM = "application/problem+json"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class XSimulator:
    """One app on a free port of loopback, while the context is open."""

    def __init__(self, settings: XSettings | None = None, *, port: int = 0, clock: Clock | None = None) -> None:
        """``port`` 0 takes a free one; ``clock`` is what limits, backfill and searches go by, the machine's if None."""
        self.settings = settings or XSettings()
        self.ledger = Ledger()
        self.faults: deque[Fault] = deque()
        """Answers to coming requests, each used once by the first request for its path."""
        self.make = PostMaker()
        self.rules = RuleBook(self.settings)
        self.connections: list[Connection] = []
        """Clients that listen now, the oldest first."""
        self.history: list[tuple[datetime, Post]] = []
        """Everything that was published, with the time of it."""
        self.is_silent_at_start = False
        """True: connections are accepted and never hear anything, not even a keep-alive."""
        self.on_connect: Callable[[], object] = lambda: None
        """Called when a connection has been accepted: what is posted then reaches it."""
        self._clock = clock or SystemClock()
        self._windows = RateWindows(self.settings.limits)
        self._port = port
        self._runner: web.AppRunner | None = None
        self._accepted = 0
        self._news = asyncio.Event()
        self._withholding = 0

    async def __aenter__(self) -> Self:
        """Listen."""
        app = web.Application()
        for method, path, handler in (
            ("POST", TOKEN_PATH, self._token),
            ("GET", RULES_PATH, self._list_rules),
            ("POST", RULES_PATH, self._change_rules),
            ("GET", STREAM_PATH, self._stream),
            ("GET", SEARCH_PATH, self._search),
        ):
            app.router.add_route(method, path, self._limited(handler))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the socket and every connection."""
        self.end(Ending.CUT)
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """The API's address: the value of ``x.base.url``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> list[RequestSeen]:
        """Every request answered so far, in order; one for the stream from its connection on."""
        return self.ledger.requests

    @property
    def now(self) -> datetime:
        """The simulator's time of day (aware)."""
        return self._clock.now()

    def truth(self) -> Truth:
        """What must have come out by now."""
        ledger = self.ledger
        doubles = sum(count - 1 for count in ledger.told.values())
        told = frozenset(ledger.told)
        matching = frozenset(ledger.matching | told)
        return Truth(ledger.published, matching, told, doubles, frozenset(ledger.deleted), ledger.withheld)

    # --- what happens on X --------------------------------------------------------------------------

    def post(self, text: str, **more: Any) -> Post:
        """Make a post as ``PostMaker.post`` does, posted now unless ``at`` says otherwise, and publish it."""
        post = self.make.post(text, more.pop("at", None) or self._clock.now(), **more)
        self.publish(post)
        return post

    def publish(self, post: Post) -> None:
        """Tell a post to every connection whose rules it meets; the same one twice is told twice."""
        self.ledger.published += 1
        self.history.append((self._clock.now(), post))
        if not self.rules.matching(post):
            return
        self.ledger.matching.add(post.id)
        if self._withholding:
            self._withholding -= 1
            self.ledger.withheld += 1
            return
        for connection in self.connections:
            self._tell(connection, post)

    def delete(self, *post_ids: str, user_id: str = "9876543210") -> None:
        """Delete posts: searches find them no more, and the stream says so in the words of API v1.1.

        API v2 says it on its compliance streams only; gateways and recordings of the older stream do so in the stream.
        """
        for post_id in post_ids:
            self.ledger.deleted.add(post_id)
            status = {"id": int(post_id), "id_str": post_id, "user_id": int(user_id), "user_id_str": user_id}
            self.say(message_of({"delete": {"status": status}}))

    def withhold(self, posts: int) -> None:
        """Hold back the next so many posts that meet a rule; ``tell_limit`` says how many were, in all."""
        self._withholding += posts

    def tell_limit(self) -> None:
        """The running total of posts held back."""
        self.say(message_of({"limit": {"track": self.ledger.withheld}}))

    # --- what goes wrong ------------------------------------------------------------------------------

    def say(self, message: bytes) -> None:
        """Any message to every connection: compliance, warnings, what nobody has heard of, half a JSON text."""
        for connection in self.connections:
            connection.say(message)

    def say_raw(self, text: bytes) -> None:
        """Bytes as they are, without a line end."""
        for connection in self.connections:
            connection.say_raw(text)

    def disconnect(self, *, is_closed: bool = True) -> None:
        """Say that the stream is over for operational reasons; not ``is_closed``: and leave the socket open."""
        self.say(operational_disconnect())
        if is_closed:
            self.end(Ending.CLEAN)

    def cut_in_mid_post(self, post: Post) -> None:
        """Publish a post of which half is written, and cut every connection."""
        self.ledger.published += 1
        self.history.append((self._clock.now(), post))
        if self.rules.matching(post):
            self.ledger.matching.add(post.id)
        for connection in self.connections:
            text = message_of(post.rendered(connection.fields))
            connection.say_raw(text[: len(text) // 2])
        self.end(Ending.CUT)

    def end(self, ending: Ending) -> None:
        """End every connection, after what was put into it so far."""
        for connection in self.connections:
            connection.end(ending)

    def hush(self) -> None:
        """Let every connection fall silent without closing it."""
        for connection in self.connections:
            connection.hush()

    # --- waiting --------------------------------------------------------------------------------------

    async def wait_for_connections(self, count: int) -> None:
        """Wait until so many connections to the stream have been accepted, closed ones included."""
        await self._wait(lambda: self._accepted >= count)

    async def wait_for_no_connection(self) -> None:
        """Wait until nobody listens."""
        await self._wait(lambda: not self.connections)

    async def wait_for_requests(self, path: str, count: int) -> None:
        """Wait until so many requests for a path have been answered."""
        await self._wait(lambda: len(self.ledger.statuses(path)) >= count)

    async def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    # --- requests -------------------------------------------------------------------------------------

    def _limited(self, handler: _Handler) -> _Handler:
        """Count the request, answer scripted faults and limits, and note the answer."""

        async def answer(request: web.Request) -> web.StreamResponse:
            now = self._clock.now()
            headers, is_over = self._windows.count(request.method, request.path, now.timestamp())
            fault = next((fault for fault in self.faults if fault.path == request.path), None)
            if is_over:
                return self._noted(request, _problem(429, headers=headers))
            if fault is not None:
                self.faults.remove(fault)
                told = headers | dict(fault.headers)
                body = fault.text.encode()
                return self._noted(
                    request, web.Response(status=fault.status, body=body, content_type=fault.content_type, headers=told)
                )
            try:
                if request.path != TOKEN_PATH:
                    bearer_refusal(request.headers.get("Authorization", ""), self.settings)
                response = await handler(request)
            except FieldsRefused as refused:
                errors = [{"parameters": {refused.parameter: [refused.value]}, "message": str(refused)}]
                response = _problem(400, problem(400, errors=errors))
            except RequestRefused as refused:
                response = _problem(refused.status, refused.body)
            if not response.prepared:
                response.headers.update(headers)
                self._noted(request, response)
            return response

        return answer

    def _noted(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        seen = RequestSeen(self._clock.monotonic(), request.method, request.path, dict(request.query), response.status)
        self.ledger.requests.append(seen)
        self._news.set()
        return response

    async def _token(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        grant = form.get("grant_type")
        status, body = token_answer(request.headers.get("Authorization", ""), str(grant or ""), self.settings)
        return web.json_response(body, status=status)

    async def _list_rules(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self.rules.listed(request.query, self._clock.now()))

    async def _change_rules(self, request: web.Request) -> web.StreamResponse:
        status, body = self.rules.changed(await request.read(), request.query, self._clock.now())
        return web.json_response(body, status=status)

    async def _search(self, request: web.Request) -> web.StreamResponse:
        now = self._clock.now()
        visible = [
            post
            for at, post in self.history
            if post.id not in self.ledger.deleted and at + timedelta(seconds=self.settings.index_seconds) <= now
        ]
        body, found = search(request.query, visible, self.settings, now)
        self.ledger.told.update(post.id for post in found)
        return web.Response(text=body, content_type="application/json")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        settings, now = self.settings, self._clock.now()
        fields = Fields.of(request.query)
        since, until = backfill_from(request.query, settings, now)
        if self.rules.is_empty:
            return _problem(409, no_rules())
        while until is None and len(self.connections) >= settings.connections_max:
            if settings.second_connection is SecondConnection.REFUSED:
                return _problem(429, too_many_connections())
            self.connections.pop(0).end(Ending.CLEAN)
        connection = Connection(
            fields,
            self.ledger.told,
            keep_alive_seconds=settings.keep_alive_seconds,
            buffer_bytes_max=settings.buffer_bytes_max,
            is_silent=self.is_silent_at_start,
        )
        for at, post in self.history if since is not None else ():
            if since is not None and since <= at and (until is None or at < until) and self.rules.matching(post):
                self._tell(connection, post)
        if until is not None:
            connection.end(Ending.CLEAN)
        else:
            self.connections.append(connection)
        self._accepted += 1
        self.on_connect()
        self._noted(request, web.Response())
        try:
            return await connection.serve(request)
        except ConnectionError:
            return web.Response()  # the client went away
        finally:
            if connection in self.connections:
                self.connections.remove(connection)
            self._news.set()

    def _tell(self, connection: Connection, post: Post) -> None:
        met = self.rules.matching(post)
        if not met:
            return
        message = post.rendered(connection.fields) | {"matching_rules": met}
        connection.say(message_of(message), post.id)


def _problem(status: int, body: str | None = None, headers: Mapping[str, str] | None = None) -> web.Response:
    text = problem(status) if body is None else body
    return web.Response(status=status, text=text, content_type=_PROBLEM, headers=headers)
