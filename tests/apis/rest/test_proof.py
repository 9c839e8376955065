"""Who may do what: passwords, tokens, certificates, roles; and the audit of it."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from metrics.events import ChangeAudited
from service.config.listeners import Listener
from service.rest.authentication import (
    FAILURES_FREE,
    Credential,
    Proof,
    Role,
)
from service.rest.passwords import hash_password
from service.rest.tls import TlsReader
from tests.apis.rest.certificates import Authority
from tests.apis.rest.fake_herder import Kept, elsewhere
from tests.apis.rest.serving import Answer, Served, served, settings

USERS = {
    "anne": Credential(Role.ADMIN, hash_password("a-pass")),
    "rita": Credential(Role.READ, "r-pass"),
}
TOKENS = {
    "robot": Credential(Role.ADMIN, "t-admin"),
    "grafana": Credential(Role.READ, f"sha256${hashlib.sha256(b't-read').hexdigest()}"),
}


def basic(user: str, password: str) -> dict[str, str]:
    """The header of a user."""
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def bearer(token: str) -> dict[str, str]:
    """The header of a client with a token."""
    return {"Authorization": f"Bearer {token}"}


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Served]:
    """A worker that demands proof of either kind."""
    rest = settings(proofs=(Proof.BASIC, Proof.BEARER), users=USERS, tokens=TOKENS)
    async with served(rest=rest) as serving:
        serving.herder.connectors["c"] = Kept({"connector.class": "x"})
        yield serving


def audited(worker: Served) -> list[ChangeAudited]:
    """What was audited so far."""
    return [event for event in worker.events if isinstance(event, ChangeAudited)]


@pytest.mark.parametrize("headers", [basic("anne", "a-pass"), bearer("t-admin")])
async def test_an_admin_may_do_everything(worker: Served, headers: dict[str, str]) -> None:
    """The second request with a hashed password is as right as the first."""
    for _ in range(2):
        assert (await worker.ask("GET", "/connectors", headers=headers)).status == 200
        assert (await worker.ask("PUT", "/connectors/c/pause", headers=headers)).status == 202


@pytest.mark.parametrize("headers", [basic("rita", "r-pass"), bearer("t-read")])
async def test_a_reader_may_read_only(worker: Served, headers: dict[str, str]) -> None:
    """403 that says which role it needs; validation may ask the outside, so it is no reading."""
    assert (await worker.ask("GET", "/connectors", headers=headers)).status == 200
    for method, path in [
        ("PUT", "/connectors/c/pause"),
        ("DELETE", "/connectors/c"),
        ("PUT", "/connector-plugins/Source/config/validate"),
    ]:
        status, text = (await worker.ask(method, path, headers=headers)).error
        assert (status, text.endswith("may read only; this needs the role admin")) == (403, True)
    assert worker.herder.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("anne", "wrong"),
        basic("anne", ""),
        basic("nobody", "a-pass"),
        basic("rita", "a-pass"),
        bearer("t-rea"),
        bearer(""),
        {"Authorization": "Basic"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic " + b64encode(b"anne").decode()},
        {"Authorization": "Basic " + b64encode(b"\xff:\xff").decode()},
        {"Authorization": "Digest anne"},
        {"Authorization": "Basic é"},
        bearer("é"),
    ],
)
async def test_whoever_is_not_known_is_turned_away(worker: Served, headers: dict[str, str]) -> None:
    """401 on every route, known or not, with the ways to prove oneself; nothing reaches the herder."""
    for method, path in [("GET", "/connectors"), ("DELETE", "/connectors/c"), ("GET", "/nothing"), ("GET", "/")]:
        answer = await worker.ask(method, path, headers=headers)
        assert answer.error == (401, "This needs a user and password or a token that the worker knows (rest.auth)")
        schemes = [challenge.split()[0] for challenge in answer.headers.getall("WWW-Authenticate")]
        assert schemes == ["Basic", "Bearer"]
    assert worker.herder.asked == []


@pytest.mark.parametrize("proof", [b"Basic \xe9", b"Basic \xc3\xa9", b"Bearer \xff", b"Bearer t-admin\xff"])
async def test_bytes_that_are_no_text_prove_nothing(worker: Served, proof: bytes) -> None:
    """401 as for any other, though no client's library would send them."""
    url = URL(worker.urls.main[0])
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(
            b"GET /connectors HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: " + proof + b"\r\n\r\n"
        )
        status_line = (await reader.read()).partition(b"\r\n")[0]
        writer.close()
        await writer.wait_closed()
    assert status_line.split()[1] == b"401"


