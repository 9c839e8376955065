"""Creating, changing and deleting connectors, and everything that can be wrong with such a request."""

from __future__ import annotations

from tests.differential.script import SINK, SOURCE, Ask, Script, Wait, create, gone, in_states, is_running

_RUNS = in_states("RUNNING", "RUNNING")
_EMPTY = {"connector.class": "FileStreamSource"}

LIFE = Script(
    "life",
    (
        create("create a source", SOURCE),
        _RUNS,
        create("create what exists", SOURCE),
        Ask("list", "GET", "/connectors"),
        Ask("list with a slash", "GET", "/connectors/"),
        Ask("list with states", "GET", "/connectors?expand=status"),
        Ask("list with configs", "GET", "/connectors?expand=info"),
        Ask("list with both", "GET", "/connectors?expand=status&expand=info"),
        Ask("list with something unknown", "GET", "/connectors?expand=nonsense"),
        Ask("connector", "GET", "/connectors/{c}"),
        Ask("connector with a slash", "GET", "/connectors/{c}/"),
        Ask("config", "GET", "/connectors/{c}/config"),
        Ask("status", "GET", "/connectors/{c}/status"),
        Ask("tasks", "GET", "/connectors/{c}/tasks"),
        Ask("tasks with a slash", "GET", "/connectors/{c}/tasks/"),
        Ask("task status", "GET", "/connectors/{c}/tasks/0/status"),
        Ask("status of a task that is not there", "GET", "/connectors/{c}/tasks/7/status"),
        Ask("status of a task without a number", "GET", "/connectors/{c}/tasks/x/status"),
        Ask("task configs by the path of old", "GET", "/connectors/{c}/tasks-config"),
        Ask("put the same config", "PUT", "/connectors/{c}/config", SOURCE),
        Ask("put a number and a boolean", "PUT", "/connectors/{c}/config", {**SOURCE, "batch.size": 9, "x": True}),
        Ask("config with what was a number", "GET", "/connectors/{c}/config", is_settled=lambda body: "x" in body),
        Ask("patch a key in and one out", "PATCH", "/connectors/{c}/config", {"batch.size": None, "y": "1"}),
        Ask("patch what is wrong", "PATCH", "/connectors/{c}/config", {"tasks.max": "0"}),
        Ask("patch the class away", "PATCH", "/connectors/{c}/config", {"connector.class": None}),
        Ask("patch nothing", "PATCH", "/connectors/{c}/config", {}),
        _RUNS,
        Ask("delete", "DELETE", "/connectors/{c}"),
        gone(),
        Ask("connector after delete", "GET", "/connectors/{c}"),
        Ask("delete what is not there", "DELETE", "/connectors/{c}"),
        Ask("put as new", "PUT", "/connectors/{c}/config", SOURCE),
        _RUNS,
        Ask("put another kind", "PUT", "/connectors/{c}/config", SINK),
        Wait("/connectors/{c}", lambda status, body: status == 200 and body["type"] == "sink"),
        _RUNS,
        Ask("status of another kind", "GET", "/connectors/{c}/status", is_settled=is_running),
    ),
)

UNKNOWN = Script(
    "unknown",
    (
        Ask("unknown connector", "GET", "/connectors/{c}"),
        Ask("config of an unknown one", "GET", "/connectors/{c}/config"),
        Ask("status of an unknown one", "GET", "/connectors/{c}/status"),
        Ask("tasks of an unknown one", "GET", "/connectors/{c}/tasks"),
        Ask("task status of an unknown one", "GET", "/connectors/{c}/tasks/0/status"),
        Ask("offsets of an unknown one", "GET", "/connectors/{c}/offsets"),
        Ask("change offsets of an unknown one", "PATCH", "/connectors/{c}/offsets", {"offsets": [{"partition": {}}]}),
        Ask("reset offsets of an unknown one", "DELETE", "/connectors/{c}/offsets"),
        Ask("topics of an unknown one", "GET", "/connectors/{c}/topics"),
        Ask("reset topics of an unknown one", "PUT", "/connectors/{c}/topics/reset"),
        Ask("patch an unknown one", "PATCH", "/connectors/{c}/config", {"x": "1"}),
        Ask("pause an unknown one", "PUT", "/connectors/{c}/pause"),
        Ask("resume an unknown one", "PUT", "/connectors/{c}/resume"),
        Ask("stop an unknown one", "PUT", "/connectors/{c}/stop"),
        Ask("restart an unknown one", "POST", "/connectors/{c}/restart"),
        Ask("restart all of an unknown one", "POST", "/connectors/{c}/restart?includeTasks=true"),
        Ask("restart a task of an unknown one", "POST", "/connectors/{c}/tasks/0/restart"),
        Ask("unknown route", "GET", "/nowhere"),
        Ask("unknown route below a connector", "GET", "/connectors/{c}/nowhere"),
        Ask("wrong method", "POST", "/connectors/{c}/status"),
        Ask("wrong method for the root", "DELETE", "/"),
    ),
    connectors=(),
)

