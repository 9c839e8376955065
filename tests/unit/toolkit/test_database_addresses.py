"""Connections to databases are bounded as those of http are: by ``connector.allowed.addresses`` of the worker."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import asyncmy.errors
import pytest

from fetchers.catalog import find_plugin
from fetchers.sdk import Disconnected, Fatal, SourceConnector
from fetchers.sdk.reach import AllowedAddresses, parse_networks
from fetchers.sdk.testing.context import FakeContext
from fetchers.toolkit.databases import Login, addresses_of, connect_mysql, connect_postgresql, read_url
from service.sinks.jdbc.config import JdbcSinkConfig
from service.sinks.jdbc.sink import JdbcSink

CLOSED = AllowedAddresses(is_internal_free=False)
JDBC = {"mode": "bulk", "topic.prefix": "t."}
CDC = {"database.user": "u", "database.password": "p", "topic.prefix": "t", "database.hostname": "127.0.0.1"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "10.1.2.3", "169.254.169.254", "::1", "localhost", "::ffff:10.0.0.1"]
)
def test_internal_addresses_are_refused_however_they_are_written(host: str) -> None:
    """Judged is the number that would be connected to."""
    with pytest.raises(Fatal, match=r"connector\.allowed\.addresses"):
        addresses_of(host, 5432, CLOSED)


@pytest.mark.parametrize("host", ["/var/run/postgresql", "8.8.8.8,127.0.0.1", "a\0b"])
def test_what_drivers_would_take_for_something_else_than_one_host_is_no_host(host: str) -> None:
    """Libpq takes a path for a Unix socket, and a comma for the end of a host."""
    with pytest.raises((Fatal, Disconnected)):
        addresses_of(host, 5432, CLOSED)


def test_allowed_are_public_addresses_those_of_the_worker_and_all_where_none_are_named() -> None:
    """Free is free: no name is looked up before the driver does."""
    assert addresses_of("8.8.8.8", 5432, CLOSED) == ["8.8.8.8"]
    named = AllowedAddresses(is_internal_free=False, networks=parse_networks(["127.0.0.0/8"]))
    assert addresses_of("127.0.0.1", 5432, named) == ["127.0.0.1"]
    assert addresses_of("no such host", 5432, AllowedAddresses()) == []


def test_a_name_with_an_allowed_address_among_others_leads_to_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the driver is given the number: a name that leads elsewhere a moment later gains nothing."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 5432)) for address in ("10.0.0.1", "8.8.4.4")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert addresses_of("db.example.org", 5432, CLOSED) == ["8.8.4.4"]


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
async def test_the_next_address_is_tried_where_nothing_listens(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a client does that looks the name up itself: ``localhost`` is often ``::1`` first."""
    arrived = asyncio.Event()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    looked_up = socket.getaddrinfo

    def two(host: Any, *rest: Any, **more: Any) -> Any:
        if host != "db.example.org":
            return looked_up(host, *rest, **more)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.9.9.9", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    login = Login(read_url(f"jdbc:{dialect}://db.example.org:{port}/x?user=u"))
    named = AllowedAddresses(is_internal_free=False, networks=parse_networks(["127.0.0.0/8"]))
    async with server:
        with pytest.raises((adbc.Error, asyncmy.errors.Error)):  # noqa: PT012 - of whichever driver it is
            if dialect == "mysql":
                await connect_mysql(login, addresses=named, first_command="SELECT 1")
            else:
                await asyncio.to_thread(connect_postgresql, login, addresses=named, program="test")
    assert arrived.is_set()


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("JdbcSource", {**JDBC, "connection.url": "jdbc:postgresql://127.0.0.1:1/x?user=u"}),
        ("JdbcSource", {**JDBC, "connection.url": "jdbc:mysql://localhost:1/x?user=u"}),
        ("PostgresCdcSource", {**CDC, "database.dbname": "x"}),
        ("MySqlCdcSource", {**CDC, "database.server.id": "7"}),
    ],
)
async def test_no_source_connects_to_what_is_refused(name: str, properties: dict[str, str]) -> None:
    """Neither when it is asked whether it could, nor when it fetches."""

    def made() -> SourceConnector[Any]:
        plugin = find_plugin(name)
        assert plugin is not None
        kind = plugin.load()
        config = kind.config_class.parse(properties).config
        assert config is not None
        connector: SourceConnector[Any] = kind(config)
        connector.allowed_addresses = CLOSED
        return connector

    (finding,) = await made().check(FakeContext())
    assert "connector.allowed.addresses" in finding.message
    with pytest.raises(Fatal, match=r"connector\.allowed\.addresses"):
        async for _ in made().fetch(FakeContext()):
            pass


@pytest.mark.parametrize("dialect", ["postgresql", "mariadb"])
def test_the_sink_does_not_either(dialect: str) -> None:
    """The same keys, the same bounds."""
    config = JdbcSinkConfig.parse({"connection.url": f"jdbc:{dialect}://127.0.0.1:1/x?user=u"}).config
    assert config is not None
    sink = JdbcSink(config)
    sink.allowed_addresses = CLOSED
    target = sink.made_target()
    try:
        with pytest.raises(Fatal, match=r"connector\.allowed\.addresses"):
            target.connect()
    finally:
        target.close()
