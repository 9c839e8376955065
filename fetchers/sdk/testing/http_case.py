"""A scripted web server for the contract suite: a case for fetchers that read JSON over HTTP needs two methods more."""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from fetchers.sdk.testing.case import BadConfig, FetcherCase, ScriptedSource

ADDED_RECORDS = 5


class HttpCase(FetcherCase):
    """The case of a fetcher whose source is a web server; the suite starts one on the loopback.

    A subclass says what a record is (``record``) and how requests are answered (``answer``); hanging, refusing (401),
    limiting (429), adding records and counting what was given are done here.
    """

    can_limit = True

    properties: Mapping[str, str]
    """A config, complete and valid but for ``url_key``, which is set to the server's address."""
    url_key: str = "url"
    """Key of the config that holds the address."""
    records: int = 45
    """How many records the source has at first; enough for several answers."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Without ``bad_configs`` of its own a case has one: no topic, and an address that is none.

        Without ``secrets`` it has the values of the config's secret keys.
        """
        super().__init_subclass__(**kwargs)
        given = getattr(cls, "properties", None)
        if not cls.secrets and hasattr(cls, "connector") and isinstance(given, Mapping):
            keys = cls.connector.config_class.config_keys()
            cls.secrets = tuple(given[key.name] for key in keys if key.kind == "PASSWORD" and key.name in given)
        if not cls.bad_configs:
            cls.bad_configs = (BadConfig({cls.url_key: "nowhere", "topic": None}, frozenset({cls.url_key, "topic"})),)

    @abstractmethod
    def record(self, number: int) -> Mapping[str, Any]:
        """The record with this number (from 0), in the order in which a fetcher delivers them.

        Let several share a time stamp if the real source may do so.
        """

    @abstractmethod
    def answer(self, request: web.Request, records: Sequence[Mapping[str, Any]]) -> Any:
        """Answer a request while the source has these records: a JSON value, or a ``web.Response``.

        Who does not bring the right credentials gets ``web.Response(status=401)``.
        """

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[ScriptedSource]:
        """Start the server, on a free port; it ends with the block."""
        del folder
        source = _HttpSource(self)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", source.respond)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            source.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
            yield source
        finally:
            await runner.cleanup()


class _HttpSource(ScriptedSource):
    """The server of one test."""

    def __init__(self, case: HttpCase) -> None:
        self.case = case
        self.url = ""
        self._records = [case.record(number) for number in range(case.records)]
        self._given = 0
        self._is_hanging = self._is_refusing = False
        self._limit_seconds: int | None = None
        self._asked = asyncio.Event()

    @property
    def properties(self) -> Mapping[str, str]:
        return {**self.case.properties, self.case.url_key: self.url}

    @property
    def expected(self) -> Sequence[bytes]:
        return [_json(record) for record in self._records]

    @property
    def records_given(self) -> int:
        return self._given

    async def add(self) -> None:
        count = len(self._records)
        self._records += [self.case.record(number) for number in range(count, count + ADDED_RECORDS)]

    async def hang(self) -> None:
        self._is_hanging = True

    async def wait_until_asked(self) -> None:
        await self._asked.wait()

    async def refuse(self) -> None:
        self._is_refusing = True

    async def limit(self, seconds: int) -> None:
        self._limit_seconds = seconds

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """One answer, or none while the source hangs."""
        self._asked.set()
        if self._is_hanging:
            await asyncio.Event().wait()
        if self._is_refusing:
            return web.Response(status=401)
        if self._limit_seconds is not None:
            seconds, self._limit_seconds = self._limit_seconds, None
            return web.Response(status=429, headers={"Retry-After": str(seconds)})
        answer = self.case.answer(request, tuple(self._records))
        if isinstance(answer, web.StreamResponse):
            return answer
        body = _json(answer)
        self._given += sum(body.count(_json(record)) for record in self._records)
        return web.Response(body=body, content_type="application/json")


def _json(value: object) -> bytes:
    """Every value by itself and inside of another one reads alike, so that records can be told in an answer."""
    return json.dumps(value, ensure_ascii=False).encode()
