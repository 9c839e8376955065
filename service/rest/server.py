"""The worker's HTTP server: ``/metrics``, ``/health/live``, ``/health/ready``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from metrics.events import Emit, RequestAnswered
from metrics.prometheus import CONTENT_TYPE, PrometheusObserver
from service.rest.health import Health

REQUEST_BYTES_MAX = 1024 * 1024
SHUTDOWN_SECONDS_MAX = 2.0


@dataclass(frozen=True, slots=True)
class HttpPages:
    """What the pages are made from."""

    health: Health
    metrics: PrometheusObserver
    version: str

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get("/health/live", self.live),
            web.get("/health/ready", self.ready),
            web.get("/metrics", self.render_metrics),
        ]

    async def live(self, _: web.Request) -> web.Response:
        """200 as long as the event loop answers."""
        return web.json_response({"status": "live", "version": self.version})

    async def ready(self, _: web.Request) -> web.Response:
        """200 when ready, else 503; the body says what is missing."""
        return web.json_response(self.health.report(), status=200 if self.health.is_ready else 503)

    async def render_metrics(self, _: web.Request) -> web.Response:
        """Prometheus text format."""
        return web.Response(body=await self.metrics.expose(), headers={"Content-Type": CONTENT_TYPE})


@asynccontextmanager
async def serving(listener: str, pages: HttpPages, emit: Emit) -> AsyncIterator[str]:
    """Serve while the block runs; yields the URL with the real port."""
    application = web.Application(middlewares=[_observed(emit, pages.version)], client_max_size=REQUEST_BYTES_MAX)
    application.add_routes(pages.routes())
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS_MAX)
    await runner.setup()
    try:
        address = urlsplit(listener)
        host = address.hostname or "127.0.0.1"
        site = web.TCPSite(runner, host, address.port or 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def _observed(emit: Emit, version: str) -> Middleware:
    """Count every answer, by route pattern."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started_at = time.monotonic()
        status = 500
        try:
            response = await handler(request)
            status = response.status
        except web.HTTPException as error:
            status = error.status
            error.headers["X-Headrace-Version"] = version
            raise
        finally:
            resource = request.match_info.route.resource
            route = resource.canonical if resource else "unknown"
            seconds = time.monotonic() - started_at
            emit(RequestAnswered(method=request.method, route=route, status=status, seconds=seconds))
        response.headers["X-Headrace-Version"] = version
        return response

    return middleware
