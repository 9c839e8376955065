"""The commands of the "Apache Kafka Series", and the stock files that come with Kafka, as they are printed."""

from __future__ import annotations

import json

import pytest

from service.config.files import read_properties
from tests.clients.conftest import COMMAND_SECONDS_MAX, SEEDS, Shell, printed
from tests.faults.worker_life import wait_until
from tests.java_connect import asked

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def started(shell: Shell, file: str) -> str:
    """The name of a connector made of a properties file."""
    config = read_properties(SEEDS / file)
    status, answer = asked(shell.url, "PUT", f"/connectors/{config['name']}/config", config)
    assert status == 201, answer
    return str(config["name"])


def test_every_command_of_the_series(shell: Shell) -> None:
    """In the order of the article, on the stock file source and sink; none sends a body or a content type."""
    (shell.folder / "test.txt").write_text("foo\nbar\n", encoding="utf-8")
    name = started(shell, "connect-file-source.properties")
    sink = started(shell, "connect-file-sink.properties")
    for each in (name, sink):
        shell.wait_states(each, "RUNNING", "RUNNING")

    of_worker, of_plugins, of_names, restart, tasks_of, restart_task, pause, resume, status_of, of_one, delete = (
        command.replace("<name>", name).replace("<n>", "0") for command in printed("series.sh")
    )
    assert shell.run(of_worker)[0] == 200
    assert shell.run(of_plugins)[0] == 200
    status, names = shell.run(of_names)
    assert (status, {name, sink} <= set(names)) == (200, True)
    assert shell.run(restart) == (204, None)
    status, tasks = shell.run(tasks_of)
    assert (status, tasks[0]["id"]) == (200, {"connector": name, "task": 0})
    assert shell.run(restart_task) == (204, None)
    shell.wait_states(name, "RUNNING", "RUNNING")
    assert shell.run(pause) == (202, None)
    shell.wait_states(name, "PAUSED", "PAUSED")
    assert shell.run(resume) == (202, None)
    shell.wait_states(name, "RUNNING", "RUNNING")
    assert shell.run(status_of)[0] == 200
    assert shell.run(of_one)[0] == 200
    copy = shell.folder / "test.sink.txt"
    assert wait_until(
        lambda: copy.exists() and copy.read_bytes() == b"foo\nbar\n",
        seconds_max=COMMAND_SECONDS_MAX,
    )
    for each in (name, sink):
        assert shell.run(delete.replace(name, each)) == (204, None)


def test_the_mixpanel_readmes_config_is_valid(shell: Shell) -> None:
    """With its blanks around the equals signs."""
    config = read_properties(SEEDS / "mixpanel.properties")
    path = f"/connector-plugins/{config['connector.class']}/config/validate"
    status, found = asked(shell.url, "PUT", path, config)
    errors = [error for entry in found["configs"] for error in entry["value"]["errors"]]
    assert (status, found["error_count"], errors) == (200, 0, [])
    assert "YOUR_MIXPANEL" not in json.dumps(found)
