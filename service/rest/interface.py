"""All routes of the REST interface: its table of contents."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from service.rest import bodies, openapi
from service.rest.connectors import ConnectorRoutes
from service.rest.internal import InternalRoutes
from service.rest.lifecycle import LifecycleRoutes
from service.rest.loggers import LoggerRoutes
from service.rest.offsets import OffsetRoutes
from service.rest.plugins import PluginRoutes
from service.rest.ports import Surface
from service.rest.root import RootRoutes
from service.rest.routes import Access, Answer, Route
from service.rest.secrets import ConfigSecrets
from service.rest.settings import RestSettings


def interface(surface: Surface, settings: RestSettings) -> tuple[Route, ...]:
    """Every route."""
    secrets = ConfigSecrets(surface, settings.config_providers, settings.is_config_hidden)
    described = (
        *RootRoutes(surface, settings.open_pages, settings.health_seconds_max).routes(),
        *ConnectorRoutes(surface, secrets).routes(),
        *LifecycleRoutes(surface).routes(),
        *OffsetRoutes(surface).routes(),
        *PluginRoutes(surface, secrets).routes(),
        *LoggerRoutes(surface).routes(),
        *InternalRoutes(surface, settings.connections.seconds_max).routes(),
    )
    return (*described, _Description(described, surface.version).route())


@dataclass(frozen=True, slots=True, eq=False)
class _Description:
    routes: tuple[Route, ...]
    version: str

    def route(self) -> Route:
        return Route(
            method="GET",
            path="/openapi.json",
            handle=self.describe,
            about="This interface, as an OpenAPI document.",
            access=Access.READ,
            tag="worker",
            answers=(Answer(200, "The document.", {"type": "object"}),),
            is_ready_early=True,
        )

    async def describe(self, _: web.Request) -> web.Response:
        """OpenAPI 3.1."""
        return bodies.json_answer(openapi.document((*self.routes, self.route()), version=self.version))
