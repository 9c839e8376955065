"""``/``, ``/health``; what is answered while starting, to what takes too long, is too large or is no JSON."""

from __future__ import annotations

import pytest

from metrics.events import RequestFailed, WorkerStopping
from service.herder.api import Activity
from service.herder.errors import RequestError
from service.rest.health import WorkerPhase
from tests.apis.rest.fake_herder import ACTIVITY, FakeHerder, Kept
from tests.apis.rest.serving import served, settings

BUSY = "The worker is currently reading to the end of the config topic, which began at 2026-01-02T03:04:05.678Z"
DONE = (
    "The last operation the worker completed was joining the group, "
    "which began at 2026-01-02T03:04:05Z and completed at 2026-01-02T03:04:06Z"
)
JOINED = Activity("joining the group", "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z")


async def test_the_worker_says_which_connect_it_is() -> None:
    """And nothing more in the body: clients choose by it what to ask for."""
    async with served() as worker:
        answer = await worker.ask("GET", "/")

    assert answer.body == {"version": "4.1.1", "commit": "be816b82d25370ce", "kafka_cluster_id": "cluster-1"}


async def test_health() -> None:
    """200 once a tick has passed."""
    async with served() as worker:
        answer = await worker.ask("GET", "/health")

    text = "Worker has completed startup and is ready to handle requests."
    assert (answer.status, answer.body) == (200, {"status": "healthy", "message": text})


@pytest.mark.parametrize("has_herder", [True, False])
async def test_while_starting(*, has_herder: bool) -> None:
    """Health says so in its own form, every other route in the error body; what is served early is served."""
    async with served(FakeHerder(is_started=False)) as worker:
        worker.surface.health.phase = WorkerPhase.STARTING
        if not has_herder:
            worker.surface.herder = None
        health = await worker.ask("GET", "/health")
        names = await worker.ask("GET", "/connectors")
        created = await worker.ask("POST", "/connectors", {"name": "c", "config": {}})
        early = [(await worker.ask("GET", path)).status for path in ("/health/live", "/metrics", "/openapi.json")]

    text = f"Worker is still starting up. {BUSY}" if has_herder else "Worker is still starting up."
    assert (health.status, health.body) == (503, {"status": "starting", "message": text})
    assert names.error == created.error == (503, text)
    assert early == [200, 200, 200]


async def test_while_stopping() -> None:
    """Connect's text once nothing can be asked any more; until then clients are answered, and health says so."""
    text = "Worker is shutting down"
    async with served(FakeHerder()) as worker:
        worker.surface.health(WorkerStopping(reason="asked"))
        draining = await worker.ask("GET", "/health")
        answered = await worker.ask("GET", "/connectors")
        worker.surface.herder = None
        health = await worker.ask("GET", "/health")
        names = await worker.ask("GET", "/connectors")
        live = await worker.ask("GET", "/health/live")

    assert (health.status, health.body) == (500, {"status": "unhealthy", "message": text})
    assert (draining.status, draining.body) == (health.status, health.body)
    assert (answered.status, live.status) == (200, 200)
    assert names.error == (500, text)


@pytest.mark.parametrize("phase", [WorkerPhase.STARTING, WorkerPhase.STOPPING])
async def test_another_worker_is_told_of_a_conflict_instead(phase: WorkerPhase) -> None:
    """It took this one for its leader, which it was a moment ago: its client tries again, as in any rebalance."""
    async with served(FakeHerder()) as worker:
        worker.surface.health.phase, worker.surface.herder = phase, None
        status, _ = (await worker.ask("PUT", "/connectors/c/pause?forward=true")).error
    assert status == 409


@pytest.mark.parametrize(("activity", "sentence"), [(ACTIVITY, BUSY), (JOINED, DONE)])
async def test_a_request_that_takes_too_long(activity: Activity, sentence: str) -> None:
    """500 with what the worker is busy with, or did last."""
    herder = FakeHerder(is_hanging=True, activity=activity)
    async with served(herder, settings(request_seconds_max=0.05)) as worker:
        answer = await worker.ask("PUT", "/connectors/c/pause")

    assert answer.error == (500, f"Request timed out. {sentence}")


async def test_a_worker_that_hangs_is_unhealthy() -> None:
    """It answers, and says that it does not get on."""
    async with served(FakeHerder(is_hanging=True), settings(health_seconds_max=0.05)) as worker:
        answer = await worker.ask("GET", "/health")

    text = f"Worker was unable to handle this request and may be unable to handle other requests. {BUSY}"
    assert (answer.status, answer.body) == (500, {"status": "unhealthy", "message": text})


async def test_a_body_over_the_limit() -> None:
    """413, and the limit's key."""
    async with served(rest=settings(request_bytes_max=1_000)) as worker:
        answer = await worker.ask("PUT", "/connectors/c/config", {"x": "y" * 1_000})
        just_right = await worker.ask("PUT", "/connectors/c/config", {"connector.class": "x" * 900})

    assert answer.error == (413, "The body is longer than 1000 bytes (rest.request.bytes.max)")
    assert just_right.status == 201


