"""What a worker says of itself: the root, plugins and their keys, validation, loggers, health."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.differential.script import SINK, SOURCE, Ask, Script, entries_of

_FILE = "org.apache.kafka.connect.file."
_CONNECTORS = (f"{_FILE}FileStreamSourceConnector", f"{_FILE}FileStreamSinkConnector")
_OTHERS = (
    "org.apache.kafka.connect.transforms.InsertField$Key",
    "org.apache.kafka.connect.transforms.InsertField$Value",
    "org.apache.kafka.connect.transforms.HoistField$Value",
    "org.apache.kafka.connect.transforms.ExtractField$Key",
    "org.apache.kafka.connect.transforms.RegexRouter",
    "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    "org.apache.kafka.connect.json.JsonConverter",
    "org.apache.kafka.connect.storage.StringConverter",
)
_SOURCE_KEYS = ("file", "topic", "batch.size")
_SINK_KEYS = ("file",)


def _validated(*names: str) -> Callable[[Any], Any]:
    """The count of errors, and what is said of these keys."""

    def pick(body: Any) -> Any:
        values = {entry["value"]["name"]: entry for entry in body["configs"]}
        return {"name": body["name"], "count": body["error_count"], **{name: values.get(name) for name in names}}

    return pick


def _levels(body: Any) -> Any:
    """Whether a logger has a level and a time; which names there are is each worker's own."""
    return sorted(body["root"])


def _validate(name: str, plugin: str, config: object, *keys: str) -> Ask:
    path = f"/connector-plugins/{plugin}/config/validate"
    return Ask(name, "PUT", path, config, pick=_validated("name", "connector.class", "tasks.max", *keys))


ROOT = Script(
    "root",
    (
        Ask("root", "GET", "/"),
        Ask("health", "GET", "/health"),
        Ask("connectors as plugins", "GET", "/connector-plugins", pick=entries_of(_CONNECTORS)),
        Ask("with a slash", "GET", "/connector-plugins/", pick=entries_of(_CONNECTORS)),
        Ask("all plugins", "GET", "/connector-plugins?connectorsOnly=false", pick=entries_of((*_CONNECTORS, *_OTHERS))),
        *(
            Ask(f"keys of {name}", "GET", f"/connector-plugins/{name}/config", pick=entries_of(keys))
            for name, keys in (
                (_CONNECTORS[0], _SOURCE_KEYS),
                ("FileStreamSource", _SOURCE_KEYS),
                ("FileStreamSourceConnector", _SOURCE_KEYS),
                ("FileStreamSink", _SINK_KEYS),
                (_OTHERS[0], ("topic.field", "static.field", "static.value", "timestamp.field")),
                (_OTHERS[4], ("regex", "replacement")),
                (_OTHERS[5], ("pattern",)),
                (_OTHERS[8], ("schemas.enable", "schemas.cache.size", "decimal.format", "converter.type")),
            )
        ),
        Ask("keys of what is unknown", "GET", "/connector-plugins/Nope/config"),
        Ask("keys of a bad version", "GET", "/connector-plugins/FileStreamSource/config?version=%5Bx"),
    ),
    connectors=(),
)

