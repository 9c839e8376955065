"""A REST interface over fakes, served on the loopback by the real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from metrics.events import Event
from metrics.log_levels import LogLevels
from metrics.prometheus import PrometheusObserver
from service.config.definition import ConnectorDefinition
from service.config.listeners import Listener
from service.config.providers import resolve_worker
from service.config.worker import with_defaults
from service.herder.api import Herder
from service.preview.judging import PreviewParts
from service.preview.requested import RequestedPreviews
from service.rest.health import Health, WorkerPhase
from service.rest.ports import Surface
from service.rest.server import ServedUrls, serving_rest
from service.rest.settings import RestSettings
from service.worker.foreign_calls import ForeignCalls
from spark_batch.errors import SparkUnavailable
from tests.apis.rest.fake_herder import FakeHerder, FakePlugins

LOOPBACK = Listener("http", "127.0.0.1", 0)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    text: str
    headers: CIMultiDictProxy[str]

    @property
    def body(self) -> Any:
        """The JSON."""
        return json.loads(self.text)

    @property
    def error(self) -> tuple[int, str]:
        """Status and message of an error body that has both and nothing else."""
        body = self.body
        assert set(body) == {"error_code", "message"}
        assert body["error_code"] == self.status
        return self.status, body["message"]


@dataclass(frozen=True)
class Served:
    """A served interface, what stands behind it, and a client."""

    urls: ServedUrls
    herder: FakeHerder
    plugins: FakePlugins
    surface: Surface
    events: list[Event]
    client: aiohttp.ClientSession = field(repr=False)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        url: str | None = None,
    ) -> Answer:
        """Send a request: bytes as they are, anything else as JSON, the path as it is encoded."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data is not None else {}
        target = URL(f"{url or self.urls.main[0]}{path}", encoded=True)
        async with self.client.request(method, target, data=data, headers={**kind, **(headers or {})}) as answer:
            return Answer(answer.status, await answer.text(), answer.headers)


async def _contract_of(definition: ConnectorDefinition) -> str | None:
    return definition.contract_source.text if definition.contract_source else None


async def _no_spark(*_: Any, **__: Any) -> Any:
    raise SparkUnavailable("there is no Spark here")


def previews(worker: Mapping[str, str] | None = None) -> RequestedPreviews:
    """Those of a real worker (of defaults), without a registry and without Spark."""
    return RequestedPreviews(
        PreviewParts(_contract_of, _no_spark, _no_spark),
        with_defaults(worker or {}),
        resolve_worker(worker or {}, environ={}).providers.resolve,
        ForeignCalls(),
        lambda text: text,
    )


def settings(**changes: Any) -> RestSettings:
    """One listener on the loopback, no proof."""
    return RestSettings(**{"listeners": (LOOPBACK,), **changes})


@asynccontextmanager
async def served(herder: FakeHerder | None = None, rest: RestSettings | None = None) -> AsyncIterator[Served]:
    """Serve while the block runs."""
    herder, plugins, events = herder or FakeHerder(), FakePlugins(), list[Event]()
    behind: Herder = herder
    surface = Surface(
        health=Health(phase=WorkerPhase.STARTED),
        metrics=PrometheusObserver(),
        loggers=LogLevels(),
        version="1.2.3",
        plugins=plugins,
        previews=previews(),
        herder=behind,
    )
    async with (
        serving_rest(rest or settings(), surface, events.append) as urls,
        aiohttp.ClientSession() as client,
    ):
        yield Served(urls, herder, plugins, surface, events, client)
