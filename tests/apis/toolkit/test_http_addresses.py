"""What the http client connects to: bounded by the worker, judged by the address that a name stands for."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override
from yarl import URL

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, Retriable
from fetchers.sdk.reach import AddressRefusedError, AllowedAddresses, is_internal, parse_networks
from fetchers.sdk.testing import FakeContext
from fetchers.toolkit.http import SharedHttp
from tests.contracts.loopback import serve

CLOSED = AllowedAddresses(is_internal_free=False)
ONE = AllowedAddresses(is_internal_free=False, networks=parse_networks(["127.0.0.1"]))


class Names(AbstractResolver):
    """Knows a few names; each gives its next address with each question, and stays with the last."""

    def __init__(self, addresses: Mapping[str, list[str]]) -> None:
        self._left = {name: list(found) for name, found in addresses.items()}

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = self._left[host]
        address = found.pop(0) if len(found) > 1 else found[0]
        return [ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)]

    @override
    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "[::1]", "[::ffff:169.254.169.254]", "[fd00::1]", "0.0.0.0"]
)
async def test_an_internal_address_is_not_even_asked(host: str) -> None:
    """However it is written; a source's config may name it only where the worker does."""
    async with shared_http(addresses=CLOSED) as http:
        with pytest.raises(Fatal, match=r"connector\.allowed\.addresses"):
            await FakeContext(http=http).http.request("GET", f"http://{host}:9/latest/meta-data")


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1"])
async def test_other_ways_to_write_an_address_are_names(host: str) -> None:
    """They are looked up, by the system, and judged by what comes of it."""
    async with shared_http(addresses=CLOSED) as http:
        with pytest.raises((Fatal, Retriable), match=r"connector\.allowed\.addresses|cannot connect"):
            await FakeContext(http=http).http.request("GET", f"http://{host}:9/")


async def test_a_name_is_judged_by_what_it_stands_for() -> None:
    """At the moment of the connection: a name that changes its address gains nothing."""
    async with serve(_well) as url, SharedHttp(resolver=Names({"a.test": ["127.0.0.1"]}), addresses=ONE) as http:
        port = URL(url).port
        context = FakeContext(http=http)
        assert (await context.http.request("GET", f"http://a.test:{port}/")).body == b"well"
    async with SharedHttp(resolver=Names({"a.test": ["127.0.0.2"]}), addresses=ONE) as http:
        with pytest.raises(Fatal, match=r"a\.test is an internal address"):
            await FakeContext(http=http).http.request("GET", "http://a.test:9/")


@pytest.mark.parametrize("target", ["http://127.0.0.2:9/", "http://b.test:9/", "http://[::1]:9/"])
async def test_a_redirect_leads_to_nothing_internal(target: str) -> None:
    """By address or by name, where the worker does not name it."""

    async def elsewhere(_request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": target})

    async with serve(elsewhere) as url, SharedHttp(resolver=Names({"b.test": ["127.0.0.2"]}), addresses=ONE) as http:
        with pytest.raises(Fatal, match=r"connector\.allowed\.addresses"):
            await FakeContext(http=http).http.request("GET", url)


async def test_what_a_public_server_names_may_not_be_internal() -> None:
    """Also where every address is free to configs: whoever runs that server does not write them."""
    async with SharedHttp(resolver=Names({"b.test": ["127.0.0.1"], "c.test": ["8.8.8.8"]})) as http:
        assert http.is_internal(URL("http://127.0.0.1/"))
        assert not http.is_internal(URL("http://8.8.8.8/"))
        with pytest.raises(AddressRefusedError):
            http.session(URL("http://169.254.169.254/"), is_strangers=True)
        http.session(URL("http://169.254.169.254/"), is_strangers=False)
        strict = http.session(URL("http://b.test/"), is_strangers=True)
        with pytest.raises(AddressRefusedError):
            await strict.get("http://b.test:9/")


async def test_servers_of_ones_own_network_may_redirect_within_it() -> None:
    """As in a test on one machine; their names were looked up."""

    async def elsewhere(_request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": f"http://b.test:{port}/"})

    names = Names({"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]})
    async with serve(_well) as target, serve(elsewhere) as url, SharedHttp(resolver=names) as http:
        port = URL(target).port
        answer = await FakeContext(http=http).http.request("GET", f"http://a.test:{URL(url).port}/")
        assert answer.body == b"well"


async def _well(_request: web.Request) -> web.Response:
    return web.Response(text="well")


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses_are_open_to_all(address: str) -> None:
    """A bound is for what is inside."""
    assert CLOSED.permits(address)
    assert not is_internal(address)
