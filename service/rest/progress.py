"""``/progress``: what connectors have done so far, in figures. A route of our own: Connect's bodies stay as they are.

Each worker knows the figures of the tasks that it runs; whoever is asked asks the others.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import aiohttp
from aiohttp import web

from metrics.progress import ConnectorProgress, TaskProgress, Trouble, combined_state
from service.rest import bodies
from service.rest.layers import is_forwarded
from service.rest.openapi import array_of, reference
from service.rest.ports import Surface
from service.rest.routes import Access, Answer, Query, Route

PEER_SECONDS_MAX = 10.0
"""A worker that is slower is named in ``unanswered``: figures are for now."""
_SUMS = (
    "fetched_records",
    "delivered_records",
    "rejected_records",
    "deduplicated_records",
    "records_per_second",
)
_INSTANTS = {"started_seconds": "started", "last_commit_seconds": "last_commit"}


@dataclass(frozen=True, slots=True)
class Peers:
    """How other workers are asked."""

    client: aiohttp.ClientSession
    tls: ssl.SSLContext | None
    """How to trust those that speak https."""

    async def progress(self, url: str, request: web.Request) -> Mapping[str, Any] | None:
        """The figures that the worker at ``url`` has itself; None where it does not give them."""
        query = [*((name, value) for name, value in request.query.items() if name != "forward"), ("forward", "false")]
        headers = {name: request.headers[name] for name in ("Authorization",) if name in request.headers}
        try:
            async with self.client.get(
                f"{url.rstrip('/')}/progress",
                params=query,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=PEER_SECONDS_MAX),
                ssl=True if self.tls is None else self.tls,
            ) as answer:
                found = await answer.json() if answer.ok else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
        connectors = found.get("connectors") if isinstance(found, dict) else None
        return connectors if isinstance(connectors, dict) else None


PEERS: web.AppKey[Peers] = web.AppKey("peers")


@dataclass(frozen=True, slots=True, eq=False)
class ProgressRoutes:
    """Handlers of the figures."""

    surface: Surface

    def routes(self) -> tuple[Route, ...]:
        """The one route, for the table of routes."""
        return (
            Route(
                method="GET",
                path="/progress",
                handle=self.progress,
                about="Figures of connectors since their workers have them: counts, rate, lag, commits, last trouble. "
                "A connector that no worker has run since its start is left out.",
                access=Access.READ,
                query=(
                    Query("connector", "Only these; may be given several times.", array_of({"type": "string"})),
                    Query("forward", "`false`: only of the worker that is asked."),
                ),
                answers=(Answer(200, "The figures, and which workers did not give theirs.", reference("Progress")),),
            ),
        )

    async def progress(self, request: web.Request) -> web.Response:
        """Answer 200 with the figures of all workers, by connector."""
        herder = self.surface.present_herder
        names = request.query.getall("connector") if "connector" in request.query else None
        known = set(herder.reads.names())
        own = {each.connector: self._body(each) for each in self.surface.progress.connectors(names)}
        others = [] if is_forwarded(request) else list(herder.reads.other_workers())
        peers = request.app[PEERS]
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(peers.progress(url, request), name=f"progress of {url}") for url in others]
        found = [each.result() for each in asked]
        unanswered = [url for url, each in zip(others, found, strict=True) if each is None]
        merged = merge([own, *(each for each in found if each is not None)])
        connectors = {name: body for name, body in sorted(merged.items()) if name in known}
        return bodies.json_answer({"connectors": connectors, "unanswered": unanswered})

    def _body(self, progress: ConnectorProgress) -> bodies.Json:
        return {**self._figures(progress), "tasks": [self._figures(task) for task in progress.tasks]}

    def _figures(self, progress: ConnectorProgress | TaskProgress) -> bodies.Json:
        body: bodies.Json = {}
        for each in fields(progress):
            value = getattr(progress, each.name)
            if each.name in _INSTANTS:
                body[_INSTANTS[each.name]] = instant(value)
            elif each.name == "records_per_second":
                body[each.name] = round(value, 1)
            elif each.name == "lag_seconds":
                body[each.name] = None if value is None else round(value, 3)
            elif isinstance(value, Trouble):
                body[each.name] = self._trouble(value)
            elif each.name not in {"connector", "tasks"}:
                body[each.name] = value
        return body

    def _trouble(self, trouble: Trouble) -> bodies.Json:
        message = self.surface.health.hide(trouble.message)
        return {
            "at": instant(trouble.at_seconds),
            "message": message,
            "is_over": trouble.is_over,
            "attempt": trouble.attempt,
        }


def instant(seconds: float | None) -> str | None:
    """Seconds since the epoch as an ISO 8601 instant in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def merge(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several workers say of the same connectors, as one."""
    merged: dict[str, Any] = {}
    for answer in answers:
        for name, body in answer.items():
            merged[name] = _both(merged[name], body) if name in merged else body
    return merged


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> bodies.Json:
    both = [one, other]
    # A worker that has a connector no more still tells what it did; its tasks are elsewhere.
    holders = [each for each in both if each["tasks"]] or both
    troubles = [each["trouble"] for each in both if each["trouble"] is not None]
    return {
        **one,
        **{name: sum(each[name] for each in both) for name in _SUMS},
        "state": combined_state(each["state"] for each in holders),
        "lag_seconds": _largest(each["lag_seconds"] for each in holders),
        "lag_records": _largest(each["lag_records"] for each in holders),
        "last_commit": _largest(each["last_commit"] for each in both),
        "trouble": max(troubles, key=lambda each: (not each["is_over"], each["at"]), default=None),
        "tasks": sorted((task for each in both for task in each["tasks"]), key=lambda task: int(task["task"])),
    }


def _largest(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)
