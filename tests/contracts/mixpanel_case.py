"""The contract suite's source for ``MixpanelSource``: an export of some days whose last one gets late events."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import date, timedelta
from pathlib import Path

from aiohttp import web

from fetchers.mixpanel.fetcher import MixpanelSource
from fetchers.sdk.testing import BadConfig, FetcherCase, ScriptedSource
from tests.contracts.loopback import serve

DAYS = tuple(date(2023, 12, 28) + timedelta(days=number) for number in range(3))
"""Over before the suite's clock begins (2024-01-01); no more than may be asked for in a second."""
EVENTS = (1_200, 150, 150)
"""By day. The first is larger than all buffers on its way, so that a full queue is felt."""
SEND_BYTES = 64 << 10
TEXT = "x" * 10_000
SECRET = "b7f0-mixpanel-account-secret-5e19"


def event(day: date, number: int) -> bytes:
    """One line of about 10 kB, so that a day is several pages."""
    told = {
        "time": 1703635200 + number,
        "distinct_id": f"ü{number}",
        "$insert_id": f"{day}-{number}",
        "text": TEXT,
    }
    return json.dumps({"event": "e", "properties": told}, ensure_ascii=False).encode()


class DailyExport(ScriptedSource):
    """A server with a few full days; ``add`` brings late events of the last one."""

    def __init__(self) -> None:
        self.url = ""
        self._days = {
            str(day): [event(day, number) for number in range(count)] for day, count in zip(DAYS, EVENTS, strict=True)
        }
        self._given = 0
        self._is_hanging = self._is_refusing = False
        self._was_asked = asyncio.Event()
        self._limit_seconds: int | None = None

    @property
    def properties(self) -> Mapping[str, str]:
        """A service account."""
        return {
            "topic": "events",
            "from_date": str(DAYS[0]),
            "mixpanel.project.id": "2195193",
            "mixpanel.service.account.username": "reader",
            "mixpanel.service.account.secret": SECRET,
            "mixpanel.base.url": self.url,
        }

    @property
    def expected(self) -> Sequence[bytes]:
        """All days, one after the other."""
        return [line for lines in self._days.values() for line in lines]

    @property
    def records_given(self) -> int | None:
        """Lines written to the socket, and so perhaps still on their way."""
        return self._given

    async def add(self) -> None:
        """Late events of the last day."""
        day = DAYS[-1]
        begin = len(self._days[str(day)])
        self._days[str(day)] += [event(day, number) for number in range(begin, begin + 3)]

    async def hang(self) -> None:
        """Take requests and say nothing."""
        self._is_hanging = True

    async def wait_until_asked(self) -> None:
        """Wait for a request that hangs."""
        await self._was_asked.wait()

    async def refuse(self) -> None:
        """Know the credentials no longer; what is said quotes them, as careless servers do."""
        self._is_refusing = True

    async def limit(self, seconds: int) -> None:
        """For the next request."""
        self._limit_seconds = seconds

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        if self._is_hanging:
            self._was_asked.set()
            await asyncio.Event().wait()
        if self._is_refusing:
            return web.Response(status=401, text=f"unknown: {request.headers['Authorization']} {SECRET}")
        if self._limit_seconds is not None:
            seconds, self._limit_seconds = self._limit_seconds, None
            return web.Response(status=429, headers={"Retry-After": str(seconds)})
        response = web.StreamResponse()
        await response.prepare(request)
        _keep_little(request)
        with suppress(ConnectionError):  # a fetcher that stops does not read to the end
            await self._write(response, self._days.get(request.query["from_date"], []))
        return response

    async def _write(self, response: web.StreamResponse, lines: Sequence[bytes]) -> None:
        for start in range(0, len(lines), 10):
            part = lines[start : start + 10]
            await response.write(b"".join(line + b"\n" for line in part))
            self._given += len(part)
        await response.write_eof()


def _keep_little(request: web.Request) -> None:
    """Little of an answer waits in this machine's kernel, so that soon it is the fetcher that must take it."""
    assert request.transport is not None
    connection: socket.socket = request.transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)


class MixpanelCase(FetcherCase):
    """``MixpanelSource`` as the suite sees it."""

    connector = MixpanelSource
    secrets = (SECRET,)
    can_limit = True
    records_ahead_max = 1_100
    bad_configs = (
        BadConfig({"topic": None, "from_date": "01.02.2016"}, frozenset({"topic", "from_date"})),
        BadConfig({"topic": "one,two", "mixpanel.timezone": "Mars/Base"}, frozenset({"topic", "mixpanel.timezone"})),
        BadConfig(
            {"mixpanel.project.id": None, "mixpanel.region": "moon"},
            frozenset({"mixpanel.project.id", "mixpanel.region"}),
        ),
        BadConfig(
            {"mixpanel.service.account.username": None, "mixpanel.service.account.secret": None, "topic": ""},
            frozenset({"api_key", "api_secret", "topic"}),
        ),
    )

    def dedupe_key(self, payload: bytes) -> Hashable | None:
        """Mixpanel's own key."""
        told = json.loads(payload)
        properties = told["properties"]
        return told["event"], properties["distinct_id"], properties["time"], properties["$insert_id"]

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[ScriptedSource]:
        """A server on a free port."""
        del folder
        export = DailyExport()
        async with serve(export.answer, path="/api/2.0/export") as export.url:
            yield export


CASE = MixpanelCase()
