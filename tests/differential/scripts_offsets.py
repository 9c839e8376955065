"""Offsets and topics of sources and sinks, and all that can be wrong with a change of offsets."""

from __future__ import annotations

from typing import Any

from tests.differential.script import SINK, SOURCE, TEXTS, Ask, Lines, Script, Step, Wait, create, in_states, offsets

_RUNS, _STOPPED = in_states("RUNNING", "RUNNING"), in_states("STOPPED")
_PATH = "/connectors/{c}/offsets"
_SINK_PATH = "/connectors/{c}-sink/offsets"
# Connect lists partitions before it has read its own change: once it may show a forgotten one, its offset null.
_FORGOTTEN = Wait(_PATH, lambda _, body: all(each["offset"] for each in body["offsets"]))
# And it resets those that it has read of: one that was just written would be left.
_BOTH_READ = Wait(_PATH, lambda _, body: {8, 9} <= {(each["offset"] or {}).get("position") for each in body["offsets"]})


def alter(name: str, *entries: object) -> Ask:
    """A change of offsets."""
    return Ask(name, "PATCH", _PATH, {"offsets": list(entries)})


def source(name: str, offset: object, partition: object = None) -> Ask:
    """A change of the file source's one offset."""
    return alter(name, {"partition": partition or {"filename": "{f}"}, "offset": offset})


def alter_sink(name: str, *entries: object) -> Ask:
    """A change of offsets of the sink."""
    return Ask(name, "PATCH", _SINK_PATH, {"offsets": list(entries)})


def sink(name: str, offset: object = None, **partition: object) -> Ask:
    """A change of one offset of the sink."""
    return alter_sink(name, {"partition": partition, "offset": offset})


def _has_topic(status: int, body: Any) -> bool:
    return status == 200 and any(found["topics"] for found in body.values())


_BODIES: tuple[Step, ...] = (
    Ask("offsets: an empty object", "PATCH", _PATH, {}),
    alter("offsets: none"),
    Ask("offsets: a list", "PATCH", _PATH, []),
    Ask("offsets: null", "PATCH", _PATH, text="null"),
    Ask("offsets: cut JSON", "PATCH", _PATH, text='{"offsets":['),
    Ask("offsets: an object for the list", "PATCH", _PATH, {"offsets": {}}),
    Ask("offsets: a strange field", "PATCH", _PATH, {"key": []}),
    alter("offsets: a strange field in an entry", {"key": "v"}),
    alter("offsets: a number for an entry", 123),
)

SOURCES = Script(
    "source-offsets",
    (
        create("create to read", SOURCE),
        _RUNS,
        Ask("offsets before any line", "GET", _PATH),
        Lines(("one", "two", "three")),
        offsets(14),
        Ask("offsets of a source", "GET", _PATH),
        Wait("/connectors/{c}/topics", _has_topic),
        Ask("topics", "GET", "/connectors/{c}/topics"),
        Ask("reset topics", "PUT", "/connectors/{c}/topics/reset"),
        source("change while running", {"position": 4}),
        Ask("reset while running", "DELETE", _PATH),
        Ask("pause before a change", "PUT", "/connectors/{c}/pause"),
        in_states("PAUSED", "PAUSED"),
        source("change while paused", {"position": 4}),
        Ask("stop before a change", "PUT", "/connectors/{c}/stop"),
        _STOPPED,
        *_BODIES,
        source("change", {"position": 4}),
        Ask("offsets after the change", "GET", _PATH),
        source("change to a text", {"position": "4"}),
        source("change to a fraction", {"position": 4.5}),
        source("change to a boolean", {"position": True}),
        source("change to less than nothing", {"position": -1}),
        source("change to null inside", {"position": None}),
        source("change to another key", {"place": 1}),
        source("change to a list", {"position": [1]}),
        source("change to an object", {"position": {"a": 1}}),
        source("change to nothing known", {}),
        source("change of a partition unknown", {"position": 3}, {"filename": "elsewhere"}),
        source("change of a partition without a file", {"position": 3}, {"file": "elsewhere"}),
        source("change of a partition that is a number", {"position": 3}, {"filename": 3}),
        alter("change of no partition", {"offset": {"position": 3}}),
        alter("change of a null partition", {"partition": None, "offset": {"position": 3}}),
        alter("change of an empty entry", {}),
        alter(
            "change of two at once",
            {"partition": {"filename": "{f}"}, "offset": {"position": 8}},
            {"partition": {"filename": "{f}2"}, "offset": {"position": 9}},
        ),
        _BOTH_READ,
        Ask("reset of all", "DELETE", _PATH),
        _FORGOTTEN,
        Ask("offsets after the reset", "GET", _PATH),
        Ask("reset of none", "DELETE", _PATH),
        source("change before a resume", {"position": 4}),
        source("forget one", None),
        _FORGOTTEN,
        Ask("offsets after one is forgotten", "GET", _PATH),
        source("last change", {"position": 8}),
        Ask("resume after the changes", "PUT", "/connectors/{c}/resume"),
        offsets(14),
    ),
)