BAD_BODIES = Script(
    "bad-bodies",
    (
        Ask(
            "create with a name in the config",
            "POST",
            "/connectors",
            {"name": "{c}", "config": {**SOURCE, "name": "a"}},
        ),
        Ask("create without a class", "POST", "/connectors", {"name": "{c}", "config": {"file": "f"}}),
        Ask("create with an empty config", "POST", "/connectors", {"name": "{c}", "config": {}}),
        Ask(
            "create with a class that is not there",
            "POST",
            "/connectors",
            {"name": "{c}", "config": {"connector.class": "Nope"}},
        ),
        Ask("create what is invalid", "POST", "/connectors", {"name": "{c}", "config": _EMPTY}),
        Ask(
            "create what is invalid twice",
            "POST",
            "/connectors",
            {"name": "{c}", "config": {**_EMPTY, "tasks.max": "x"}},
        ),
        Ask("create without a name", "POST", "/connectors", {"config": SOURCE}),
        Ask("create with an empty name", "POST", "/connectors", {"name": " ", "config": SOURCE}),
        Ask("create with a null name", "POST", "/connectors", {"name": None, "config": SOURCE}),
        Ask("create without a config", "POST", "/connectors", {"name": "{c}"}),
        Ask("create with a null config", "POST", "/connectors", {"name": "{c}", "config": None}),
        Ask("create with a strange field", "POST", "/connectors", {"name": "{c}", "config": SOURCE, "z": 1}),
        Ask(
            "create with a strange state",
            "POST",
            "/connectors",
            {"name": "{c}", "config": SOURCE, "initial_state": "Z"},
        ),
        Ask("create with a list in the config", "POST", "/connectors", {"name": "{c}", "config": {**SOURCE, "a": [1]}}),
        Ask(
            "create with an object in the config", "POST", "/connectors", {"name": "{c}", "config": {**SOURCE, "a": {}}}
        ),
        Ask("create with cut JSON", "POST", "/connectors", text='{"name":'),
        Ask("create with a list", "POST", "/connectors", []),
        Ask("create with a text", "POST", "/connectors", "x"),
        Ask("create with null", "POST", "/connectors", text="null"),
        Ask("create with an empty body", "POST", "/connectors", text=""),
        Ask("create with another content type", "POST", "/connectors", {}, content_type="text/plain"),
        Ask("put another name", "PUT", "/connectors/{c}/config", {**SOURCE, "name": "a"}),
        Ask("put an empty config", "PUT", "/connectors/{c}/config", {}),
        Ask("put a list", "PUT", "/connectors/{c}/config", []),
        Ask("put null", "PUT", "/connectors/{c}/config", text="null"),
        Ask("put cut JSON", "PUT", "/connectors/{c}/config", text="{"),
        Ask("put nothing", "PUT", "/connectors/{c}/config", text=""),
        Ask("patch a list", "PATCH", "/connectors/{c}/config", []),
        Ask("patch cut JSON", "PATCH", "/connectors/{c}/config", text="{"),
        Ask("nothing was created", "GET", "/connectors"),
        Ask(
            "create with a null value", "POST", "/connectors", {"name": "{c}", "config": {**SOURCE, "batch.size": None}}
        ),
    ),
)

NAMES = Script(
    "names",
    (
        Ask("name with blanks around", "POST", "/connectors", {"name": " {c} ", "config": {**SOURCE, "name": "{c}"}}),
        in_states("RUNNING", "RUNNING"),
        Ask("name with a control character", "POST", "/connectors", {"name": "{c}\n2", "config": SOURCE}),
        Ask("name with other letters", "POST", "/connectors", {"name": "{c} a?ü", "config": SOURCE}),
        in_states("RUNNING", "RUNNING", of="{c}%20a%3F%C3%BC"),
        Ask("read by the encoded name", "GET", "/connectors/{c}%20a%3F%C3%BC/config"),
        Ask("delete by the encoded name", "DELETE", "/connectors/{c}%20a%3F%C3%BC"),
    ),
)

SCRIPTS = (LIFE, UNKNOWN, BAD_BODIES, NAMES)
