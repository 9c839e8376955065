"""The commands that ask a worker: what they send, show, and tell scripts by their exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli.main import COMPLETION_VARIABLE, main
from service.cli.remote import client, connectors
from service.cli.remote.running import Exit
from tests.apis.cli.remote_worker import STATUS, FakeWorker, served

INFO = {"name": "c", "config": {"name": "c"}, "tasks": [], "type": "source"}


@pytest.fixture
def worker() -> Iterator[FakeWorker]:
    """A worker without connectors."""
    with served(FakeWorker()) as running:
        yield running


def call(worker: FakeWorker, *words: str, stdin: str | None = None) -> Result:
    """Run one command against the worker."""
    return CliRunner().invoke(main, list(words), env={"HEADRACE_URL": worker.url, "COLUMNS": "200"}, input=stdin)


def test_a_list_shows_states_and_failed_tasks(worker: FakeWorker) -> None:
    """One line a connector, sorted; failed tasks are counted."""
    other = {"status": {**STATUS, "tasks": []}, "info": INFO}
    worker.answer("GET", "/connectors", (200, {"z": other, "orders/eu": {"status": STATUS, "info": INFO}}))
    result = call(worker, "connectors")
    lines = result.output.splitlines()
    assert result.exit_code == Exit.OK
    assert lines[1].split() == ["orders/eu", "source", "FAILED", "1", "of", "2", "running,", "1", "failed"]
    assert lines[2].split() == ["z", "source", "RUNNING", "none", "yet"]
    assert lines[3] == "orders/eu: Fatal: the file is gone"
    assert worker.asked[0][1] == "/connectors?expand=status&expand=info"


def test_json_is_the_workers_own_answer(worker: FakeWorker) -> None:
    """Scripts get the body, not a table."""
    worker.answer("GET", "/connectors/orders%2Feu/status", (200, STATUS))
    result = call(worker, "status", "orders/eu", "--json")
    assert json.loads(result.output) == STATUS


def test_a_failed_task_is_exit_code_1(worker: FakeWorker) -> None:
    """Shown with the line that says why, and told to scripts."""
    worker.answer("GET", "/connectors/orders%2Feu/status", (200, STATUS))
    result = call(worker, "status", "orders/eu")
    assert result.exit_code == Exit.FAILED
    assert "Fatal: the file is gone" in result.output


def test_logs_show_whole_traces(worker: FakeWorker) -> None:
    """The trace of what failed, and nothing of what runs."""
    worker.answer("GET", "/connectors/orders%2Feu/status", (200, STATUS))
    result = call(worker, "logs", "orders/eu")
    assert "Traceback" in result.output
    assert "orders/eu-0" not in result.output
    assert result.exit_code == Exit.FAILED


def test_create_sends_a_request_as_connect_knows_it(worker: FakeWorker, tmp_path: Path) -> None:
    """A properties file, words over it, the initial state."""
    file = tmp_path / "c.properties"
    file.write_text("name = c\nconnector.class=FileStreamSource\ntopic=a\n")
    worker.answer("POST", "/connectors", (201, INFO))
    result = call(worker, "create", "-f", str(file), "topic=b=c", "--initial-state", "paused")
    assert result.exit_code == Exit.OK, result.output
    assert worker.asked[0][3] == {
        "name": "c",
        "config": {"name": "c", "connector.class": "FileStreamSource", "topic": "b=c"},
        "initial_state": "PAUSED",
    }


def test_create_waits_until_the_tasks_run(worker: FakeWorker) -> None:
    """No status yet, then a connector without tasks, then all RUNNING."""
    alone = {**STATUS, "name": "c", "tasks": []}
    whole = {**alone, "tasks": [STATUS["tasks"][0]]}  # type: ignore[index]
    worker.answer("POST", "/connectors", (201, INFO))
    missing = (404, {"error_code": 404, "message": "No status found for connector c"})
    worker.answer("GET", "/connectors/c/status", missing, (200, alone), (200, whole))
    result = call(worker, "create", "name=c", "--wait")
    assert result.exit_code == Exit.OK, result.output
    assert [path for _, path, _, _ in worker.asked] == [
        "/connectors",
        *["/connectors/c/status"] * 2,
        "/progress?connector=c",
        *["/connectors/c/status", "/progress?connector=c"],
    ]


@pytest.mark.parametrize("words", [("create", "name=orders/eu"), ("apply", "name=orders/eu")])
def test_what_waits_gives_one_answer_as_json(
    worker: FakeWorker, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that was waited for, and not the answer to the change before it."""
    monkeypatch.setattr(connectors, "SETTLED_SECONDS", 0.0)
    worker.answer("POST", "/connectors", (201, INFO))
    worker.answer("PUT", "/connectors/orders%2Feu/config", (200, INFO))
    worker.answer("GET", "/connectors/orders%2Feu/status", (200, STATUS))
    assert json.loads(call(worker, *words, "--wait", "--json").output) == STATUS
    assert json.loads(call(worker, *words, "--json").output) == INFO