_SINK_CHANGES: tuple[Step, ...] = (
    sink("sink: change", {"kafka_offset": 1}, kafka_topic="{t}", kafka_partition=0),
    Ask("sink: offsets after the change", "GET", _SINK_PATH),
    sink("sink: numbers as texts", {"kafka_offset": "2"}, kafka_topic="{t}", kafka_partition="0"),
    Ask("sink: offsets after texts", "GET", _SINK_PATH),
    alter_sink("sink: no partition", {"offset": {"kafka_offset": 1}}),
    alter_sink("sink: null partition", {"partition": None, "offset": {"kafka_offset": 1}}),
    sink("sink: no partition number", {"kafka_offset": 1}, kafka_topic="{t}"),
    sink("sink: no topic", {"kafka_offset": 1}, kafka_partition=0),
    sink("sink: null topic", {"kafka_offset": 1}, kafka_topic=None, kafka_partition=0),
    sink("sink: topic a number", {"kafka_offset": 1}, kafka_topic=5, kafka_partition=0),
    sink("sink: null partition number", {"kafka_offset": 1}, kafka_topic="{t}", kafka_partition=None),
    sink("sink: partition a word", {"kafka_offset": 1}, kafka_topic="{t}", kafka_partition="x"),
    sink("sink: partition a fraction", {"kafka_offset": 1}, kafka_topic="{t}", kafka_partition=1.5),
    sink("sink: offset of another key", {"offset": 1}, kafka_topic="{t}", kafka_partition=0),
    sink("sink: offset a word", {"kafka_offset": "x"}, kafka_topic="{t}", kafka_partition=0),
    sink("sink: offset null inside", {"kafka_offset": None}, kafka_topic="{t}", kafka_partition=0),
    sink("sink: one forgotten", None, kafka_topic="{t}", kafka_partition=0),
    Ask("sink: offsets after one is forgotten", "GET", _SINK_PATH),
    sink("sink: change back", {"kafka_offset": 2}, kafka_topic="{t}", kafka_partition=0),
    sink("sink: partition unknown", {"kafka_offset": 2}, kafka_topic="{t}", kafka_partition=7),
    sink("sink: topic unknown", {"kafka_offset": 2}, kafka_topic="{t}-nowhere", kafka_partition=0),
    sink("sink: one forgotten of a topic unknown", None, kafka_topic="{t}-nowhere", kafka_partition=0),
    Ask("sink: offsets after what is unknown", "GET", _SINK_PATH),
    sink("sink: offset beyond the end", {"kafka_offset": 99}, kafka_topic="{t}", kafka_partition=0),
    Ask("sink: offsets beyond the end", "GET", _SINK_PATH),
    Ask("sink: reset of all", "DELETE", _SINK_PATH),
    Ask("sink: offsets after the reset", "GET", _SINK_PATH),
)

SINKS = Script(
    "sink-offsets",
    (
        create("create what fills a topic", {**SOURCE, **TEXTS}),
        Lines(("one", "two", "three")),
        offsets(14),
        Ask("create a sink", "POST", "/connectors", {"name": "{c}-sink", "config": {**SINK, **TEXTS}}),
        in_states("RUNNING", "RUNNING", of="{c}-sink"),
        offsets(3, key="kafka_offset", of="{c}-sink"),
        Ask("offsets of a sink", "GET", "/connectors/{c}-sink/offsets"),
        Wait("/connectors/{c}-sink/topics", _has_topic),
        Ask("topics of a sink", "GET", "/connectors/{c}-sink/topics"),
        Ask("reset of a running sink", "DELETE", "/connectors/{c}-sink/offsets"),
        Ask("delete what fills", "DELETE", "/connectors/{c}"),
        Ask("stop the sink", "PUT", "/connectors/{c}-sink/stop"),
        in_states("STOPPED", of="{c}-sink"),
        *_SINK_CHANGES,
    ),
    connectors=("{c}", "{c}-sink"),
)


SCRIPTS = (SOURCES, SINKS)
