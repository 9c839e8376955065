"""Which names a worker answers to, which web pages may ask it, and what browsers are told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from yarl import URL

from metrics.events import ChangeAudited
from service.config.listeners import Listener
from service.rest.authentication import Credential, Proof, Role
from service.rest.browsers import CrossOrigin, OwnNames, parse_allowed_hosts, parse_header_rules
from tests.apis.rest.fake_herder import Kept
from tests.apis.rest.serving import Served, served, settings

PAGE = "https://ui.example"
PREFLIGHT = {"Origin": PAGE, "Access-Control-Request-Method": "PUT"}


def audited(worker: Served) -> list[tuple[str, int, str]]:
    """Path, status and outcome of what was audited so far."""
    events = [event for event in worker.events if isinstance(event, ChangeAudited)]
    return [(event.path, event.status, event.outcome) for event in events]


async def raw(worker: Served, request: bytes) -> tuple[int, str]:
    """The status and text of what a socket is answered to these bytes."""
    url = URL(worker.urls.main[0])
    reader, writer = await asyncio.open_connection(url.host, url.port)
    async with asyncio.timeout(60):
        writer.write(request)
        text = (await reader.read(65_536)).decode()
        writer.close()
        await writer.wait_closed()
    return int(text.split(" ", 2)[1]), text


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8083", "localhost.evil.example", "10.0.0.1", "0.0.0.0", "127.1", "2130706433"],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/connectors"), ("PUT", "/connectors/c/pause"), ("GET", "/health")]
)
async def test_a_worker_answers_to_no_name_but_its_own(host: str, method: str, path: str) -> None:
    """A page whose own name resolves to the loopback is of one origin with it; only ``Host`` gives it away."""
    async with served() as worker:
        worker.herder.connectors["c"] = Kept({})
        answer = await worker.ask(method, path, headers={"Host": host, "Origin": f"http://{host}"})

        assert answer.error[0] == 421
        assert "localhost, 127.0.0.1" in answer.error[1]
        assert "rest.allowed.hosts" in answer.error[1]
        assert audited(worker) == [(path, 421, "denied")]
        assert worker.herder.asked == []


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:1",
        "localhost.",
        "localhost.:80",
        "127.0.0.1",
        "127.0.0.9:8083",
        "[::1]",
        "[::1]:8083",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
    ],
)
async def test_a_loopback_worker_is_known_by_every_name_of_the_loopback(host: str) -> None:
    """In any spelling, with any port: that of a container is another outside."""
    async with served() as worker:
        assert (await worker.ask("GET", "/connectors", headers={"Host": host})).status == 200
        page = await worker.ask("GET", "/connectors", headers={"Host": host, "Origin": f"http://{host}"})

    assert page.status == 200


@pytest.mark.parametrize(
    "host", ["", "localhost, evil", "a b", "user@localhost", "localhost:port", "localhost:99999", "é", "[::1"]
)
async def test_what_is_no_host_is_no_name_of_the_worker(host: str) -> None:
    """Nothing is guessed from it."""
    async with served() as worker:
        status, text = await raw(
            worker, f"GET /connectors HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )

    assert status == 421
    assert '"error_code":421' in text


async def test_every_name_that_a_request_gives_counts() -> None:
    """The authority of a target in absolute form too (RFC 9112, 3.2.2); two ``Host`` headers are no request."""
    async with served() as worker:
        foreign = await raw(
            worker, b"GET http://evil.example/connectors HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        hidden = await raw(
            worker, b"GET http://localhost/connectors HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        )
        own = await raw(
            worker, b"GET http://localhost/connectors HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        old = await raw(worker, b"GET /health/live HTTP/1.0\r\n\r\n")

    assert [foreign[0], hidden[0], own[0], old[0]] == [421, 421, 200, 200]


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        (("proxy.example",), "proxy.example", 200),
        (("Proxy.Example.",), "proxy.example:8443", 200),
        (("proxy.example:8443",), "proxy.example:8443", 200),
        (("proxy.example:8443",), "proxy.example", 421),
        (("proxy.example",), "other.example", 421),
        (("10.1.2.3",), "10.1.2.3:80", 200),
        (("*",), "other.example", 200),
    ],
)
async def test_names_of_proxies_are_allowed_by_configuration(allowed: tuple[str, ...], host: str, status: int) -> None:
    """Pages that the proxy serves under that name may ask too, whether or not it passes the name on."""
    hosts, is_any = parse_allowed_hosts(allowed)
    async with served(rest=settings(allowed_hosts=hosts, is_any_host_allowed=is_any)) as worker:
        assert (await worker.ask("GET", "/connectors", headers={"Host": host})).status == status
        if status == 200 and not is_any:
            page = await worker.ask(
                "GET", "/connectors", headers={"Origin": f"https://{hosts[0].host}:{hosts[0].port or 443}"}
            )
            assert page.status == 200


@pytest.mark.parametrize(
    ("listener", "asked", "is_own"),
    [
        (Listener("http", "", 8083), "192.0.2.7:8083", True),
        (Listener("http", "::", 8083), "[2001:db8::1]:8083", True),
        (Listener("http", "0.0.0.0", 8083), "worker1", True),
        (Listener("http", "0.0.0.0", 8083), "WORKER1.example.org:8083", True),
        (Listener("http", "0.0.0.0", 8083), "evil.example", False),
        (Listener("http", "connect.example.org", 8083), "connect.example.org", True),
        (Listener("http", "192.0.2.7", 8083), "192.0.2.7", True),
        (Listener("http", "192.0.2.7", 8083), "192.0.2.8", False),
        (Listener("http", "127.0.0.1", 8083), "worker1", False),
    ],
)
def test_a_worker_that_others_reach_is_known_by_its_machines_names(
    listener: Listener, asked: str, *, is_own: bool
) -> None:
    """And by any address where it listens on all of them: nobody is led to an address by a name."""
    assert OwnNames((listener,), machine=("worker1", "worker1.example.org")).holds(asked) is is_own


@pytest.mark.parametrize(
    "origin",
    [PAGE, "null", "http://127.0.0.1:1", "http://evil.example:80", "http://localhost", "file://", "http://[::1", ""],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/connectors"),
        ("POST", "/connectors/c/restart"),
        ("PUT", "/connectors/c/stop"),
        ("DELETE", "/connectors/c"),
        ("OPTIONS", "/connectors"),
        ("GET", "/metrics"),
    ],
)
async def test_pages_of_others_ask_nothing_by_default(origin: str, method: str, path: str) -> None:
    """Not even those of another port of this machine, and no request without a body."""
    async with served() as worker:
        worker.herder.connectors["c"] = Kept({})
        preflight = {"Access-Control-Request-Method": "PUT"} if method == "OPTIONS" else {}
        answer = await worker.ask(method, path, headers={"Origin": origin, **preflight})

        assert answer.error[0] == 403
        assert "access.control.allow.origin" in answer.error[1]
        assert not [name for name in answer.headers if name.startswith("Access-Control")]
        assert audited(worker) == [(path, 403, "denied")]
        assert worker.herder.asked == []


async def test_pages_of_the_workers_own_host_may_ask() -> None:
    """Also where a proxy has taken off TLS: then the page's scheme is another."""
    async with served() as worker:
        worker.herder.connectors["c"] = Kept({})
        plain = await worker.ask("POST", "/connectors/c/restart", headers={"Origin": worker.urls.main[0]})
        secure = {"Host": "localhost", "Origin": "https://localhost"}
        proxied = await worker.ask("POST", "/connectors/c/restart", headers=secure)

    assert (plain.status, proxied.status) == (204, 204)


