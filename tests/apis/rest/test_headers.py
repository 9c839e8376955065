"""What browsers are told, and what pages of others may not do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from service.rest.authentication import Proof
from service.rest.credentials import Credential, Role
from service.rest.headers import CrossOrigin, parse_header_rules
from tests.apis.rest.fake_herder import Kept
from tests.apis.rest.serving import served, settings

PAGE = "https://ui.example"
PREFLIGHT = {"Origin": PAGE, "Access-Control-Request-Method": "PUT"}


async def test_no_page_may_ask_by_default() -> None:
    """Neither is told so."""
    async with served() as worker:
        preflight = await worker.ask("OPTIONS", "/connectors", headers=PREFLIGHT)
        answer = await worker.ask("GET", "/connectors", headers={"Origin": PAGE})

    assert not [name for name in (*preflight.headers, *answer.headers) if name.startswith("Access-Control")]


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

    assert preflight.status == 200
    assert preflight.headers["Access-Control-Allow-Methods"] == "GET,PUT"
    for answer in (preflight, refused):
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert answer.headers["Access-Control-Allow-Credentials"] == "true"
        assert answer.headers["Vary"] == "Origin"
    assert "Access-Control-Allow-Origin" not in other.headers


async def test_all_pages_may_ask_without_credentials_only() -> None:
    """``*`` is not meant for those who are logged in."""
    async with served(rest=settings(cross_origin=CrossOrigin(("*",)))) as worker:
        answer = await worker.ask("GET", "/connectors", headers={"Origin": PAGE})

    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_pages_of_others_change_nothing(site: str) -> None:
    """A form can be sent without asking first; the browser says where it comes from."""
    headers = {"Origin": PAGE, "Sec-Fetch-Site": site}
    async with served() as worker:
        worker.herder.connectors["c"] = Kept({})
        forged = await worker.ask("POST", "/connectors/c/restart", headers=headers)
        read = await worker.ask("GET", "/connectors/c", headers=headers)
        own = await worker.ask("POST", "/connectors/c/restart", headers={**headers, "Sec-Fetch-Site": "same-origin"})

    assert forged.error == (403, f"Pages of {PAGE} may not change anything (access.control.allow.origin)")
    assert (read.status, own.status) == (200, 204)
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
