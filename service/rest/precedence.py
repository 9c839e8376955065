"""Who asks for a change goes before what the worker does by itself."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from service.foreground import Foreground
from service.rest.routes import Access, route_of


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
