"""``ElasticsearchSink`` over TLS, by its keys: a private authority, and a certificate of our own."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from fetchers.sdk import Fatal, FetchError, Retriable
from tests.apis.rest.certificates import Authority
from tests.fake_search import FakeSearch
from tests.search_suite import Search, started

UNKNOWN = "(self.signed certificate|unable to get local issuer)"
"""As OpenSSL says it, by what the server shows of its authority."""
SSL = {"elastic__security__protocol": "SSL"}


@pytest.fixture(name="authority")
def authority_fixture(tmp_path: Path) -> Authority:
    """Nobody trusts it who is not told to."""
    return Authority(tmp_path)


def server_tls(
    authority: Authority, *, names: str = "DNS:localhost,IP:127.0.0.1", asks: bool = False
) -> ssl.SSLContext:
    """A server's context; ``asks``: only those are let in whose certificate is the authority's too."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.load_cert_chain(authority.sign("server", names))
    context.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    return context


async def put(url: str, **keys: str) -> None:
    """One document."""
    async with started(Search(url, "orders"), **keys) as sink:
        await sink.put([("a", {"n": 1})])
        assert not sink.refused


async def test_a_private_authority_and_a_certificate_of_our_own(authority: Authority) -> None:
    """Both are taken from the keys; a server that asks for a certificate lets nobody in without."""
    fake, trusted = FakeSearch(), {**SSL, "elastic__https__ssl__truststore__location": str(authority.certificate)}
    own = {"elastic__https__ssl__keystore__location": str(authority.sign("client"))}
    async with fake.serving(server_tls(authority, asks=True)) as url:
        await put(url, **trusted, **own)
        assert fake.indices["orders"].documents == {"a": {"n": 1}}
        fake.indices.clear()
        with pytest.raises(Retriable):  # the server hangs up, with TLS 1.3 after the handshake
            await put(url, **trusted)
        assert not fake.indices
    async with fake.serving(server_tls(authority)) as url:
        await put(url, **trusted)


@pytest.mark.parametrize(
    ("keys", "names", "reason"),
    [
        ({"elastic__https__ssl__truststore__location": "stranger.crt"}, "IP:127.0.0.1", UNKNOWN),
        ({}, "IP:127.0.0.1", UNKNOWN),
        (
            {"elastic__https__ssl__truststore__location": "authority.crt"},
            "DNS:search.test",
            "not valid for '127.0.0.1'",
        ),
    ],
    ids=["another authority", "none", "another name"],
)
async def test_a_server_that_is_not_trusted(
    authority: Authority, keys: dict[str, str], names: str, reason: str
) -> None:
    """The task fails, says why, and sends nothing."""
    Authority(authority.folder, "stranger")
    files = {key: str(authority.folder / name) for key, name in keys.items()}
    fake = FakeSearch()
    async with fake.serving(server_tls(authority, names=names)) as url:
        with pytest.raises(
            Fatal, match=rf"https://127\.0\.0\.1:\d+/orders: the certificate .* not trusted \(.*{reason}"
        ):
            await put(url, **SSL, **files)
    assert not fake.indices


async def test_a_server_without_tls_is_told() -> None:
    """An address that says https where nobody speaks it."""
    fake = FakeSearch()
    async with fake.serving() as url:
        with pytest.raises(FetchError, match="cannot connect"):
            await put(url.replace("http:", "https:"), **SSL)
    assert not fake.indices
