"""What stands around every request, from the outermost to the innermost.

It is counted and audited, its errors are answered, its types and its body looked at, its time limited. Web pages
(``browsers``), proof (``authentication``) and other workers (``workers``) have layers of their own between these;
``server`` puts all of them in order.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from metrics.events import ChangeAudited, Emit, RequestAnswered, RequestFailed
from service.foreground import Foreground
from service.herder.errors import ConflictError, RequestError
from service.rest.authentication import PRINCIPAL
from service.rest.bodies import error_answer
from service.rest.ports import Surface, with_activity
from service.rest.routes import Access, route_of


def observing(emit: Emit, *, version: str) -> Middleware:
    """Count every answer under its route, never under the path that was asked for."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started_at = time.monotonic()
        status = 500
        try:
            answer = await handler(request)
            status = answer.status
        finally:
            seconds = time.monotonic() - started_at
            emit(RequestAnswered(method=_method(request), route=route_name(request), status=status, seconds=seconds))
        answer.headers["X-Headrace-Version"] = version
        answer.headers["Server"] = "headrace"
        return answer

    return middleware


def route_name(request: web.Request) -> str:
    """The path as it was declared; ``unknown`` for all others, so that there are only so many."""
    route = route_of(request)
    return "unknown" if route is None else route.path


def _method(request: web.Request) -> str:
    """HTTP's methods and no others: a client may invent any."""
    return request.method if request.method in _METHODS else "other"


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


_DENIED = frozenset({401, 403, 421, 429})
_REFUSED, _FAILED = 400, 500


def auditing(emit: Emit) -> Middleware:
    """One event for each change, and for each request that was refused for what it asked, or for who asked it."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        if _is_told(request, answer.status):
            principal = request.get(PRINCIPAL)
            emit(
                ChangeAudited(
                    principal="-" if principal is None else principal.name,
                    remote=request.remote or "-",
                    method=request.method,
                    path=request.rel_url.raw_path,
                    query=_declared_query(request),
                    status=answer.status,
                    outcome=_outcome(answer.status),
                )
            )
        return answer

    return middleware


def _is_told(request: web.Request, status: int) -> bool:
    route = route_of(request)
    return status == _REFUSED or status in _DENIED or (route is not None and route.is_change)


def _declared_query(request: web.Request) -> str:
    """The parameters the route knows; others may be anything."""
    route = route_of(request)
    known = () if route is None else tuple(query.name for query in route.query)
    return urlencode([(name, value) for name, value in request.query.items() if name in known])


def _outcome(status: int) -> str:
    if status in _DENIED:
        return "denied"
    if status < _REFUSED:
        return "done"
    return "refused" if status < _FAILED else "failed"


_CLIENT_ERROR = 400


def answering_errors(emit: Emit, *, request_bytes_max: int, hide: Callable[[str], str]) -> Middleware:
    """Whatever is raised is answered with a status and the error body; ``hide`` takes known secrets out of its text."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RequestError as error:
            if error.__cause__ is not None and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                # The client is told what it can do; what broke is for the log.
                emit(_failure(request, error.__cause__))
            return error_answer(error.status, hide(str(error)))
        except web.RequestPayloadError as error:
            return error_answer(_CLIENT_ERROR, f"The body cannot be read: {error}")
        except web.HTTPException as error:
            return _refusal(request, error, request_bytes_max=request_bytes_max)
        except Exception as error:  # noqa: BLE001 - the border of a request: any bug in it is a 500, told in the log
            emit(_failure(request, error))
            # The text may hold anything, a secret too; the log has it, redacted.
            return error_answer(500, f"Internal error: {type(error).__name__}; the worker's log says more")

    return middleware


def _failure(request: web.Request, error: BaseException) -> RequestFailed:
    return RequestFailed(
        method=request.method,
        route=route_name(request),
        error_class=type(error).__name__,
        message=str(error),
        trace="".join(traceback.format_exception(error)),
    )


