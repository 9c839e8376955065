"""Each key of ``HttpSource`` reaches what it is for: seen at a real server, by values that are all different."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from shutil import which
from typing import Unpack

import pytest
from aiohttp import web
from typing_extensions import override

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, HttpLimits, Page
from fetchers.sdk.asker import Asker
from fetchers.sdk.http import RequestOptions
from fetchers.sdk.testing import collect
from fetchers.toolkit.http import SharedHttp
from fetchers.toolkit.http.access import TaskHttp
from fetchers.toolkit.http.answer import HttpAnswer
from tests.apis.http.paged import ids, resume, source
from tests.apis.rest.certificates import Authority
from tests.contracts.loopback import serve

KEY = "k3y-0815"
BEARER = {"http.auth.type": "bearer", "http.auth.token": "t0k3n-4711"}


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


class Listening(SharedHttp):
    """A real client that keeps what was said about each request."""

    def __init__(self) -> None:
        super().__init__()
        self.options: list[RequestOptions] = []

    @override
    def for_task(self, asker: Asker) -> TaskHttp:
        kept = self.options

        class ListeningTask(TaskHttp):
            @override
            async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpAnswer:
                kept.append(options)
                return await super().request(method, url, **options)

        return ListeningTask(self, asker)


class Way:
    """Two pages and an empty one, by names that are nobody's defaults."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        """The next page, whatever is asked for."""
        number = len(self.asked)
        self.asked.append(dict(request.query))
        is_first = number == 0
        onward = {"after": "c1" if is_first else None, "url": "/list?to=1" if is_first else None}
        return web.json_response({"items": [{"id": number}] if number < 2 else [], "onward": onward})


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ({"type": "page_number", "page.parameter": "p", "page.first": "7"}, [{"p": "7"}, {"p": "8"}, {"p": "9"}]),
        (
            {"type": "offset", "offset.parameter": "from", "limit.parameter": "size", "limit": "5"},
            [{"from": "0", "size": "5"}, {"from": "1", "size": "5"}, {"from": "2", "size": "5"}],
        ),
        ({"type": "cursor", "cursor.path": "onward.after", "cursor.parameter": "c"}, [{}, {"c": "c1"}]),
        ({"type": "next_url", "next.path": "onward.url"}, [{}, {"to": "1"}]),
    ],
)
async def test_keys_of_pagination(http: SharedHttp, keys: Mapping[str, str], asked: list[dict[str, str]]) -> None:
    """Each name, and the first number, stands where its key says, and nowhere else in the query."""
    way = Way()
    async with serve(way.answer) as url:
        made = source(
            f"{url}/list",
            http_records_path="items",
            **{f"http.pagination.{name}": text for name, text in keys.items()},
        )
        assert ids(await collect(made, resume(made, http, []))) == [0, 1]
    assert way.asked == asked


async def test_pages_max_ends_a_list_without_end(http: SharedHttp) -> None:
    """``http.pagination.pages.max`` pages are handed over; one more fails the task."""
    asked = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response([{"id": asked}])

    pages: list[Page] = []
    async with serve(answer) as url:
        made = source(url, **{"http.pagination.type": "page_number", "http.pagination.pages.max": "3"})
        with pytest.raises(Fatal, match="more than 3 pages"):
            await collect(made, resume(made, http, []), on_page=pages.append)
    assert ids(pages) == [1, 2, 3]


@pytest.mark.parametrize("way", ["link", "next_url"])
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_further_hosts(http: SharedHttp, way: str, *, is_allowed: bool) -> None:
    """A host of ``http.pagination.hosts`` is followed to, with the credentials; any other is asked for nothing."""
    seen: list[str | None] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({"items": [{"id": 1}]})

    async with serve(elsewhere) as other:

        async def answer(_request: web.Request) -> web.Response:
            headers = {"Link": f'<{other}/more>; rel="next"'}
            return web.json_response({"items": [{"id": 0}], "next": f"{other}/more"}, headers=headers)

        async with serve(answer) as url:
            hosts = f"elsewhere.test,{other.removeprefix('http://')}" if is_allowed else "elsewhere.test"
            keys = {"http.pagination.type": way, "http.pagination.hosts": hosts}
            made = source(url, http_records_path="items", **keys, **BEARER)
            if is_allowed:
                assert ids(await collect(made, resume(made, http, []))) == [0, 1]
            else:
                with pytest.raises(Fatal, match="another host"):
                    await collect(made, resume(made, http, []))
    assert seen == (["Bearer t0k3n-4711"] if is_allowed else [])