async def test_pages_of_named_origins_may_ask() -> None:
    """Also with credentials, also before they have proven anything."""
    rest = settings(
        cross_origin=CrossOrigin((PAGE,), ("GET", "PUT")),
        proofs=(Proof.BASIC,),
        users={"a": Credential(Role.ADMIN, "b")},
    )
    async with served(rest=rest) as worker:
        preflight = await worker.ask("OPTIONS", "/connectors/c/config", headers=PREFLIGHT)
        refused = await worker.ask("GET", "/connectors", headers={"Origin": PAGE})
        other = await worker.ask("OPTIONS", "/connectors", headers={**PREFLIGHT, "Origin": "https://other.example"})
        own = await worker.ask("OPTIONS", "/connectors", headers={**PREFLIGHT, "Origin": worker.urls.main[0]})

    assert preflight.status == 200
    assert preflight.headers["Access-Control-Allow-Methods"] == "GET,PUT"
    for answer in (preflight, refused):
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert answer.headers["Access-Control-Allow-Credentials"] == "true"
        assert answer.headers["Vary"] == "Origin"
    assert (other.status, own.status) == (403, 200)
    assert "Access-Control-Allow-Origin" not in other.headers


async def test_all_pages_may_ask_without_credentials_only() -> None:
    """``*`` is not meant for those who are logged in."""
    async with served(rest=settings(cross_origin=CrossOrigin(("*",)))) as worker:
        answer = await worker.ask("GET", "/connectors", headers={"Origin": PAGE})

    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_change_that_another_site_asks_for_is_refused_without_an_origin_too(site: str) -> None:
    """A form can be sent without asking first; the browser says where it comes from. A link may lead to a page."""
    headers = {"Sec-Fetch-Site": site}
    async with served() as worker:
        worker.herder.connectors["c"] = Kept({})
        forged = await worker.ask("POST", "/connectors/c/restart", headers=headers)
        followed = await worker.ask("GET", "/connectors/c", headers=headers)
        own = await worker.ask("POST", "/connectors/c/restart", headers={"Sec-Fetch-Site": "same-origin"})

    assert forged.error[0] == 403
    assert "another site" in forged.error[1]
    assert (followed.status, own.status) == (200, 204)
    assert worker.herder.asked == [("restart", "c")]


async def test_pages_that_are_allowed_may_change() -> None:
    """By their origin."""
    async with served(rest=settings(cross_origin=CrossOrigin((PAGE,)))) as worker:
        worker.herder.connectors["c"] = Kept({})
        headers = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}

        assert (await worker.ask("POST", "/connectors/c/restart", headers=headers)).status == 204


async def test_configured_headers_are_on_every_answer() -> None:
    """Errors too."""
    rules = parse_header_rules('set X-Frame-Options: DENY, add X-A: 1, add X-A: 2, "set X-B: a, b"')
    async with served(rest=settings(header_rules=rules)) as worker:
        for path in ("/connectors", "/nothing"):
            answer = await worker.ask("GET", path)
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert answer.headers.getall("X-A") == ["1", "2"]
            assert answer.headers["X-B"] == "a, b"


def test_dates_count_from_now_in_milliseconds() -> None:
    """As in Connect."""
    (rule,) = parse_header_rules("setDate Expires: 60000")

    assert rule.text(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "Fri, 02 Jan 2026 03:05:05 GMT"


@pytest.mark.parametrize("text", ["X: y", "set X", "set : y", "setDate X: soon", "set X: a\nb", "delete X: y"])
def test_what_is_no_header_is_refused(text: str) -> None:
    """And named."""
    with pytest.raises(ValueError, match="Expected"):
        parse_header_rules(text)