async def test_health_and_metrics_may_stay_open(worker: Served) -> None:
    """By default; a prober needs no secret."""
    for path in ("/health", "/health/live", "/health/ready", "/metrics"):
        assert (await worker.ask("GET", path)).status == 200


async def test_health_and_metrics_may_be_closed() -> None:
    """Each by its word."""
    rest = settings(proofs=(Proof.BEARER,), tokens=TOKENS, open_pages=frozenset({"health"}))
    async with served(rest=rest) as worker:
        assert (await worker.ask("GET", "/health")).status == 200
        assert (await worker.ask("GET", "/metrics")).status == 401
        assert (await worker.ask("GET", "/metrics", headers=bearer("t-read"))).status == 200


async def test_only_the_configured_proofs_count() -> None:
    """A password is none where tokens are asked for."""
    async with served(rest=settings(proofs=(Proof.BEARER,), users=USERS, tokens=TOKENS)) as worker:
        answer = await worker.ask("GET", "/connectors", headers=basic("anne", "a-pass"))

    assert answer.status == 401


async def test_workers_prove_themselves_by_their_signature(worker: Served) -> None:
    """Which the herder demands and checks; it opens nothing else."""
    signed = {"X-Connect-Authorization": "c2ln", "X-Connect-Request-Signature-Algorithm": "HmacSHA256"}

    assert (await worker.ask("POST", "/connectors/c/tasks", headers=signed)).status == 204
    unsigned = await worker.ask("POST", "/connectors/c/tasks", headers=basic("anne", "a-pass"))
    assert unsigned.error == (400, "Internal request missing required signature")
    assert (await worker.ask("PUT", "/connectors/c/pause", headers=signed)).status == 401


async def test_every_change_is_audited(worker: Served) -> None:
    """Who, from where, what, how it went; never a body, and of the query what the route knows."""
    admin = basic("anne", "a-pass")
    await worker.ask("POST", "/connectors/c/restart?includeTasks=true&password=x", {"secret": 1}, headers=admin)
    await worker.ask("DELETE", "/connectors/a%2Fb", headers=admin)
    await worker.ask("DELETE", "/connectors/c", headers=basic("rita", "r-pass"))
    await worker.ask("DELETE", "/connectors/c")
    await worker.ask("GET", "/connectors")
    await worker.ask("GET", "/connectors", headers=admin)
    await worker.ask("PUT", "/connector-plugins/Source/config/validate", {}, headers=admin)

    told = [(e.principal, e.method, e.path, e.query, e.status, e.outcome) for e in audited(worker)]
    assert told == [
        ("anne", "POST", "/connectors/c/restart", "includeTasks=true", 202, "done"),
        ("anne", "DELETE", "/connectors/a%2Fb", "", 404, "refused"),
        ("rita", "DELETE", "/connectors/c", "", 403, "denied"),
        ("-", "DELETE", "/connectors/c", "", 401, "denied"),
        ("-", "GET", "/connectors", "", 401, "denied"),
        ("anne", "PUT", "/connector-plugins/Source/config/validate", "", 200, "done"),
    ]
    assert {event.remote for event in audited(worker)} == {"127.0.0.1"}


async def test_changes_are_audited_without_proof_too() -> None:
    """By nobody's name; a failure is told as one."""
    async with served() as worker:
        worker.herder.failure = ValueError("a bug")
        await worker.ask("DELETE", "/connectors/c")

        (event,) = audited(worker)
    assert (event.principal, event.status, event.outcome) == ("anonymous", 500, "failed")


