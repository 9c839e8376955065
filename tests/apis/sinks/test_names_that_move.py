"""Names that stand for another address when they are asked for again (DNS rebinding): no client follows them.

The name is first looked up at an address that the worker allows, 127.0.0.2, and from then on at one that it does not,
127.0.0.1. Servers listen at both, on one port.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncmy.errors
import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, SystemClock
from fetchers.sdk.reach import AllowedAddresses, AllowedPaths, parse_networks
from fetchers.toolkit.databases import Login, connect_mysql, read_url
from metrics.events import discard
from service.sinks.contract import SinkContext, StartAnew
from service.sinks.iceberg.catalog import Lake
from service.sinks.s3.sink import S3Sink, S3SinkConfig
from tests.apis.rest.certificates import Authority
from tests.unit.sinks.iceberg.iceberg_runs import HERE, LakeFolder

NAME = "moves.test"
ALLOWED, INTERNAL = "127.0.0.2", "127.0.0.1"
BOUNDS = AllowedAddresses(is_internal_free=False, networks=parse_networks([ALLOWED]))
_HANDSHAKE = (
    b"\x0a8.0.0\x00" + bytes(4) + b"12345678\x00" + b"\x00\xaa\x2d\x02\x00\x0a\x00\x15" + bytes(10)
    + b"123456789012\x00mysql_native_password\x00"
)  # fmt: skip
GREETING = len(_HANDSHAKE).to_bytes(3, "little") + b"\x00" + _HANDSHAKE
"""``Protocol::HandshakeV10`` of MySQL, with ``CLIENT_SSL`` and ``CLIENT_PLUGIN_AUTH`` among what the server can."""
SSL_REQUEST_BYTES = 36
WAIT_SECONDS_MAX = 60.0
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Servers:
    """Both servers, and who has come to them."""

    port: int
    came: dict[str, int] = field(default_factory=lambda: {ALLOWED: 0, INTERNAL: 0})


@asynccontextmanager
async def servers(talk: Talk) -> AsyncIterator[Servers]:
    """At both addresses, on a port that is free at both."""
    async with AsyncExitStack() as stack:
        found = Servers(0)

        async def listen(address: str, port: int) -> int:
            async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                found.came[address] += 1
                with suppress(OSError, asyncio.IncompleteReadError):
                    await talk(reader, writer)
                writer.close()

            server = await asyncio.start_server(came, address, port)
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            return int(server.sockets[0].getsockname()[1])

        while not found.port:
            port = await listen(ALLOWED, 0)
            with suppress(OSError):
                found.port = await listen(INTERNAL, port)
        yield found


@pytest.fixture(params=[1, 2, 3])
def looked_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were told when the name was looked up; so many times the allowed one."""
    told: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in {NAME, NAME.encode()}:
            return real(host, port, *args, **kwargs)
        told.append(ALLOWED if len(told) < request.param else INTERNAL)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (told[-1], port or 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    for proxy in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
        monkeypatch.delenv(proxy.upper(), raising=False)
    return told


def saying(document: object, status: str = "200 OK") -> Talk:
    """Answers each request with this, and hangs up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        await reader.readexactly(int(lengths[0]) if lengths else 0)
        body = json.dumps(document).encode()
        writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    return talk


@pytest.mark.parametrize("signs", ["false", "true"])
async def test_a_rest_catalogue(tmp_path: Path, looked_up: list[str], signs: str) -> None:
    """It is asked at the allowed address, or not at all; with requests that are signed for Amazon's gateway too."""
    keys = {"region": "r", "access-key-id": "a", "secret-access-key": "b"}
    rest: dict[str, Any] = {f"iceberg__catalog__client.{key}": word for key, word in keys.items()}
    rest |= {"iceberg__catalog__rest.sigv4-enabled": signs, "iceberg__catalog__type": "rest"}
    async with servers(saying({"defaults": {}, "overrides": {}})) as there:
        rest["iceberg__catalog__uri"] = f"http://{NAME}:{there.port}"
        with suppress(Fatal, StartAnew):
            async with LakeFolder(tmp_path).running(addresses=BOUNDS, **rest) as sink:
                await sink.open({HERE: None})
    assert looked_up
    assert there.came[INTERNAL] == 0


async def test_a_rest_catalogue_that_moves_to_another_allowed_address(tmp_path: Path, looked_up: list[str]) -> None:
    """A name may do so; each connection goes where the name leads by then."""
    both = AllowedAddresses(is_internal_free=False, networks=parse_networks([ALLOWED, INTERNAL]))
    async with servers(saying({"defaults": {}, "overrides": {}})) as there:
        rest: dict[str, Any] = {"iceberg__catalog__type": "rest"}
        rest["iceberg__catalog__uri"] = f"http://{NAME}:{there.port}"
        with suppress(Fatal):  # it has no tables to tell of
            async with LakeFolder(tmp_path).running(addresses=both, **rest) as sink:
                await sink.open({HERE: None})
                await sink.open({HERE: None})
    assert INTERNAL not in looked_up or there.came[INTERNAL]


@pytest.mark.parametrize(
    ("key", "told"), [("auth", {"type": "custom", "impl": "os.getcwd"}), ("ssl", {"cabundle": "/etc/passwd"})]
)
async def test_a_catalogue_that_names_code_or_files_of_the_worker(tmp_path: Path, key: str, told: object) -> None:
    """Its server says what a config may not: it is refused before anything is loaded."""
    async with servers(saying({"defaults": {}, "overrides": {key: told}})) as there:
        rest: dict[str, Any] = {"iceberg__catalog__type": "rest"}
        rest["iceberg__catalog__uri"] = f"http://{ALLOWED}:{there.port}"
        with pytest.raises(Fatal, match=f"property {key} is set"):
            async with LakeFolder(tmp_path).running(**rest):
                pass


async def test_a_database_of_a_catalogue(tmp_path: Path, looked_up: list[str]) -> None:
    """Its driver gets the number, and the name for its certificate alone."""

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with servers(silent) as there:
        sql: dict[str, Any] = {"iceberg__catalog__uri": f"postgresql://me:word@{NAME}:{there.port}/lake"}
        with pytest.raises((Fatal, StartAnew)):
            async with LakeFolder(tmp_path).running(addresses=BOUNDS, **sql):
                pass
    assert bool(there.came[ALLOWED]) is (looked_up.count(ALLOWED) > 1)  # first it is judged, then dialled
    assert there.came[INTERNAL] == 0


async def test_glue(tmp_path: Path, looked_up: list[str]) -> None:
    """Amazon's client, whose endpoint a config names."""
    async with servers(saying({"__type": "EntityNotFoundException"}, "400 Bad Request")) as there:
        glue: dict[str, Any] = {
            "iceberg__catalog__type": "glue",
            "iceberg__catalog__glue.endpoint": f"http://{NAME}:{there.port}",
            "iceberg__catalog__client.region": "r",
            "iceberg__catalog__client.access-key-id": "a",
            "iceberg__catalog__client.secret-access-key": "b",
            "iceberg__catalog__warehouse": f"file://{tmp_path}/lake",
        }
        config = LakeFolder(tmp_path).config(**glue)

        def load() -> None:
            lake = Lake(config, AllowedPaths(), BOUNDS)
            client: Any = lake.catalog.glue  # type: ignore[attr-defined]
            client.meta.events.unregister(
                "needs-retry.glue", unique_id="retry-config-glue"
            )  # which takes half a minute
            lake.load(config.table("shop.orders"))

        with suppress(Fatal):
            await asyncio.to_thread(load)
    assert looked_up
    assert there.came[INTERNAL] == 0


async def test_object_storage(looked_up: list[str]) -> None:
    """The first request goes to the allowed address; the other one is not dialled, not even to hang up at once."""
    async with servers(saying({}, "500 Error")) as there:
        keys = {
            "s3.bucket.name": "b",
            "flush.size": "3",
            "store.url": f"http://{NAME}:{there.port}",
            "s3.path.style.access.enabled": "true",
            "aws.access.key.id": "a",
            "aws.secret.access.key": "b",
            "s3.part.retries": "1",
        }
        config = S3SinkConfig.parse(keys).config
        assert config is not None
        sink = S3Sink(config)
        sink.allowed_addresses = BOUNDS
        async with shared_http() as http:
            with pytest.raises((Fatal, StartAnew)):
                await sink.start(SinkContext("s3", 0, SystemClock(), discard, http))
        await sink.stop()
    assert there.came == {ALLOWED: looked_up.count(ALLOWED), INTERNAL: 0}


def listening() -> tuple[socket.socket, socket.socket]:
    """At both addresses, on a port that is free at both."""
    while True:
        allowed = socket.create_server((ALLOWED, 0))
        try:
            return allowed, socket.create_server((INTERNAL, allowed.getsockname()[1]))
        except OSError:
            allowed.close()


@pytest.mark.parametrize("names", [f"DNS:{NAME}", f"DNS:other.test,IP:{ALLOWED}"])
async def test_a_certificate_is_that_of_the_name_though_the_number_is_dialled(
    tmp_path: Path, looked_up: list[str], monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    """MySQL with ``VERIFY_IDENTITY``: the client dials what was judged, and takes no certificate of the number."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(authority.sign("server", names))
    asked: list[str | None] = []
    own.sni_callback = lambda _socket, name, _context: asked.append(name)
    with ExitStack() as stack:
        allowed, internal = (stack.enter_context(each) for each in listening())

        def greet() -> bool:
            """Whether the client trusts the server: it says more only then."""
            allowed.settimeout(WAIT_SECONDS_MAX)
            connection, _ = allowed.accept()
            connection.settimeout(WAIT_SECONDS_MAX)
            with connection, suppress(ssl.SSLError, ConnectionError):
                connection.sendall(GREETING)
                connection.recv(SSL_REQUEST_BYTES, socket.MSG_WAITALL)
                with own.wrap_socket(connection, server_side=True) as secure:
                    return bool(secure.recv(1))
            return False

        url = read_url(f"jdbc:mysql://{NAME}:{allowed.getsockname()[1]}/x?sslMode=VERIFY_IDENTITY&user=u")
        async with asyncio.TaskGroup() as group:
            served = group.create_task(asyncio.to_thread(greet))
            with pytest.raises((asyncmy.errors.Error, OSError)):  # the server hangs up when it has seen enough
                await connect_mysql(Login(url), addresses=BOUNDS, first_command="SELECT 1")
        internal.settimeout(0)
        with pytest.raises(BlockingIOError):
            internal.accept()
    assert served.result() is (names == f"DNS:{NAME}")
    assert asked == [NAME]
    assert looked_up == [ALLOWED]
