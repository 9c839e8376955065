"""The worker's HTTP server: pages of its own, headers, events, unknown routes, listeners."""

from __future__ import annotations

import pytest

from metrics.events import RequestAnswered, TaskStateChanged
from service.config.listeners import Listener
from service.rest.server import ListenError
from tests.apis.rest.serving import LOOPBACK, served, settings


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
    async with served() as worker:
        answer = await worker.ask("GET", path)

        assert (answer.status, answer.headers["X-Headrace-Version"]) == (status, "1.2.3")
        assert answer.headers["Server"] == "headrace"
        assert text in answer.text
        (event,) = worker.events
    assert isinstance(event, RequestAnswered)
    assert (event.status, event.route) == (status, path if status == 200 else "unknown")


async def test_an_unready_worker_answers_503_and_is_alive() -> None:
    """The body says what is missing."""
    async with served() as worker:
        worker.surface.health(TaskStateChanged("c", 0, state="FAILED", reason="Fatal: 401"))

        ready = await worker.ask("GET", "/health/ready")
        live = await worker.ask("GET", "/health/live")

    assert (ready.status, live.status) == (503, 200)
    assert "Fatal: 401" in ready.text


@pytest.mark.parametrize("path", ["/nothing", "/connectors/c/tasks-config", "/connectors/c/tasks/x/status"])
async def test_an_unknown_route_has_connects_error_body(path: str) -> None:
    """Also what was a route once, and a task that is no number."""
    async with served() as worker:
        assert (await worker.ask("GET", path)).error == (404, "HTTP 404 Not Found")


async def test_a_wrong_method_has_connects_error_body() -> None:
    """And says which ones there are."""
    async with served() as worker:
        answer = await worker.ask("DELETE", "/connectors")

    assert answer.error == (405, "HTTP 405 Method Not Allowed")
    assert answer.headers["Allow"] == "GET,HEAD,OPTIONS,POST"


async def test_options_says_which_methods_there_are() -> None:
    """As Connect's server does."""
    async with served() as worker:
        answer = await worker.ask("OPTIONS", "/connectors/c/config")

    assert (answer.status, answer.headers["Allow"]) == (200, "GET,HEAD,OPTIONS,PATCH,PUT")


@pytest.mark.parametrize(
    "path", ["/connectors/", "/connector-plugins/", "/connectors/c/", "/admin/loggers/", "/health/"]
)
async def test_a_slash_at_the_end_changes_nothing(path: str) -> None:
    """Some clients send one."""
    async with served() as worker:
        await worker.herder.put("c", {"connector.class": "x"})

        answers = [await worker.ask("GET", each) for each in (path, path.rstrip("/"))]

    assert [answer.status for answer in answers] == [200, 200]


async def test_every_listener_serves_everything() -> None:
    """Several may be given."""
    async with served(rest=settings(listeners=(LOOPBACK, LOOPBACK))) as worker:
        answers = [await worker.ask("GET", "/admin/loggers", url=url) for url in worker.urls.main]

    assert [answer.status for answer in answers] == [200, 200]
    assert len(set(worker.urls.main)) == 2


async def test_an_address_that_is_taken_is_named() -> None:
    """So that the command line can say it in one line."""
    async with served() as worker:
        port = int(worker.urls.main[0].rpartition(":")[2])
        with pytest.raises(ListenError, match=f"Cannot listen on http://127.0.0.1:{port}: "):
            async with served(rest=settings(listeners=(Listener("http", "127.0.0.1", port),))):
                pass


async def test_admin_listeners_serve_admin_and_health_alone() -> None:
    """And then the others serve no admin."""
    async with served(rest=settings(admin_listeners=(LOOPBACK,))) as worker:
        main, (admin,) = worker.urls.main[0], worker.urls.admin
        statuses = [
            (await worker.ask("GET", path, url=url)).status
            for path in ("/admin/loggers", "/connectors", "/health", "/metrics")
            for url in (main, admin)
        ]

    assert statuses == [404, 200, 200, 404, 200, 200, 200, 200]


async def test_without_admin_listeners_there_is_no_admin() -> None:
    """``admin.listeners`` given and empty."""
    async with served(rest=settings(admin_listeners=())) as worker:
        assert (await worker.ask("GET", "/admin/loggers")).status == 404