def _refusal(request: web.Request, error: web.HTTPException, *, request_bytes_max: int) -> web.StreamResponse:
    """The framework's own refusals, in Connect's words."""
    text = f"HTTP {error.status} {HTTPStatus(error.status).phrase}"
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        text = f"The body is longer than {request_bytes_max} bytes (rest.request.bytes.max)"
    if not isinstance(error, web.HTTPMethodNotAllowed):
        return error_answer(error.status, text)
    allow = {"Allow": ",".join(sorted({*error.allowed_methods, "OPTIONS"}))}
    return web.Response(headers=allow) if request.method == "OPTIONS" else error_answer(405, text, headers=allow)


class NotAcceptableError(RequestError):
    """The client takes none of the types that the route answers with."""

    status = 406


def negotiating() -> Middleware:
    """406 for who takes no JSON (RFC 9110, 12.5.1), as Connect's ``@Produces`` does it.

    Pages for machines that are asked by other tools than Connect's, metrics and health, are given to everyone.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        route, accepted = route_of(request), ",".join(request.headers.getall("Accept", ()))
        if route is not None and not route.is_health and accepted.strip() and not takes_json(accepted):
            raise NotAcceptableError("HTTP 406 Not Acceptable")
        return await handler(request)

    return middleware


def takes_json(accepted: str) -> bool:
    """Whether a range of an ``Accept`` header matches ``application/json``.

    As in Connect, weights are not looked at, and ``*`` alone, which Java's own client sends, is ``*/*``.
    """
    ranges = {item.partition(";")[0].strip().lower() for item in accepted.split(",")}
    return not ranges.isdisjoint({"application/json", "application/*", "*/*", "*"})


class SlowBodyError(RequestError):
    """A body has not come in time."""

    status = 408


def reading_bodies(*, seconds_max: float) -> Middleware:
    """Read bodies of those who may ask, within a time limit; a worker's own first shows that it is one."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = route_of(request)
        if route is not None and route.access is not Access.INTERNAL and request.can_read_body:
            await read_in_time(request, seconds_max=seconds_max)
        return await handler(request)

    return middleware


async def read_in_time(request: web.Request, *, seconds_max: float) -> bytes:
    """A request's body; raises ``SlowBodyError``. It is kept: whoever reads it again does not wait."""
    try:
        async with asyncio.timeout(seconds_max):
            return await request.read()
    except TimeoutError as error:
        raise SlowBodyError(f"The body has not come within {seconds_max:g} s (rest.connection.timeout.ms)") from error


def is_forwarded(request: web.Request) -> bool:
    """Whether another worker of the group sends it on."""
    return "forward" in request.query


def waiting_for_start(surface: Surface) -> Middleware:
    """503 until the internal topics are read and 500 after they are let go, but for what is served early.

    To another worker of the group, which took this one for present, either means that a rebalance is due: 409.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = route_of(request)
        herder = surface.herder
        if route is None or route.is_ready_early or (herder is not None and herder.life.is_started):
            return await handler(request)
        absence = surface.absence
        raise ConflictError(str(absence)) if is_forwarded(request) else absence

    return middleware


def limiting_time(surface: Surface, *, seconds_max: float) -> Middleware:
    """500 with what the worker is busy with, once a request has taken too long."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        limit = asyncio.timeout(seconds_max)
        try:
            async with limit:
                return await handler(request)
        except TimeoutError as error:
            if not limit.expired():
                raise
            herder = surface.herder
            text = "Request timed out" if herder is None else with_activity("Request timed out.", herder.life.activity)
            raise RequestError(text) from error

    return middleware


def going_first(foreground: Foreground) -> Middleware:
    """Mark administrators' requests as what somebody waits for; mere looking holds nothing up, however often."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = route_of(request)
        if route is None or route.access is not Access.ADMIN:
            return await handler(request)
        with foreground.in_hand():
            return await handler(request)

    return middleware
