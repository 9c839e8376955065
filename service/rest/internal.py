"""Requests between workers: task configs for the leader, which verifies their signatures before it reads a body."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from service.herder.api import Signature
from service.rest import bodies
from service.rest.limits import read_in_time
from service.rest.ports import Surface
from service.rest.routes import Access, Answer, Route


@dataclass(frozen=True, slots=True, eq=False)
class InternalRoutes:
    """Handlers of what only workers send."""

    surface: Surface
    body_seconds_max: float

    def routes(self) -> tuple[Route, ...]:
        """All of them."""
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
        """204."""
        await self.surface.present_herder.publication.receive(
            request.match_info["connector"],
            signature=Signature.of(request.headers),
            read=lambda: read_in_time(request, seconds_max=self.body_seconds_max),
        )
        return bodies.empty_answer(204)
