"""The worker's HTTP server: every listener, every route, and around every request the same layers in the same order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Middleware

from fetchers.sdk.clock import SystemClock
from metrics.events import Emit
from service.config.listeners import Listener
from service.rest import bodies, openapi
from service.rest.authentication import Credentials, authenticating
from service.rest.browsers import OwnNames, answering_browsers
from service.rest.connections import BoundedSite, Connections
from service.rest.connectors import ConnectorRoutes
from service.rest.layers import (
    answering_errors,
    auditing,
    going_first,
    limiting_time,
    negotiating,
    observing,
    reading_bodies,
    waiting_for_start,
)
from service.rest.lifecycle import LifecycleRoutes
from service.rest.loggers import LoggerRoutes
from service.rest.offsets import OffsetRoutes
from service.rest.plugins import PluginRoutes
from service.rest.ports import Surface
from service.rest.previews import PreviewRoutes
from service.rest.progress import PEERS, Peers, ProgressRoutes
from service.rest.root import RootRoutes
from service.rest.routes import Access, Answer, Route, add_routes
from service.rest.secrets import ConfigSecrets
from service.rest.settings import RestSettings
from service.rest.tls import TlsContexts
from service.rest.workers import InternalRoutes, forwarding

SHUTDOWN_SECONDS_MAX = 2.0


class ListenError(OSError):
    """A listener's address is taken, or is none of this machine's."""


@dataclass(frozen=True, slots=True)
class ServedUrls:
    """Where the worker can be reached from its own machine, with the real ports."""

    main: tuple[str, ...]
    admin: tuple[str, ...] = ()


@asynccontextmanager
async def serving_rest(settings: RestSettings, surface: Surface, emit: Emit) -> AsyncIterator[ServedUrls]:
    """Serve on every listener while the block runs; raises ``ListenError``."""
    async with AsyncExitStack() as stack:
        timeout = aiohttp.ClientTimeout(total=settings.request_seconds_max)
        client = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        credentials = Credentials(users=settings.users, tokens=settings.tokens)
        stack.callback(credentials.close)
        names = settings.own_names(await _machine_names(settings.listeners))
        layers = _layers(settings, surface, emit, names=names, credentials=credentials, client=client)
        routes = interface(surface, settings)
        admin = settings.admin_listeners
        main_routes = [route for route in routes if admin is None or not route.is_admin]
        admin_routes = [route for route in routes if route.is_admin or route.is_health]
        counted = Connections(settings.connections, emit)
        main_app, admin_app = (_application(each, layers, settings) for each in (main_routes, admin_routes))
        client_tls = settings.tls or settings.admin_tls
        main_app[PEERS] = admin_app[PEERS] = Peers(client, None if client_tls is None else client_tls.client)
        main_urls = await _listen(stack, main_app, settings.listeners, tls=settings.tls, connections=counted)
        admin_urls = await _listen(stack, admin_app, admin or (), tls=settings.admin_tls, connections=counted)
        yield ServedUrls(main_urls, admin_urls)


def _layers(
    settings: RestSettings,
    surface: Surface,
    emit: Emit,
    *,
    names: OwnNames,
    credentials: Credentials,
    client: aiohttp.ClientSession,
) -> tuple[Middleware, ...]:
    """From the outermost to the innermost."""
    client_tls = settings.tls or settings.admin_tls
    return (
        observing(emit, version=surface.version),
        auditing(emit),
        answering_browsers(names, settings.cross_origin, settings.header_rules, clock=SystemClock()),
        answering_errors(emit, request_bytes_max=settings.request_bytes_max, hide=surface.health.hide),
        authenticating(credentials, settings.proofs),
        negotiating(),
        reading_bodies(seconds_max=settings.connections.seconds_max),
        going_first(surface.foreground),
        limiting_time(surface, seconds_max=settings.request_seconds_max),
        waiting_for_start(surface),
        forwarding(client, tls=None if client_tls is None else client_tls.client),
    )


async def _machine_names(listeners: Sequence[Listener]) -> tuple[str, ...]:
    """What others may call this machine, where a listener is bound to no name or address of its own."""
    if not any(listener.is_everywhere for listener in listeners):
        return ()
    # Asks the resolver, which may take its time.
    return socket.gethostname(), await asyncio.to_thread(socket.getfqdn)


def _application(routes: Sequence[Route], layers: Sequence[Middleware], settings: RestSettings) -> web.Application:
    application = web.Application(middlewares=layers, client_max_size=settings.request_bytes_max)
    add_routes(application, routes)
    return application


async def _listen(
    stack: AsyncExitStack,
    application: web.Application,
    listeners: Sequence[Listener],
    *,
    tls: TlsContexts | None,
    connections: Connections,
) -> tuple[str, ...]:
    if not listeners:
        return ()
    runner = web.AppRunner(application, shutdown_timeout=SHUTDOWN_SECONDS_MAX)
    stack.push_async_callback(runner.cleanup)
    await runner.setup()
    urls = []
    for listener in listeners:
        context = tls.server if tls is not None and listener.scheme == "https" else None
        site = BoundedSite(runner, connections, host=listener.host or None, port=listener.port, tls=context)
        try:
            await site.start()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ListenError(
                f"Cannot listen on {listener.scheme}://{listener.host}:{listener.port}: {reason} "
                "(key listeners, or admin.listeners; port 0 is a free one)"
            ) from error
        urls.append(listener.url(site.port))
    return tuple(urls)


def interface(surface: Surface, settings: RestSettings) -> tuple[Route, ...]:
    """Every route of the interface, for any number of listeners, ``/openapi.json`` among them."""
    secrets = ConfigSecrets(surface, settings.config_providers, settings.is_config_hidden)
    described = (
        *RootRoutes(surface, settings.open_pages, settings.health_seconds_max).routes(),
        *ConnectorRoutes(surface, secrets).routes(),
        *LifecycleRoutes(surface).routes(),
        *OffsetRoutes(surface).routes(),
        *ProgressRoutes(surface).routes(),
        *PluginRoutes(surface, secrets).routes(),
        *PreviewRoutes(surface, secrets).routes(),
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
        """Answer 200 with the OpenAPI 3.1 document."""
        return bodies.json_answer(openapi.document((*self.routes, self.route()), version=self.version))
