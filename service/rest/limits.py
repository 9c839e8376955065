"""No request before the worker has started or after it has stopped, none for longer than its time."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from service.herder.errors import ConflictError, RequestError
from service.rest.forwarding import is_forwarded
from service.rest.ports import Surface
from service.rest.routes import route_of
from service.rest.stages import with_stage


def waiting_for_start(surface: Surface) -> Middleware:
    """503 until the internal topics are read and 500 after they are let go, but for what is served early.

    To another worker of the group, which took this one for present, either means that a rebalance is due: 409.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = route_of(request)
        herder = surface.herder
        if route is None or route.is_ready_early or (herder is not None and herder.is_started):
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
            text = "Request timed out" if herder is None else with_stage("Request timed out.", herder.stage)
            raise RequestError(text) from error

    return middleware
