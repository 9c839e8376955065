"""``/connectors/{connector}/offsets`` and ``…/topics``: what connectors have read and used."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from service.rest import bodies
from service.rest.openapi import reference
from service.rest.ports import Surface
from service.rest.routes import Access, Answer, Route

_MISSING = "There is no such connector."
_NOT_STOPPED = "It is not stopped, or the offsets are wrong."
_CONFLICT = "A rebalance is under way; try again."


@dataclass(frozen=True, slots=True, eq=False)
class OffsetRoutes:
    """Handlers of offsets and topics."""

    surface: Surface

    def routes(self) -> tuple[Route, ...]:
        """Reads and changes of offsets and topics, for the table of routes."""
        message = (Answer(200, "They are changed.", reference("Message")),)
        return (
            Route(
                method="GET",
                path="/connectors/{connector}/offsets",
                handle=self.offsets,
                about="Where a connector stands: source offsets, or a sink's offsets in its topics.",
                access=Access.READ,
                answers=(Answer(200, "Partitions and offsets.", reference("Offsets")),),
                errors={404: _MISSING},
            ),
            Route(
                method="PATCH",
                path="/connectors/{connector}/offsets",
                handle=self.alter,
                about="Change offsets of a stopped connector; null forgets a partition.",
                access=Access.ADMIN,
                body=reference("OffsetsInput"),
                answers=message,
                errors={400: _NOT_STOPPED, 404: _MISSING, 409: _CONFLICT},
            ),
            Route(
                method="DELETE",
                path="/connectors/{connector}/offsets",
                handle=self.reset,
                about="Forget all offsets of a stopped connector.",
                access=Access.ADMIN,
                answers=message,
                errors={400: _NOT_STOPPED, 404: _MISSING, 409: _CONFLICT},
            ),
            Route(
                method="GET",
                path="/connectors/{connector}/topics",
                handle=self.topics,
                about="Topics that a connector has used since it was created or reset.",
                access=Access.READ,
                answers=(Answer(200, "The topics by the connector's name.", reference("Topics")),),
                errors={403: "Topic tracking is disabled."},
            ),
            Route(
                method="PUT",
                path="/connectors/{connector}/topics/reset",
                handle=self.reset_topics,
                about="Forget which topics a connector has used.",
                access=Access.ADMIN,
                answers=(Answer(202, "They are forgotten."),),
                errors={403: "Topic tracking or its reset is disabled."},
            ),
        )

    async def offsets(self, request: web.Request) -> web.Response:
        """Answer 200 with Connect's ConnectorOffsets."""
        entries = await self.surface.present_herder.offsets.read(request.match_info["connector"])
        return bodies.json_answer(bodies.offsets(entries))

    async def alter(self, request: web.Request) -> web.Response:
        """What was done, in a sentence."""
        entries = bodies.parse_offsets(await bodies.read_body(request))
        message = await self.surface.present_herder.offsets.alter(request.match_info["connector"], entries)
        return bodies.json_answer({"message": message})

    async def reset(self, request: web.Request) -> web.Response:
        """What was done, in a sentence."""
        message = await self.surface.present_herder.offsets.reset(request.match_info["connector"])
        return bodies.json_answer({"message": message})

    async def topics(self, request: web.Request) -> web.Response:
        """``{connector: {"topics": […]}}``, also of a connector that is not there."""
        name = request.match_info["connector"]
        return bodies.json_answer({name: {"topics": list(self.surface.present_herder.reads.topics(name))}})

    async def reset_topics(self, request: web.Request) -> web.Response:
        """Answer 202: the topics a connector has used so far are forgotten."""
        self.surface.present_herder.reads.reset_topics(request.match_info["connector"])
        return bodies.empty_answer(202)
