"""``IcebergSink`` before REST catalogues that do not let it in, or are none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from service.sinks.contract import Fatal, StartAnew
from tests.contracts.loopback import serve
from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder, batch_of, numbers

SECRET = "s3cr3t-0815-4711"
MISSING = 404
Form = Callable[[int], web.Response]


def error(status: int) -> web.Response:
    """As the catalogue's specification has it."""
    told = {"message": "no", "type": "SomeException", "code": status}
    return web.json_response({"error": told}, status=status)


def page(status: int) -> web.Response:
    """As a proxy, or another server, has it."""
    return web.Response(status=status, text="<html>hello</html>", content_type="text/html")


@asynccontextmanager
async def answering(answers: Mapping[str, web.Response]) -> AsyncIterator[str]:
    """A catalogue that says this to requests whose path ends so, and to others that it is well."""

    async def answer(request: web.Request) -> web.Response:
        for ending, told in answers.items():
            if request.path.endswith(ending):
                return web.Response(status=told.status, body=told.body, content_type=told.content_type)
        if request.path.endswith("/tokens"):
            return web.json_response({"access_token": "token", "token_type": "bearer"})
        return web.json_response({"defaults": {}, "overrides": {}})

    async with serve(answer) as url:
        yield url


async def open_and_put(folder: Path, url: str, **more: str) -> None:
    """What a task does first."""
    own: dict[str, Any] = {"iceberg__catalog__type": "rest", "iceberg__catalog__uri": url, **more}
    async with LakeFolder(folder).running(**own) as sink:
        await sink.open({HERE: None})
        await sink.put(batch_of(numbers(range(3))))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "does not know this login: correct iceberg.catalog.credential"),
        (403, "permission is denied: let the catalogue's user"),
        (404, "iceberg.catalog.uri leads to no REST catalogue"),
        (405, "iceberg.catalog.uri leads to no REST catalogue"),
        (501, "the catalogue cannot do what is asked of it"),
    ],
)
@pytest.mark.parametrize("form", [error, page])
async def test_a_catalogue_that_lets_nobody_in(tmp_path: Path, status: int, words: str, form: Form) -> None:
    """A person has to mend it; the task fails, and does not begin anew for ever."""
    async with answering({"/v1/config": form(status)}) as url:
        with pytest.raises(Fatal, match=words):
            await open_and_put(tmp_path, url)
    if status == MISSING:
        words = "set iceberg.tables.auto-create-enabled=true"
    async with answering({"/tables/orders": form(status)}) as url:
        with pytest.raises(Fatal, match=words):
            await open_and_put(tmp_path, url, iceberg__tables__auto___create___enabled="false")


@pytest.mark.parametrize("status", [401, 400])
async def test_a_credential_that_the_token_server_refuses(tmp_path: Path, status: int) -> None:
    """The same, and its text is not shown."""
    refused = web.json_response({"error": "invalid_client", "error_description": "unknown"}, status=status)
    own = {"iceberg__catalog__credential": f"me:{SECRET}"}
    async with answering({"/tokens": refused}) as url:
        own["iceberg__catalog__oauth2___server___uri"] = f"{url}/tokens"
        with pytest.raises(Fatal, match=r"correct iceberg\.catalog\.credential") as told:
            await open_and_put(tmp_path, url, **own)
    assert SECRET not in str(told.value)


async def test_an_address_of_something_else(tmp_path: Path) -> None:
    """It answers well, and not as a catalogue."""
    async with answering({"/v1/config": page(200)}) as url:
        with pytest.raises(Fatal, match="is no REST catalogue"):
            await open_and_put(tmp_path, url)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("form", [error, page])
async def test_a_catalogue_that_is_in_trouble(tmp_path: Path, status: int, form: Form) -> None:
    """It may pass: the task begins anew."""
    async with answering({"/v1/config": form(status)}) as url:
        with pytest.raises(StartAnew, match="the catalogue fails"):
            await open_and_put(tmp_path, url)
