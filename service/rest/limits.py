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
    """Whether an ``Accept`` header allows ``application/json``; of several ranges that match, the closest counts.

    ``*`` alone, which Java's own client sends, is ``*/*``.
    """
    weights: dict[str, float] = {}
    for item in accepted.lower().split(","):
        media, *parameters = (part.strip() for part in item.split(";"))
        quality = next((text[2:] for text in parameters if text.replace(" ", "").startswith("q=")), "1")
        try:
            weights[media] = float(quality)
        except ValueError:
            weights[media] = 0.0
    ranges = ("application/json", "application/*", "*/*", "*")
    return next((weights[each] for each in ranges if each in weights), 0.0) > 0


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