@pytest.mark.parametrize(
    ("keys", "headers", "query"),
    [
        ({"type": "none", "token": "t", "key": KEY}, {}, {}),
        (
            {"type": "basic", "user": "u", "password": "p"},
            {"Authorization": "Basic " + base64.b64encode(b"u:p").decode()},
            {},
        ),
        (
            {"type": "basic", "key": KEY},
            {"Authorization": "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()},
            {},
        ),
        ({"type": "bearer", "token": "t", "key": KEY}, {"Authorization": "Bearer t"}, {}),
        ({"type": "api_key", "key": KEY, "token": "t"}, {"X-API-Key": KEY}, {}),
        ({"type": "api_key", "key": KEY, "key.header": "X-Other"}, {"X-Other": KEY}, {}),
        ({"type": "api_key", "key": KEY, "key.header": "X-Other", "key.query": "k"}, {}, {"k": KEY}),
    ],
)
async def test_keys_of_authentication(
    http: SharedHttp, keys: Mapping[str, str], headers: Mapping[str, str], query: Mapping[str, str]
) -> None:
    """The credential of the type stands where its keys say, and in no other header or field; for oauth2 see there."""
    seen: list[tuple[dict[str, str], dict[str, str]]] = []
    usual = {"Host", "User-Agent", "Accept", "Accept-Encoding"}

    async def answer(request: web.Request) -> web.Response:
        further = {name: text for name, text in request.headers.items() if name not in usual}
        seen.append((further, dict(request.query)))
        return web.json_response([])

    async with serve(answer) as url:
        made = source(url, **{f"http.auth.{name}": text for name, text in keys.items()})
        await collect(made, resume(made, http, []))
    assert seen == [(headers, query)]


async def test_keys_of_limits() -> None:
    """Each time-out, in seconds, and the size of an answer are said about the request under their own name."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response([])

    keys = {
        "http.timeout.connect.ms": "11500",
        "http.timeout.read.ms": "12500",
        "http.timeout.total.ms": "13500",
        "http.response.bytes.max": "4096",
    }
    async with Listening() as http, serve(answer) as url:
        made = source(url, **keys)
        await collect(made, resume(made, http, []))
    assert [options["limits"] for options in http.options] == [
        HttpLimits(connect_seconds=11.5, read_seconds=12.5, total_seconds=13.5, response_bytes_max=4096)
    ]


@pytest.mark.skipif(which("openssl") is None, reason="makes its certificates with the openssl program")
async def test_keys_of_tls(http: SharedHttp, tmp_path: Path) -> None:
    """The source and its token server are trusted, and shown our certificate, exactly as ``http.tls`` says."""
    authority = await asyncio.to_thread(Authority, tmp_path)
    server = await asyncio.to_thread(authority.sign, "server")
    own = await asyncio.to_thread(authority.sign, "client")
    seen: list[tuple[str, bool]] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        seen.append((request.path, bool(request.transport.get_extra_info("peercert"))))
        return web.json_response({"access_token": "t", "items": []})

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.load_cert_chain(server)
    context.verify_mode = ssl.CERT_OPTIONAL
    trusting = {"ca.file": str(authority.certificate)}
    known = {"certificate.file": str(own.with_suffix(".crt")), "key.file": str(own.with_suffix(".key"))}
    async with serve(answer, tls=context) as url:

        async def ask(tls: Mapping[str, str]) -> list[tuple[str, bool]]:
            seen.clear()
            client = {"type": "oauth2", "token.url": f"{url}/token", "client.id": "me", "client.secret": "s3cr3t"}
            keys = {f"http.auth.{name}": text for name, text in client.items()}
            keys |= {f"http.tls.{name}": text for name, text in tls.items()}
            made = source(f"{url}/list", http_records_path="items", **keys)
            await collect(made, resume(made, http, []))
            return [*seen]

        for stranger in ({}, {"verify": "true"}, known):
            with pytest.raises(Fatal, match="not trusted"):
                await ask(stranger)
            assert seen == []
        assert await ask(trusting) == await ask({"verify": "false"}) == [("/token", False), ("/list", False)]
        assert await ask({**trusting, **known}) == [("/token", True), ("/list", True)]