async def test_a_guesser_is_told_how_long_to_wait(worker: Served) -> None:
    """429 with ``Retry-After`` and a line in the audit log; the health pages stay open."""
    answers = [await worker.ask("GET", "/connectors", headers=bearer("guess")) for _ in range(FAILURES_FREE + 2)]
    health = await worker.ask("GET", "/health/live", headers=bearer("guess"))

    assert [answer.status for answer in answers] == [401] * (FAILURES_FREE + 1) + [429]
    assert answers[-1].headers["Retry-After"] == "1"
    assert (
        answers[-1].error[1] == "Too many wrong passwords or tokens came from 127.0.0.1: the next is looked at in 1 s"
    )
    assert audited(worker)[-1].status == 429
    assert health.status == 200


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs."""
    return Authority(tmp_path_factory.mktemp("certificates"))


async def ask_tls(url: str, *, trust: Path, identity: Path | None = None) -> Answer:
    """Ask for the connectors' deletion over https."""
    context = ssl.create_default_context(cafile=trust)
    if identity is not None:
        context.load_cert_chain(identity)
    async with aiohttp.ClientSession() as client, client.delete(f"{url}/connectors/c", ssl=context) as answer:
        return Answer(answer.status, await answer.text(), answer.headers)


def tls_settings(authority: Authority, **keys: str) -> dict[str, str]:
    """Worker keys of an https listener."""
    return {
        "ssl.keystore.location": "not the one",
        "listeners.https.ssl.keystore.type": "PEM",
        "listeners.https.ssl.keystore.location": str(authority.sign("localhost")),
        "listeners.https.ssl.truststore.location": str(authority.certificate),
        **{f"listeners.https.ssl.{key}": value for key, value in keys.items()},
    }


@pytest.mark.parametrize(
    ("client_auth", "is_shown", "principal"),
    [
        ("none", False, "anonymous"),
        ("requested", False, "anonymous"),
        ("requested", True, "operator"),
        ("required", True, "operator"),
    ],
)
async def test_tls(authority: Authority, client_auth: str, *, is_shown: bool, principal: str) -> None:
    """A listener speaks https, and knows who shows a certificate."""
    tls = TlsReader(tls_settings(authority, **{"client.auth": client_auth})).read()
    identity = authority.sign("operator") if is_shown else None
    async with served(rest=settings(listeners=(Listener("https", "localhost", 0),), tls=tls)) as worker:
        worker.herder.connectors["c"] = Kept({})
        answer = await ask_tls(worker.urls.main[0], trust=authority.certificate, identity=identity)

        assert worker.urls.main[0].startswith("https://localhost:")
        assert answer.status == 204
        assert [event.principal for event in audited(worker)] == [principal]


@pytest.mark.parametrize("is_shown", [False, True])
async def test_a_certificate_that_is_required_and_not_trusted(
    authority: Authority, tmp_path: Path, *, is_shown: bool
) -> None:
    """No request gets through, with none or with one that someone else has signed."""
    tls = TlsReader(tls_settings(authority, **{"client.auth": "required"})).read()
    stranger = Authority(tmp_path, "stranger").sign("operator") if is_shown else None
    async with served(rest=settings(listeners=(Listener("https", "localhost", 0),), tls=tls)) as worker:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await ask_tls(worker.urls.main[0], trust=authority.certificate, identity=stranger)
        assert worker.events == []


async def test_an_identity_given_as_text(authority: Authority) -> None:
    """Key and chain in the worker's file itself."""
    pem = authority.sign("localhost").read_text(encoding="utf-8")
    key, _, chain = pem.partition("-----BEGIN CERTIFICATE-----")
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": f"-----BEGIN CERTIFICATE-----{chain}",
    }
    tls = TlsReader(properties).read()
    async with served(rest=settings(listeners=(Listener("https", "localhost", 0),), tls=tls)) as worker:
        assert (await ask_tls(worker.urls.main[0], trust=authority.certificate)).status == 404


async def test_workers_that_demand_certificates_forward_to_each_other(authority: Authority) -> None:
    """A worker shows its own certificate to the next one, and trusts it by the same authority."""
    tls = TlsReader(tls_settings(authority, **{"client.auth": "required"})).read()
    rest = settings(listeners=(Listener("https", "localhost", 0),), tls=tls)
    async with served(rest=rest) as leader, served(elsewhere(leader.urls.main[0]), rest) as worker:
        leader.herder.connectors["c"] = Kept({})
        identity = authority.sign("operator")
        answer = await ask_tls(worker.urls.main[0], trust=authority.certificate, identity=identity)

        assert answer.status == 204
        assert [event.principal for event in audited(worker)] == ["operator"]
        assert [event.principal for event in audited(leader)] == ["localhost"]
