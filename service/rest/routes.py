"""What a route is: one declaration from which the server, the access rules and the OpenAPI document are made."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aiohttp import web

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
Schema = Mapping[str, Any]
"""A JSON Schema (2020-12), as OpenAPI 3.1 takes it."""

_PARAMETER = re.compile(r"\{(\w+)\}")
_NUMBER = "[0-9]{1,9}"
"""A task's number; Java's ``Integer`` ends soon after it."""


class Access(StrEnum):
    """Who may use a route where proof is demanded."""

    OPEN = "open"
    """Anyone."""
    READ = "read"
    ADMIN = "admin"
    INTERNAL = "internal"
    """Workers of the group, by their signature."""


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the query that a route knows, for its document and the audit log."""

    name: str
    about: str
    schema: Schema = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is no error."""

    status: int
    about: str
    schema: Schema | None = None
    """None: the answer has no body."""
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    """What each header says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method on a path. ``{task}`` in a path is a number, every other name any text, percent-decoded once."""

    method: str
    path: str
    handle: Handle
    about: str
    """One sentence; the rest follows after it."""
    access: Access
    answers: tuple[Answer, ...]
    errors: Mapping[int, str] = field(default_factory=dict)
    """When each status is answered with the error body."""
    query: tuple[Query, ...] = ()
    body: Schema | None = None
    tag: str = "connectors"
    is_ready_early: bool = False
    """Whether it is served while the worker is still starting."""
    is_admin: bool = False
    """Whether ``admin.listeners`` serve it instead of ``listeners``."""
    is_health: bool = False
    """Whether every listener serves it."""

    @property
    def is_change(self) -> bool:
        """Whether it may change something, here or outside: to validate a config runs the code of its class."""
        return self.access in {Access.ADMIN, Access.INTERNAL}

    @property
    def pattern(self) -> str:
        """The path in the router's form."""
        return _PARAMETER.sub(lambda name: f"{{{name[1]}:{_NUMBER if name[1] == 'task' else '[^/]+'}}}", self.path)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in braces in the path, in order."""
        return tuple(_PARAMETER.findall(self.path))


ROUTES: web.AppKey[Mapping[Handle, Route]] = web.AppKey("routes")
"""An application's routes by what handles them."""


def add_routes(application: web.Application, routes: Iterable[Route]) -> None:
    """Serve each route, with and without a slash at its end."""
    listed = tuple(routes)
    application[ROUTES] = {route.handle: route for route in listed}
    for route in listed:
        for pattern in dict.fromkeys((route.pattern, f"{route.pattern.rstrip('/')}/")):
            application.router.add_route(route.method, pattern, route.handle)
            if route.method == "GET":
                application.router.add_route("HEAD", pattern, route.handle)


def route_of(request: web.Request) -> Route | None:
    """The declaration that a request was matched with; None where there is none."""
    return request.app[ROUTES].get(request.match_info.handler)
