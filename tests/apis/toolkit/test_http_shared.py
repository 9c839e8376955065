"""The http session of a worker: what looks up its names, and how it is closed."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, HttpLimits, Retriable
from fetchers.sdk.testing import FakeContext
from fetchers.toolkit.http import SharedHttp, SharedHttpClosedError
from fetchers.toolkit.http.shared import CLOSE_SECONDS_MAX
from tests.contracts.loopback import serve
from tests.passing_time import let_pass


class SilentResolver(AbstractResolver):
    """Looks up names for ever."""

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        await asyncio.Event().wait()
        return []

    @override
    async def close(self) -> None:
        pass


async def test_a_name_that_is_looked_up_for_ever_is_given_up() -> None:
    """A name server that says nothing costs the connect time-out."""
    async with SharedHttp(resolver=SilentResolver()) as http:
        context = FakeContext(http=http)
        with pytest.raises(Retriable, match="no connection in time"):
            await context.http.request("GET", "http://somewhere.test/", limits=HttpLimits(connect_seconds=0.1))


async def test_a_process_that_stood_still_while_it_closes_hides_no_error() -> None:
    """What the block has raised is raised, not that the last words of a connection took longer than their limit."""
    loop = asyncio.get_running_loop()

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(text="x")

    async with serve(handler) as url:
        with pytest.raises(Fatal, match="a person must act"):  # noqa: PT012 - the error must leave the client's block
            async with shared_http() as http:
                await FakeContext(http=http).http.request("GET", url)
                loop.call_soon(let_pass, 2 * CLOSE_SECONDS_MAX)
                raise Fatal("a person must act")
        async with shared_http() as http:
            await FakeContext(http=http).http.request("GET", url)
            loop.call_soon(let_pass, 2 * CLOSE_SECONDS_MAX)


async def test_is_used_inside_its_block_only() -> None:
    """Outside ``async with`` there is no session, and that is said."""
    context = FakeContext(http=SharedHttp())
    with pytest.raises(SharedHttpClosedError):
        await context.http.request("GET", "http://127.0.0.1:9/")
