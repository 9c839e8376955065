"""``HttpSource`` and answers that are none: web pages, bodies that were cut, no content."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.sdk import Retriable
from fetchers.sdk.testing import collect
from fetchers.toolkit.http import SharedHttp
from tests.apis.http.paged import ids, resume, source
from tests.contracts.loopback import answering, serve

UNFRAMED = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n"
BODIES = {"json": b'[{"id": "1"}]', "ndjson": b'{"id": "1"}\n', "csv": b"id\n1\n"}


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
async def test_a_web_page_is_no_answer(http: SharedHttp, form: str) -> None:
    """What a login wall says becomes neither a column nor a dead letter; it is tried again."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="<!DOCTYPE html>\n<p>log in</p>\n", content_type="text/html")

    async with serve(answer) as url:
        made = source(url, http_format=form)
        with pytest.raises(Retriable):
            await collect(made, resume(made, http, []))


async def test_json_under_a_wrong_name_is_json(http: SharedHttp) -> None:
    """Some sources call whatever they give a web page; that it is JSON is proof enough."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=BODIES["json"], content_type="text/html")

    async with serve(answer) as url:
        made = source(url)
        assert ids(await collect(made, resume(made, http, []))) == ["1"]


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
async def test_a_body_that_nothing_frames_ends_with_a_line(http: SharedHttp, form: str) -> None:
    """Where only the end of the connection ends it, half a last line is a cut and no record."""
    body = BODIES[form]
    async with answering(UNFRAMED + body) as url:
        made = source(url, http_format=form)
        assert ids(await collect(made, resume(made, http, []))) == ["1"]
    async with answering(UNFRAMED + body[:-1]) as url:
        made = source(url, http_format=form)
        with pytest.raises(Retriable):
            await collect(made, resume(made, http, []))


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
async def test_no_content_means_no_records(http: SharedHttp, form: str) -> None:
    """204 is how many sources say that there is nothing new."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=204)

    async with serve(answer) as url:
        made = source(url, http_format=form, http_records_path="items" if form == "json" else "")
        assert await collect(made, resume(made, http, [])) == []
