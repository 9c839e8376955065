"""The worker's HTTP server, asked over the loopback."""

from __future__ import annotations

import aiohttp
import pytest

from metrics.events import Event, RequestAnswered, TaskStateChanged
from metrics.prometheus import PrometheusObserver
from service.rest.health import Health
from service.rest.server import HttpPages, serving


async def ask(path: str, *, health: Health) -> tuple[int, str, str | None, list[Event]]:
    """Status, body, version header and the events of one request."""
    events: list[Event] = []
    pages = HttpPages(health, PrometheusObserver(), "1.2.3")
    async with (
        serving("http://127.0.0.1:0", pages, events.append) as url,
        aiohttp.ClientSession() as session,
        session.get(url + path) as answer,
    ):
        return answer.status, await answer.text(), answer.headers.get("X-Headrace-Version"), events


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/health/live", 200, '"live"'),
        ("/health/ready", 200, '"ready"'),
        ("/metrics", 200, "# HELP"),
        ("/nothing", 404, ""),
    ],
)
async def test_every_answer_has_its_status_and_headraces_version(path: str, status: int, text: str) -> None:
    """And is told as an event under its route, never under the path that was asked for."""
    answered, body, version, events = await ask(path, health=Health(is_started=True))
    assert (answered, version) == (status, "1.2.3")
    assert text in body
    (event,) = events
    assert isinstance(event, RequestAnswered)
    assert (event.status, event.route) == (status, path if status == 200 else "unknown")


async def test_an_unready_worker_answers_503_and_is_alive() -> None:
    """The body says what is missing."""
    health = Health(is_started=True)
    health(TaskStateChanged("c", 0, state="FAILED", reason="Fatal: 401"))
    status, body, _, _ = await ask("/health/ready", health=health)
    assert status == 503
    assert "Fatal: 401" in body
    assert (await ask("/health/live", health=health))[0] == 200
