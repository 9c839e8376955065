"""The commands of the "Apache Kafka Series", and the stock files that come with Kafka, as they are printed."""

from __future__ import annotations

import json

import javaproperties
import pytest

from tests.clients.conftest import COMMAND_SECONDS_MAX, Shell
from tests.faults.worker_life import wait_until
from tests.java_connect import asked

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

FILE_SOURCE = """\
name=local-file-source
connector.class=FileStreamSource
tasks.max=1
file=test.txt
topic=connect-test
"""
FILE_SINK = """\
name=local-file-sink
connector.class=FileStreamSink
tasks.max=1
file=test.sink.txt
topics=connect-test
"""
MIXPANEL = """\
name=mixpanel-connector
connector.class=org.apache.kafka.connect.mixpanel.MixPanelConnector
tasks.max=1
api_key = YOUR_MIXPANEL_API_KEY
api_secret = YOUR_MIXPANEL_SECRET_KEY
from_date = 2016-02-01
topic=mixp
"""


def started(shell: Shell, text: str) -> str:
    """The name of a connector made of a properties file."""
    config = javaproperties.loads(text)
    status, answer = asked(shell.url, "PUT", f"/connectors/{config['name']}/config", config)
    assert status == 201, answer
    return str(config["name"])


def test_every_command_of_the_series(shell: Shell) -> None:
    """In the order of the article, on the stock file source and sink; none sends a body or a content type."""
    (shell.folder / "test.txt").write_text("foo\nbar\n", encoding="utf-8")
    name, sink = started(shell, FILE_SOURCE), started(shell, FILE_SINK)
    for each in (name, sink):
        shell.wait_states(each, "RUNNING", "RUNNING")

    def run(command: str) -> tuple[int, object]:
        return shell.run(command.replace("<name>", name).replace("<n>", "0"))

    assert run("curl localhost:8083")[0] == 200
    assert run("curl localhost:8083/connector-plugins")[0] == 200
    status, names = shell.run("curl localhost:8083/connectors")
    assert (status, {name, sink} <= set(names)) == (200, True)
    assert run("curl -X POST localhost:8083/connectors/<name>/restart") == (204, None)
    status, tasks = shell.run(f"curl localhost:8083/connectors/{name}/tasks")
    assert (status, tasks[0]["id"]) == (200, {"connector": name, "task": 0})
    assert run("curl -X POST localhost:8083/connectors/<name>/tasks/<n>/restart") == (204, None)
    shell.wait_states(name, "RUNNING", "RUNNING")
    assert run("curl -X PUT localhost:8083/connectors/<name>/pause") == (202, None)
    shell.wait_states(name, "PAUSED", "PAUSED")
    assert run("curl -X PUT localhost:8083/connectors/<name>/resume") == (202, None)
    shell.wait_states(name, "RUNNING", "RUNNING")
    assert run("curl localhost:8083/connectors/<name>/status")[0] == 200
    assert run("curl localhost:8083/connectors/<name>")[0] == 200
    copy = shell.folder / "test.sink.txt"
    assert wait_until(
        lambda: copy.exists() and copy.read_bytes() == b"foo\nbar\n",
        seconds_max=COMMAND_SECONDS_MAX,
    )
    for each in (name, sink):
        assert shell.run(f"curl -X DELETE localhost:8083/connectors/{each}") == (204, None)


def test_the_mixpanel_readmes_config_is_valid(shell: Shell) -> None:
    """With its blanks around the equals signs."""
    config = javaproperties.loads(MIXPANEL)
    path = f"/connector-plugins/{config['connector.class']}/config/validate"
    status, found = asked(shell.url, "PUT", path, config)
    errors = [error for entry in found["configs"] for error in entry["value"]["errors"]]
    assert (status, found["error_count"], errors) == (200, 0, [])
    assert "YOUR_MIXPANEL" not in json.dumps(found)
