"""No request before the worker has started or after it has stopped, none for longer than its time."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from service.herder.errors import ConflictError, RequestError
from service.rest.forwarding import is_forwarded
from service.rest.ports import Surface
from service.rest.routes import Access, route_of
from service.rest.stages import with_stage


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
            text = "Request timed out" if herder is None else with_stage("Request timed out.", herder.life.activity)
            raise RequestError(text) from error

    return middleware
