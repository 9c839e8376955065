"""The contract suite's target for ``HttpSink``: a web server on the loopback interface."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from aiohttp import web
from aiohttp.test_utils import TestServer

from service.sinks.converters import ColumnReader, JsonReader
from service.sinks.http.sink import HttpSink
from service.sinks.testing import SinkCase, Target


class Hook(Target):
    """Keeps texts of JSON arrays, each name of a request once; says 422 to what is no object, 503 while it is busy."""

    def __init__(self, busy: Collection[str]) -> None:
        self.busy = set(busy)
        self.taken: dict[str, list[str]] = {}
        self.url = ""

    @property
    def properties(self) -> Mapping[str, str]:
        """Single records, with a name for each request."""
        return {"http.api.url": self.url, "idempotency.header": "Idempotency-Key"}

    async def written(self) -> Sequence[str]:
        """The texts, in the order of partitions and offsets."""
        places = sorted(self.taken, key=lambda name: [int(part) for part in name.split("-")[1:]])
        return [text for place in places for text in self.taken[place]]

    async def take(self, request: web.Request) -> web.Response:
        """One request."""
        document = await request.json()
        if not isinstance(document, dict):
            return web.Response(status=422)
        if document["text"] in self.busy:
            self.busy.remove(document["text"])
            return web.Response(status=503)
        self.taken[request.headers["Idempotency-Key"]] = [document["text"]]
        return web.Response()


class HttpSinkCase(SinkCase):
    """``HttpSink`` as the suite sees it."""

    connector = HttpSink
    is_exactly_once = True
    bad_payload = b"5"
    has_partial_outcomes = True
    values: ClassVar[ColumnReader] = JsonReader()
    bad_configs = (
        ({"http.api.url": "ftp://here"}, frozenset({"http.api.url"})),
        ({"http.api.url": "http://${key}.example.com/"}, frozenset({"http.api.url"})),
        ({"http.api.url": "http://here/${id}", "headers": "None"}, frozenset({"http.api.url", "headers"})),
        ({"auth.type": "BASIC", "connection.user": "me"}, frozenset({"connection.password"})),
        ({"behavior.on.null.values": "delete"}, frozenset({"behavior.on.null.values"})),
        ({"http.rate.limits": "3 a day", "retry.on.status.codes": "4x"},
         frozenset({"http.rate.limits", "retry.on.status.codes"})),
    )  # fmt: skip

    def payload(self, value: str) -> bytes:
        """A document with the text."""
        return json.dumps({"text": value}).encode()

    @asynccontextmanager
    async def target(self, folder: Path) -> AsyncIterator[Target]:
        """A server that has taken nothing."""
        async with self.busy_target(folder, ()) as target:
            yield target

    @asynccontextmanager
    async def busy_target(self, folder: Path, texts: Collection[str]) -> AsyncIterator[Target]:
        """One that says 503 to each of the texts once."""
        del folder
        hook, app = Hook(texts), web.Application()
        app.router.add_post("/", hook.take)
        async with TestServer(app) as server:
            hook.url = str(server.make_url("/"))
            yield hook


CASE = HttpSinkCase()
