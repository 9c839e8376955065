"""TLS: strangers are not trusted, and the config can say whom to trust."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import which

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, TlsSettings
from fetchers.sdk.testing import FakeContext
from tests.contracts.loopback import serve

pytestmark = pytest.mark.skipif(which("openssl") is None, reason="makes its certificate with the openssl program")
SUBJECT = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")


@pytest.fixture(name="certificate")
async def certificate_fixture(tmp_path: Path) -> Path:
    """A self-signed certificate for the loopback, with its key beside it."""
    made = tmp_path / "cert.pem"
    keys = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", str(tmp_path / "key.pem"), "-out", str(made), "-days", "2")
    process = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", *keys, *files, *SUBJECT, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0
    return made


@pytest.fixture(name="url")
async def url_fixture(certificate: Path) -> AsyncIterator[str]:
    """An https server with that certificate; it tells whether its client has shown one."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if request.headers.get("Upgrade"):
            socket = web.WebSocketResponse(timeout=0.1)
            await socket.prepare(request)
            await socket.send_str("hello")
            await socket.close()
            return socket
        return web.Response(text=str(bool(request.transport.get_extra_info("peercert"))))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    context.verify_mode = ssl.CERT_OPTIONAL
    async with serve(answer, path="/", tls=context) as url:
        yield f"{url}/"


@pytest.fixture(name="context")
async def context_fixture() -> AsyncIterator[FakeContext]:
    """A context with a client."""
    async with shared_http() as http:
        yield FakeContext(http=http)


async def test_an_unknown_certificate_is_fatal(context: FakeContext, url: str) -> None:
    """No credentials go to a server that nobody vouches for, and waiting does not mend it."""
    with pytest.raises(Fatal, match="certificate of the server is not trusted"):
        await context.http.request("GET", url)


async def test_trusts_whom_the_config_names(context: FakeContext, url: str, certificate: Path) -> None:
    """With ``ca_file`` the server is trusted, and our own certificate is shown where there is one."""
    trusted = TlsSettings(ca_file=str(certificate))
    known = TlsSettings(str(certificate), str(certificate), str(certificate.with_name("key.pem")))
    assert (await context.http.request("GET", url, tls=trusted)).body == b"False"
    assert (await context.http.request("GET", url, tls=known)).body == b"True"


async def test_verification_can_be_turned_off(context: FakeContext, url: str) -> None:
    """For a test server with a certificate of its own making; it does not last beyond the request."""
    assert (await context.http.request("GET", url, tls=TlsSettings(is_verified=False))).status == 200
    with pytest.raises(Fatal):
        await context.http.request("GET", url)


@pytest.mark.parametrize("kind", ["missing", "rubbish"])
async def test_an_unusable_file_is_fatal(context: FakeContext, url: str, tmp_path: Path, kind: str) -> None:
    """A PEM file that is missing or no PEM is said at once."""
    path = tmp_path / "ca.pem"
    if kind == "rubbish":
        path.write_text("no certificate")
    with pytest.raises(Fatal, match="TLS file"):
        await context.http.request("GET", url, tls=TlsSettings(ca_file=str(path)))


async def test_a_websocket_trusts_whom_the_config_names_and_nobody_else(
    context: FakeContext, url: str, certificate: Path
) -> None:
    """As every request does."""
    address = url.replace("https", "wss")
    with pytest.raises(Fatal, match="certificate of the server is not trusted"):
        async with context.http.websocket(address, message_bytes_max=100):
            pass
    trusted = TlsSettings(ca_file=str(certificate))
    async with context.http.websocket(address, message_bytes_max=100, tls=trusted) as socket:
        assert (await socket.receive()).payload == b"hello"