BODIES = [
    b"{",
    b"nonsense",
    b'{"a":tru}',
    b'{"a":NaN}',
    b'{"a":1}{}',
    b'{"a":"\\ud800"}',
    b'{"a":"\xff"}',
    b'{"a":01}',
    b"\xef\xbb\xbf{}",
    b'{"a":' + b"[" * 100_000,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:12]))
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/connectors"),
        ("PUT", "/connectors/c/config"),
        ("PATCH", "/connectors/c/config"),
        ("PATCH", "/connectors/c/offsets"),
        ("PUT", "/connector-plugins/Source/config/validate"),
        ("PUT", "/admin/loggers/x"),
    ],
)
async def test_malformed_json(method: str, path: str, body: bytes) -> None:
    """400 with the error body, wherever a body is read."""
    async with served() as worker:
        status, text = (await worker.ask(method, path, body)).error

    assert status == 400
    assert text


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml"])
async def test_a_body_that_is_no_json_by_its_type(kind: str) -> None:
    """415, unless there is no body."""
    async with served() as worker:
        body = await worker.ask("POST", "/connectors", b"{}", headers={"Content-Type": kind})
        none = await worker.ask("POST", "/connectors", headers={"Content-Type": kind})

    assert body.error == (415, "HTTP 415 Unsupported Media Type")
    assert none.error == (400, "The request needs a body in JSON.")


async def test_json_of_any_spelling_is_json() -> None:
    """Header names and types in any case, with a character set."""
    async with served() as worker:
        for kind in ("Application/JSON", "application/json; charset=utf-8", "application/vnd.x+json"):
            answer = await worker.ask(
                "PUT", "/connectors/c/config", b'{"connector.class":"x"}', headers={"Content-Type": kind}
            )
            assert answer.status in {200, 201}


async def test_a_bug_is_a_500_told_in_the_log_alone() -> None:
    """The text of an exception may hold a secret: the client hears of its class, the log of the rest."""
    async with served(FakeHerder(failure=ValueError("password=hunter2"))) as worker:
        answer = await worker.ask("PUT", "/connectors/c/pause")
        (failed,) = [event for event in worker.events if isinstance(event, RequestFailed)]

    assert answer.error == (500, "Internal error: ValueError; the worker's log says more")
    assert (failed.route, failed.error_class, failed.message) == (
        "/connectors/{connector}/pause",
        "ValueError",
        "password=hunter2",
    )
    assert "Traceback" in failed.trace


async def test_a_herders_own_500_is_told() -> None:
    """Its text is made for clients."""
    async with served(FakeHerder(failure=RequestError("Worker is shutting down"))) as worker:
        assert (await worker.ask("PUT", "/connectors/c/pause")).error == (500, "Worker is shutting down")


async def test_what_broke_below_a_500_is_told_in_the_log() -> None:
    """A client that is to try again has no use for it; an operator has."""
    failure = RequestError("Failed to write to config topic")
    failure.__cause__ = ConnectionError("broker 1 is gone")
    async with served(FakeHerder(failure=failure)) as worker:
        answer = await worker.ask("PUT", "/connectors/c/pause")
        (failed,) = [event for event in worker.events if isinstance(event, RequestFailed)]
    assert answer.error == (500, "Failed to write to config topic")
    assert (failed.error_class, failed.message) == ("ConnectionError", "broker 1 is gone")


async def test_a_timeout_of_the_herders_own_is_no_timeout_of_the_request() -> None:
    """Only the request's own limit speaks of it."""
    async with served(FakeHerder(failure=TimeoutError("inner"))) as worker:
        status, text = (await worker.ask("PUT", "/connectors/c/pause")).error

    assert (status, "timed out" in text) == (500, False)


@pytest.mark.parametrize(
    ("method", "path", "is_first"), [("DELETE", "/connectors/file", True), ("GET", "/connectors", False)]
)
async def test_changes_go_before_what_the_worker_does_by_itself(method: str, path: str, *, is_first: bool) -> None:
    """Looking does not: a monitor that never ceases to ask would hold up every start."""
    async with served() as worker:
        assert worker.surface.foreground.is_calm
        await worker.ask(method, path)
        assert worker.surface.foreground.is_calm is not is_first
        await worker.surface.foreground.give_way()
        assert worker.surface.foreground.is_calm


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("text/plain", 406),
        ("text/html, image/gif", 406),
        ("nonsense", 406),
        ("application/json", 200),
        ("application/json;q=0", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain, application/*;q=0.1", 200),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", 200),
        ("", 200),
    ],
)
async def test_who_takes_no_json_gets_406(accept: str, status: int) -> None:
    """As Connect answers; also where an answer would have no body."""
    async with served() as worker:
        worker.herder.connectors["c"] = Kept({})
        read = await worker.ask("GET", "/connectors", headers={"Accept": accept})
        change = await worker.ask("PUT", "/connectors/c/pause", headers={"Accept": accept})
        unknown = await worker.ask("GET", "/nothing", headers={"Accept": accept})
        metrics = await worker.ask("GET", "/metrics", headers={"Accept": accept})

    assert read.status == status
    assert change.status == (406 if status == 406 else 202)
    assert (unknown.status, metrics.status) == (404, 200)
    if status == 406:
        assert read.error == (406, "HTTP 406 Not Acceptable")
