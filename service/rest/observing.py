"""Around every request: what is counted, and headrace's own headers."""

from __future__ import annotations

import time

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from metrics.events import Emit, RequestAnswered
from service.rest.routes import route_of


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
