"""``/``, health, metrics: what the worker is and how it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

from metrics.prometheus import CONTENT_TYPE
from service.rest import bodies
from service.rest.authentication import PRINCIPAL
from service.rest.openapi import TEXT, reference
from service.rest.ports import STARTING, STOPPING, Surface, with_activity
from service.rest.routes import Access, Answer, Handle, Route, Schema

IMITATED_VERSION = "4.1.1"
IMITATED_COMMIT = "be816b82d25370ce"
"""What Kafka Connect 4.1.1 tells; clients decide by the version what they may ask for."""
_HEALTHY = "Worker has completed startup and is ready to handle requests."
_UNHEALTHY = "Worker was unable to handle this request and may be unable to handle other requests."


@dataclass(frozen=True, slots=True, eq=False)
class RootRoutes:
    """Handlers of what is about the worker itself."""

    surface: Surface
    open_pages: frozenset[str]
    """Those of ``health`` and ``metrics`` that are answered without a login."""
    health_seconds_max: float

    def routes(self) -> tuple[Route, ...]:
        """The pages about the worker itself, for the table of routes."""
        health = Access.OPEN if "health" in self.open_pages else Access.READ
        metrics = Access.OPEN if "metrics" in self.open_pages else Access.READ
        return (
            Route(
                method="GET",
                path="/",
                handle=self.worker,
                about="Version of Kafka Connect that is imitated, and the Kafka cluster.",
                access=Access.READ,
                tag="worker",
                answers=(Answer(200, "The worker.", reference("Worker")),),
            ),
            self._health_route("/health", self.health, health, schema=reference("HealthStatus"), is_in_words=True),
            self._health_route("/health/live", self.live, health, schema={"type": "object"}),
            self._health_route("/health/ready", self.ready, health, schema={"type": "object"}),
            Route(
                method="GET",
                path="/metrics",
                handle=self.render_metrics,
                about="Metrics, in Prometheus' text format.",
                access=metrics,
                tag="worker",
                answers=(Answer(200, "The metrics.", TEXT, media_type="text/plain"),),
                is_ready_early=True,
                is_health=True,
            ),
        )

    def _health_route(
        self, path: str, handle: Handle, access: Access, *, schema: Schema, is_in_words: bool = False
    ) -> Route:
        unwell = (Answer(503, "It is starting, or not ready.", schema),)
        broken = (Answer(500, "It stops, or does not get on with its work.", schema),) if is_in_words else ()
        return Route(
            method="GET",
            path=path,
            handle=handle,
            about="How the worker is.",
            access=access,
            tag="worker",
            answers=(Answer(200, "It is well.", schema), *unwell, *broken),
            is_ready_early=True,
            is_health=True,
        )

    async def worker(self, _: web.Request) -> web.Response:
        """Answer 200 with Connect's ServerInfo: version, commit and the cluster's id."""
        cluster = self.surface.present_herder.life.kafka_cluster_id
        return bodies.json_answer({"version": IMITATED_VERSION, "commit": IMITATED_COMMIT, "kafka_cluster_id": cluster})

    async def health(self, _: web.Request) -> web.Response:
        """200 once a tick has passed, 503 while starting, 500 where the worker stops or hangs."""
        herder = self.surface.herder
        if self.surface.is_stopping:
            return _health(500, "unhealthy", STOPPING)
        if herder is None or not herder.life.is_started:
            return _health(503, "starting", with_activity(STARTING, None if herder is None else herder.life.activity))
        try:
            async with asyncio.timeout(self.health_seconds_max):
                await herder.life.wait_tick()
        except TimeoutError:
            return _health(500, "unhealthy", with_activity(_UNHEALTHY, herder.life.activity))
        return _health(200, "healthy", _HEALTHY)

    async def live(self, _: web.Request) -> web.Response:
        """200 as long as the event loop answers."""
        return bodies.json_answer({"status": "live", "version": self.surface.version})

    async def ready(self, request: web.Request) -> web.Response:
        """200 when ready, else 503; the body says what is missing, and why to those who may read."""
        health, is_known = self.surface.health, request.get(PRINCIPAL) is not None
        return bodies.json_answer(health.report(has_reasons=is_known), status=200 if health.is_ready else 503)

    async def render_metrics(self, _: web.Request) -> web.Response:
        """Answer 200 with every metric in Prometheus' text format."""
        return web.Response(body=await self.surface.metrics.expose(), headers={"Content-Type": CONTENT_TYPE})


def _health(status: int, word: str, message: str) -> web.Response:
    return bodies.json_answer({"status": word, "message": message}, status=status)
