"""Who asked for which change, from where, and what became of it; never what was in the body."""

from __future__ import annotations

from urllib.parse import urlencode

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from metrics.events import ChangeAudited, Emit
from service.rest.authentication import PRINCIPAL
from service.rest.routes import route_of

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