def test_apply_does_not_believe_what_ran_before(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure that the change has mended, and then tasks that are not all of those to come."""
    monkeypatch.setattr(connectors, "SETTLED_SECONDS", 0.2)
    running = STATUS["tasks"][0]  # type: ignore[index]
    whole, part = ({**STATUS, "name": "c", "tasks": [running] * count} for count in (2, 1))
    failed = {**STATUS, "name": "c"}
    worker.answer("PUT", "/connectors/c/config", (200, INFO))
    worker.answer("GET", "/connectors/c/status", (200, failed), (200, part), (200, whole))
    result = call(worker, "apply", "name=c", "--wait", "--json")
    assert (result.exit_code, json.loads(result.output)) == (Exit.OK, whole)
    worker.answer("GET", "/connectors/c/status", (200, failed))
    assert call(worker, "apply", "name=c", "--wait").exit_code == Exit.FAILED
    assert call(worker, "apply", "name=c", "--wait", "--timeout", "0.1").exit_code == Exit.FAILED


def test_waiting_ends_at_a_failure(worker: FakeWorker) -> None:
    """A FAILED task will not become RUNNING: exit code 1, without using up the time."""
    worker.answer("GET", "/connectors/orders%2Feu/status", (200, STATUS))
    assert call(worker, "status", "orders/eu", "--wait", "RUNNING").exit_code == Exit.FAILED


def test_waiting_has_an_end(worker: FakeWorker) -> None:
    """What never comes is exit code 1 after the time-out."""
    worker.answer("GET", "/connectors/c/status", (200, {**STATUS, "tasks": []}))
    result = call(worker, "status", "c", "--wait", "PAUSED", "--timeout", "0.1")
    assert result.exit_code == Exit.FAILED


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_target_states_are_asked_for_each_name(worker: FakeWorker, verb: str) -> None:
    """Several names in one call; the name is quoted once."""
    for name in ("a", "b%25c"):
        worker.answer("PUT", f"/connectors/{name}/{verb}", (202, None))
    result = call(worker, verb, "a", "b%c")
    assert result.exit_code == Exit.OK
    assert [path for _, path, _, _ in worker.asked] == [f"/connectors/a/{verb}", f"/connectors/b%25c/{verb}"]


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["restart", "c"], "/connectors/c/restart?includeTasks=false&onlyFailed=false"),
        (["restart", "c", "--tasks", "--failed"], "/connectors/c/restart?includeTasks=true&onlyFailed=true"),
        (["restart", "c", "--task", "3"], "/connectors/c/tasks/3/restart"),
    ],
)
def test_restarts_say_what_restarts(worker: FakeWorker, words: list[str], path: str) -> None:
    """The connector, its tasks, or one of them."""
    worker.answer("POST", path.partition("?")[0], (202, STATUS) if "--failed" in words else (204, None))
    assert call(worker, *words).exit_code == Exit.OK
    assert worker.asked[0][1] == path


def test_what_is_odd_about_a_config_that_is_taken_is_told(worker: FakeWorker, tmp_path: Path) -> None:
    """On standard error, so that the answer as JSON stays one; nothing where a worker does not say."""
    file = tmp_path / "c.properties"
    file.write_text("name=c\nconnector.class=FileStreamSource\ntopic=a\ntopik=b\n")
    info = {**INFO, "config": {"name": "c", "connector.class": "FileStreamSource"}}
    worker.answer("POST", "/connectors", (201, info))
    worker.answer("PUT", "/connectors/c/config", (200, info))
    worker.answer("PATCH", "/connectors/c/config", (200, info))
    commands = [("create", "-f", str(file)), ("apply", "-f", str(file)), ("patch", "c", "topik=b")]
    for words in commands:
        assert call(worker, *words, "--json").stderr == ""
    told = {"warnings": [{"key": "topik", "message": "Nothing reads it; did you mean topic?"}]}
    worker.answer("PUT", "/connector-plugins/FileStreamSource/config/validate", (200, told))
    for words in commands:
        result = call(worker, *words, "--json")
        assert (json.loads(result.stdout), result.exit_code) == (info, Exit.OK)
        assert result.stderr == "warning: topik: Nothing reads it; did you mean topic?\n"


def test_patch_sets_and_removes(worker: FakeWorker) -> None:
    """KEY=VALUE and KEY-; a value may end with a dash."""
    worker.answer("PATCH", "/connectors/c/config", (200, INFO))
    assert call(worker, "patch", "c", "a=1-", "b-").exit_code == Exit.OK
    assert worker.asked[0][3] == {"a": "1-", "b": None}


def test_offsets_are_shown_and_changed(worker: FakeWorker) -> None:
    """The bodies of Connect's offset requests."""
    entry = {"partition": {"filename": "/f"}, "offset": {"position": 4}}
    worker.answer("GET", "/connectors/c/offsets", (200, {"offsets": [entry]}))
    worker.answer("PATCH", "/connectors/c/offsets", (200, {"message": "altered"}))
    worker.answer("DELETE", "/connectors/c/offsets", (200, {"message": "reset"}))
    assert '{"position":4}' in call(worker, "offsets", "show", "c").output
    assert call(worker, "offsets", "set", "c", '{"filename":"/f"}', "null").output == "altered\n"
    assert call(worker, "offsets", "reset", "c").output == "reset\n"
    assert worker.asked[1][3] == {"offsets": [{"partition": {"filename": "/f"}, "offset": None}]}


def test_a_rebalance_is_waited_for(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """409 is asked again, as Kafka's own clients do."""
    monkeypatch.setattr(client, "CONFLICT_WAIT_SECONDS", 0.0)
    busy = (409, {"error_code": 409, "message": "Cannot complete request momentarily due to …"})
    worker.answer("DELETE", "/connectors/c", busy, busy, (204, None))
    assert call(worker, "delete", "c").exit_code == Exit.OK
    assert len(worker.asked) == 3


def test_a_taken_name_is_a_conflict_at_once(worker: FakeWorker) -> None:
    """Waiting does not make a name free."""
    worker.answer("POST", "/connectors", (409, {"error_code": 409, "message": "Connector c already exists"}))
    result = call(worker, "create", "name=c")
    assert result.exit_code == Exit.CONFLICT
    assert "already exists" in result.output
    assert len(worker.asked) == 1


@pytest.mark.parametrize(
    ("status", "code"), [(400, Exit.REFUSED), (401, Exit.REFUSED), (404, Exit.NOT_FOUND), (500, Exit.REFUSED)]
)
def test_errors_are_exit_codes(worker: FakeWorker, status: int, code: Exit) -> None:
    """The worker's words on standard error, a code for scripts."""
    worker.answer("GET", "/connectors/c/config", (status, {"error_code": status, "message": "said so"}))
    result = call(worker, "config", "c")
    assert (result.exit_code, result.stderr) == (code, "headrace: said so\n")


def test_nobody_there_is_exit_code_4() -> None:
    """One line that names the address."""
    result = CliRunner().invoke(main, ["connectors", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == Exit.UNREACHABLE
    assert result.stderr.startswith("headrace: no worker answers at http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--token", "t0k"], "Bearer t0k"), (["--user", "ann:p:w"], "Basic YW5uOnA6dw==")],
)
def test_credentials_are_sent(worker: FakeWorker, words: list[str], expected: str) -> None:
    """Bearer or Basic; a password may hold a colon."""
    worker.answer("GET", "/connector-plugins", (200, []))
    call(worker, "plugins", "list", *words)
    assert worker.asked[0][2] == expected


def test_values_are_no_markup(worker: FakeWorker) -> None:
    """What stands in a config is shown as it is."""
    worker.answer("GET", "/connectors/c/config", (200, {"name": "[red]c[/red]"}))
    assert "[red]c[/red]" in call(worker, "config", "c").output


@pytest.mark.parametrize(
    "words", [["create"], ["create", "a=b"], ["create", "nonsense"], ["offsets", "set", "c", "{", "1"]]
)
def test_wrong_usage_is_exit_code_2(worker: FakeWorker, words: list[str]) -> None:
    """Said before anything is asked."""
    assert call(worker, *words).exit_code == Exit.REFUSED
    assert worker.asked == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_this_command_line(shell: str) -> None:
    """The script names the variable that the command line listens to, and the words come from the commands."""
    script = CliRunner().invoke(main, ["completion", shell])
    assert COMPLETION_VARIABLE in script.output
    environment = {COMPLETION_VARIABLE: "bash_complete", "COMP_WORDS": "headrace sta", "COMP_CWORD": "1"}
    found = CliRunner().invoke(main, [], prog_name="headrace", complete_var=COMPLETION_VARIABLE, env=environment)
    assert found.output.split() == ["plain,standalone", "plain,status"]
