"""Requests between workers: task configs for the leader. The herder verifies their signatures."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from service.herder.api import Signature
from service.rest import bodies
from service.rest.ports import Surface
from service.rest.routes import Access, Answer, Route


@dataclass(frozen=True, slots=True, eq=False)
class InternalRoutes:
    """Handlers of what only workers send."""

    surface: Surface

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
        name, body = request.match_info["connector"], await request.read()
        await self.surface.present_herder.publication.receive(name, signature=Signature.of(request.headers), body=body)
        return bodies.empty_answer(204)
