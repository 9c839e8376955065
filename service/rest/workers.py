"""Requests between workers.

What another worker has to do is asked of it on the client's behalf, with at most two hops. And a connector's owner
hands task configs to the leader, which verifies their signature before it reads the body.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from yarl import URL

from service.herder.api import ALGORITHM_HEADER, HEAD_HEADER, SIGNATURE_HEADER, Signature
from service.herder.errors import ConflictError, ElsewhereError, RequestError
from service.rest import bodies
from service.rest.layers import read_in_time
from service.rest.ports import Surface
from service.rest.routes import Access, Answer, Route

_REQUEST_HEADERS = ("Accept", "Authorization", "Content-Type", SIGNATURE_HEADER, ALGORITHM_HEADER, HEAD_HEADER)
_ANSWER_HEADERS = ("Content-Type", "Location", "WWW-Authenticate")
_NOT_FOUND_WITHIN_TWO_HOPS = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
_UNREACHABLE = "Cannot complete request momentarily: the worker at {} cannot be reached, likely a rebalance is due"


def forwarding(client: aiohttp.ClientSession, *, tls: ssl.SSLContext | None) -> Middleware:
    """Forward where the herder says so. ``tls``: how to trust workers that speak https, and what to show them."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ElsewhereError as error:
            forward = request.query.get("forward")
            if forward is not None and forward.lower() != "true":
                raise ConflictError(_NOT_FOUND_WITHIN_TWO_HOPS) from error
            may_forward_again = forward is None
            target = _target(request, error.url, may_forward_again=may_forward_again)
        return await _ask(client, request, target, tls=tls)

    return middleware


def _target(request: web.Request, worker_url: str, *, may_forward_again: bool) -> URL:
    """URL at the other worker: the request's path as it was encoded, and its query but for ``forward``."""
    query = [(name, value) for name, value in request.query.items() if name != "forward"]
    query.append(("forward", "true" if may_forward_again else "false"))
    return URL(f"{worker_url.rstrip('/')}{request.rel_url.raw_path}", encoded=True).with_query(query)


async def _ask(
    client: aiohttp.ClientSession, request: web.Request, target: URL, *, tls: ssl.SSLContext | None
) -> web.Response:
    headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
    body = await request.read()
    try:
        async with client.request(
            request.method,
            target,
            data=body or None,
            headers=headers,
            skip_auto_headers=("Content-Type",),
            allow_redirects=False,
            ssl=True if tls is None else tls,
        ) as answer:
            passed = {name: answer.headers[name] for name in _ANSWER_HEADERS if name in answer.headers}
            return web.Response(status=answer.status, body=await answer.read() or None, headers=passed)
    except aiohttp.ClientConnectorError as error:
        raise ConflictError(_UNREACHABLE.format(target.origin())) from error
    except aiohttp.ClientError as error:
        raise RequestError(f"IO Error trying to forward REST request: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True, eq=False)
class InternalRoutes:
    """Handlers of what only workers send."""

    surface: Surface
    body_seconds_max: float

    def routes(self) -> tuple[Route, ...]:
        """What workers ask of each other, for the table of routes."""
        done = (Answer(204, "It is done."),)
        return (
            Route(
                method="POST",
                path="/connectors/{connector}/tasks",
                handle=self.publish_tasks,
                about="Write the task configs that a connector's owner has made.",
                access=Access.INTERNAL,
                answers=done,
            ),
        )

    async def publish_tasks(self, request: web.Request) -> web.Response:
        """Answer 204 once the leader has written the task configs."""
        await self.surface.present_herder.publication.receive(
            request.match_info["connector"],
            signature=Signature.of(request.headers),
            read=lambda: read_in_time(request, seconds_max=self.body_seconds_max),
        )
        return bodies.empty_answer(204)
