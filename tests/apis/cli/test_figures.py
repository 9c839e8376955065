"""What the commands show of a connector's figures, and what they wait for by them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from service.cli.main import main
from service.cli.remote import states
from service.cli.remote.running import Exit
from tests.apis.cli.remote_worker import FakeWorker, served

RUNNING = {"state": "RUNNING", "worker_id": "127.0.0.1:8083"}
STATUS: dict[str, Any] = {"name": "c", "connector": RUNNING, "tasks": [{"id": 0, **RUNNING}], "type": "source"}
INFO = {"name": "c", "config": {"name": "c"}, "tasks": [], "type": "source"}


def figures(**changes: Any) -> dict[str, Any]:
    """The worker's body of one connector with one task."""
    own = {
        "state": "RUNNING",
        "fetched_records": 1_234_600,
        "delivered_records": 1_234_567,
        "rejected_records": 12,
        "deduplicated_records": 0,
        "records_per_second": 12345.6,
        "lag_seconds": 150.0,
        "lag_records": None,
        "last_commit": "2026-01-02T03:04:05.678Z",
        "trouble": None,
    }
    task = {"task": 0, "started": None, "commits": 1, "is_caught_up": False, "records_in_hand": 0}
    own |= {name: value for name, value in changes.items() if name in own}
    task |= {name: value for name, value in changes.items() if name in task}
    return {"connectors": {"c": {**own, "tasks": [{**own, **task}]}}, "unanswered": []}


@pytest.fixture
def worker() -> Iterator[FakeWorker]:
    """A worker of ours with one connector."""
    with served(FakeWorker()) as running:
        running.answer("GET", "/connectors/c/status", (200, STATUS))
        running.answer("GET", "/connectors", (200, {"c": {"status": STATUS, "info": INFO}}))
        running.answer("GET", "/progress", (200, figures()))
        running.answer("POST", "/connectors", (201, INFO))
        yield running


def call(worker: FakeWorker, *words: str) -> Result:
    """Run one command, on a terminal of 80 columns."""
    return CliRunner().invoke(main, list(words), env={"HEADRACE_URL": worker.url, "COLUMNS": "80"})


@pytest.mark.parametrize("words", [("status", "c"), ("connectors",)])
def test_figures_are_shown_on_eighty_columns(worker: FakeWorker, words: tuple[str, ...]) -> None:
    """Counts, rate, lag and last commit, in one line each that is not broken."""
    result = call(worker, *words)
    assert result.exit_code == Exit.OK, result.output
    line = result.output.splitlines()[-1]
    for told in ("RUNNING", "1,234,567", "12", "12,346", "2 min", " d ago"):
        assert told in line
    assert max(map(len, result.output.splitlines())) <= 80


def test_json_has_the_figures_under_a_key_of_their_own(worker: FakeWorker) -> None:
    """Connect's body stays as it is beside them."""
    found = json.loads(call(worker, "status", "c", "--json").output)
    assert found == {**STATUS, "progress": figures()["connectors"]["c"]}
    listed = json.loads(call(worker, "connectors", "--json").output)
    assert listed["c"]["progress"] == found["progress"]


def trouble(message: str, *, attempt: int, is_over: bool = False) -> dict[str, Any]:
    """As the worker tells it."""
    return {"at": "2026-01-02T03:04:05.678Z", "message": message, "is_over": is_over, "attempt": attempt}


@pytest.mark.parametrize("words", [("status", "c"), ("connectors",)])
def test_trouble_is_shown_below(worker: FakeWorker, words: tuple[str, ...]) -> None:
    """A connector that is RUNNING and waits for its file says so."""
    worker.answer("GET", "/progress", (200, figures(trouble=trouble("file missing: file /x", attempt=0))))
    assert "file missing: file /x" in call(worker, *words).output


def test_create_waits_for_the_first_commit(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """RUNNING alone is not enough, nor is one try that failed."""
    monkeypatch.setattr(states, "_LOOK_SECONDS", 0.0)
    nothing = figures(commits=0, records_in_hand=3)
    once = figures(commits=0, trouble=trouble("fetch is tried again: 503", attempt=1))
    worker.answer("GET", "/progress", (200, nothing), (200, once), (200, figures()))
    result = call(worker, "create", "name=c", "--wait")
    assert result.exit_code == Exit.OK
    assert "c: first commit is done: 1,234,567 delivered, 12 rejected so far" in result.output


@pytest.mark.parametrize(
    ("found", "told", "code"),
    [
        (
            figures(commits=0, trouble=trouble("fetch is tried again: 503", attempt=2)),
            "nothing is committed yet: fetch is tried again: 503",
            Exit.FAILED,
        ),
        (
            figures(commits=0, trouble=trouble("file missing: file /x", attempt=0)),
            "nothing is committed yet: file missing: file /x",
            Exit.FAILED,
        ),
        (figures(commits=0, is_caught_up=True), "there was nothing to deliver", Exit.OK),
    ],
)
def test_waiting_says_what_it_has_come_to(worker: FakeWorker, found: Any, told: str, code: Exit) -> None:
    """A stage that fails twice, a file that is not there, a source that has nothing."""
    worker.answer("GET", "/progress", (200, found))
    result = call(worker, "create", "name=c", "--wait")
    assert (result.exit_code, told in result.output) == (code, True), result.output
    as_json = json.loads(call(worker, "create", "name=c", "--wait", "--json").output)
    assert told in as_json["outcome"]


def test_waiting_for_a_commit_has_an_end(worker: FakeWorker) -> None:
    """It says that nothing has failed either."""
    worker.answer("GET", "/progress", (200, figures(commits=0, records_in_hand=1)))
    result = call(worker, "create", "name=c", "--wait", "--timeout", "0.1")
    assert result.exit_code == Exit.FAILED
    assert "nothing was committed within 0.1 s, and nothing has failed" in result.output


def test_a_failure_ends_the_wait(worker: FakeWorker) -> None:
    """With the line that says why."""
    failed = {**RUNNING, "id": 0, "state": "FAILED", "trace": "Traceback\n  Fatal: no permission\n"}
    worker.answer("GET", "/connectors/c/status", (200, {**STATUS, "tasks": [failed]}))
    result = call(worker, "create", "name=c", "--wait")
    assert result.exit_code == Exit.FAILED
    assert "Fatal: no permission" in result.output
