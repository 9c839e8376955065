"""Pause, resume, stop, restart, initial states; what a failed connector looks like."""

from __future__ import annotations

from typing import Any

from tests.differential.script import (
    SINK,
    SOURCE,
    TEXTS,
    Ask,
    Lines,
    Script,
    Wait,
    create,
    in_states,
    is_running,
    offsets,
)

_RUNS, _PAUSED, _STOPPED = in_states("RUNNING", "RUNNING"), in_states("PAUSED", "PAUSED"), in_states("STOPPED")

CHANGES = Script(
    "changes",
    (
        create("create to change", SOURCE),
        _RUNS,
        Ask("pause", "PUT", "/connectors/{c}/pause"),
        _PAUSED,
        Ask("pause again", "PUT", "/connectors/{c}/pause"),
        Ask("status when paused", "GET", "/connectors/{c}/status"),
        Ask("tasks when paused", "GET", "/connectors/{c}/tasks"),
        Ask("restart when paused", "POST", "/connectors/{c}/restart"),
        Ask("restart a task when paused", "POST", "/connectors/{c}/tasks/0/restart"),
        _PAUSED,
        Ask("resume", "PUT", "/connectors/{c}/resume"),
        _RUNS,
        Ask("resume with a body that nobody reads", "PUT", "/connectors/{c}/resume", {"a": 1}),
        Ask("stop", "PUT", "/connectors/{c}/stop"),
        _STOPPED,
        Ask("stop again", "PUT", "/connectors/{c}/stop"),
        Ask("status when stopped", "GET", "/connectors/{c}/status"),
        Ask("connector when stopped", "GET", "/connectors/{c}"),
        Ask("tasks when stopped", "GET", "/connectors/{c}/tasks"),
        Ask("restart when stopped", "POST", "/connectors/{c}/restart"),
        Ask("restart all when stopped", "POST", "/connectors/{c}/restart?includeTasks=true"),
        Ask("pause when stopped", "PUT", "/connectors/{c}/pause"),
        in_states("PAUSED"),
        Ask("connector paused after a stop", "GET", "/connectors/{c}"),
        Ask("resume after a stop", "PUT", "/connectors/{c}/resume"),
        _RUNS,
        Ask("connector after it all", "GET", "/connectors/{c}"),
    ),
)


def _has_version(body: Any) -> bool:
    """Ours tells the state without it where the import of the class takes seconds, and once more when it knows it."""
    return "version" in body["connector"]


INITIAL = Script(
    "initial",
    (
        create("create stopped", SOURCE, initial_state="STOPPED"),
        _STOPPED,
        Ask("connector created stopped", "GET", "/connectors/{c}"),
        Ask("status of what was created stopped", "GET", "/connectors/{c}/status", is_settled=_has_version),
        Ask("put over what is stopped", "PUT", "/connectors/{c}/config", {**SOURCE, "batch.size": "7"}),
        _STOPPED,
        Ask("delete what is stopped", "DELETE", "/connectors/{c}"),
        Wait("/connectors/{c}/status", lambda status, _: status == 404),
        create("create paused, in small letters", SINK, initial_state="paused"),
        in_states("PAUSED"),
        Ask("connector created paused", "GET", "/connectors/{c}"),
        Ask("status of what was created paused", "GET", "/connectors/{c}/status", is_settled=_has_version),
        Ask("resume what was created paused", "PUT", "/connectors/{c}/resume"),
        _RUNS,
        Ask("status after the first resume", "GET", "/connectors/{c}/status"),
    ),
)

RESTARTS = Script(
    "restarts",
    (
        create("create to restart", SOURCE),
        _RUNS,
        Ask("restart", "POST", "/connectors/{c}/restart"),
        _RUNS,
        Ask("restart saying no twice", "POST", "/connectors/{c}/restart?includeTasks=false&onlyFailed=false"),
        _RUNS,
        Ask("restart what failed", "POST", "/connectors/{c}/restart?onlyFailed=true", is_settled=is_running),
        Ask(
            "restart what failed with tasks",
            "POST",
            "/connectors/{c}/restart?includeTasks=true&onlyFailed=true",
            is_settled=is_running,
        ),
        Ask("restart with tasks", "POST", "/connectors/{c}/restart?includeTasks=true&onlyFailed=false"),
        _RUNS,
        Ask("restart with nonsense", "POST", "/connectors/{c}/restart?includeTasks=nonsense"),
        _RUNS,
        Ask("restart with a body", "POST", "/connectors/{c}/restart", {"a": "b"}),
        _RUNS,
        Ask("restart a task", "POST", "/connectors/{c}/tasks/0/restart"),
        _RUNS,
        Ask("restart a task that is not there", "POST", "/connectors/{c}/tasks/9/restart"),
        Ask("restart a task without a number", "POST", "/connectors/{c}/tasks/x/restart"),
    ),
)


def _own_state(body: Any) -> Any:
    """The connector's; its task is on its way from RUNNING to FAILED at its own pace."""
    return body["connector"]


def _states(body: Any) -> Any:
    """Alone: whether there still is a trace depends on the task's pace, too."""
    return [body["connector"]["state"], *(task["state"] for task in body["tasks"])]


_SINK_FAILED = in_states("RUNNING", "FAILED", of="{c}-sink")
_JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
# Nothing here waits for a second failure: the first one still shows until the restart has begun.
FAILURES = Script(
    "failures",
    (
        create("create a source of what is no JSON", {**SOURCE, **TEXTS}),
        Lines(("no JSON",)),
        offsets(8),
        Ask("create a sink of JSON", "POST", "/connectors", {"name": "{c}-sink", "config": {**SINK, **_JSON}}),
        _SINK_FAILED,
        Ask("status of what failed", "GET", "/connectors/{c}-sink/status"),
        Ask("status of the task that failed", "GET", "/connectors/{c}-sink/tasks/0/status"),
        Ask("pause what failed", "PUT", "/connectors/{c}-sink/pause"),
        in_states("PAUSED", "FAILED", of="{c}-sink"),
        Ask("resume what failed", "PUT", "/connectors/{c}-sink/resume"),
        _SINK_FAILED,
        Ask("restart only what failed", "POST", "/connectors/{c}-sink/restart?includeTasks=true&onlyFailed=true"),
        Ask(
            "restart the connector that did not",
            "POST",
            "/connectors/{c}-sink/restart?onlyFailed=true",
            pick=_own_state,
        ),
        Ask("restart all there is", "POST", "/connectors/{c}-sink/restart?includeTasks=true", pick=_states),
        Ask("mend it", "PUT", "/connectors/{c}-sink/config", {**SINK, **TEXTS}),
        in_states("RUNNING", "RUNNING", of="{c}-sink"),
    ),
    connectors=("{c}", "{c}-sink"),
)

SCRIPTS = (CHANGES, INITIAL, RESTARTS, FAILURES)