VALIDATION = Script(
    "validation",
    (
        _validate("valid source", "FileStreamSource", {**SOURCE, "name": "{c}"}, *_SOURCE_KEYS),
        _validate("valid sink", "FileStreamSink", {**SINK, "name": "{c}"}, "topics", "topics.regex", *_SINK_KEYS),
        _validate("the class in other words", _CONNECTORS[0], {**SOURCE, "connector.class": _CONNECTORS[0]}),
        _validate("the path says less", "FileStreamSource", {**SOURCE, "connector.class": _CONNECTORS[0]}),
        _validate("the path says more", _CONNECTORS[0], SOURCE),
        _validate("another class", "FileStreamSink", SOURCE),
        _validate("unknown class", "Nope", {"connector.class": "Nope"}),
        _validate("validate without a class", "FileStreamSource", {"name": "{c}"}),
        _validate("validate nothing", "FileStreamSource", {}),
        _validate(
            "numbers and booleans", "FileStreamSource", {**SOURCE, "tasks.max": 2, "batch.size": 5}, *_SOURCE_KEYS
        ),
        _validate("missing keys", "FileStreamSource", {"connector.class": "FileStreamSource"}, *_SOURCE_KEYS),
        _validate("no topics", "FileStreamSink", {"connector.class": "FileStreamSink"}, "topics", "topics.regex"),
        _validate("both topics", "FileStreamSink", {**SINK, "topics.regex": "x"}, "topics", "topics.regex"),
        _validate("validate a null", "FileStreamSource", {**SOURCE, "name": "{c}", "batch.size": None}, *_SOURCE_KEYS),
        _validate("unknown keys", "FileStreamSource", {**SOURCE, "name": "{c}", "zzz": "1"}, "zzz"),
        Ask("validate a list", "PUT", "/connector-plugins/FileStreamSource/config/validate", []),
        Ask("validate a list in the config", "PUT", "/connector-plugins/FileStreamSource/config/validate", {"a": [1]}),
        Ask("validate cut JSON", "PUT", "/connector-plugins/FileStreamSource/config/validate", text="{"),
        Ask("validate null", "PUT", "/connector-plugins/FileStreamSource/config/validate", text="null"),
    ),
    connectors=(),
)

LOGGERS = Script(
    "loggers",
    (
        Ask("loggers", "GET", "/admin/loggers", pick=_levels),
        Ask("unknown logger", "GET", "/admin/loggers/no.such.logger"),
        Ask("set a level", "PUT", "/admin/loggers/differential.one", {"level": "DEBUG"}),
        Ask("set a level in small letters", "PUT", "/admin/loggers/differential.one", {"level": "warn"}),
        Ask("level that was set", "GET", "/admin/loggers/differential.one"),
        Ask("set a level for one worker", "PUT", "/admin/loggers/differential.one?scope=worker", {"level": "INFO"}),
        Ask("set a level for all", "PUT", "/admin/loggers/differential.two?scope=cluster", {"level": "ERROR"}),
        Ask("set the same level again", "PUT", "/admin/loggers/differential.one", {"level": "INFO"}),
        Ask("set a level for someone", "PUT", "/admin/loggers/differential.one?scope=someone", {"level": "INFO"}),
        Ask("set no level", "PUT", "/admin/loggers/differential.one", {}),
        Ask("set a null level", "PUT", "/admin/loggers/differential.one", {"level": None}),
        Ask("set a strange level", "PUT", "/admin/loggers/differential.one", {"level": "LOUD"}),
        Ask("set a level by a list", "PUT", "/admin/loggers/differential.one", []),
        Ask("set a level by cut JSON", "PUT", "/admin/loggers/differential.one", text="{"),
    ),
    connectors=(),
)

TYPES = Script(
    "types",
    (
        Ask("a list as plain text", "GET", "/connectors", accept="text/plain"),
        Ask("the root as a page", "GET", "/", accept="text/html, image/gif"),
        Ask("a list as anything", "GET", "/connectors", accept="*/*"),
        Ask("a list as Java's client asks", "GET", "/connectors", accept="text/html, image/gif, *; q=.2, */*; q=.2"),
        Ask("a list as any application", "GET", "/connectors", accept="text/plain, application/*;q=0.1"),
        Ask("a list as no JSON", "GET", "/connectors", accept="application/json;q=0"),
        Ask("a strange route as plain text", "GET", "/nothing", accept="text/plain"),
        Ask("pause as plain text", "PUT", "/connectors/{c}/pause", accept="text/plain"),
    ),
)
SCRIPTS = (ROOT, VALIDATION, LOGGERS, TYPES)
