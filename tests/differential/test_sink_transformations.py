"""Transformations of sinks beside Kafka Connect's own: one topic, two file sinks, files byte by byte.

JSON without a schema stays JSON in our file, where Java prints a hash map. There each of our lines is printed as Java
would print its value, and then compared.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from service.embedded.running import Running
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.producer import IdempotentWriter
from service.kafka.reader import StoredRecord
from service.kafka.records import TopicRecords
from tests.differential.java_text import java_text
from tests.integration.sinks.sink_runs import Sinks, lines_of, stored, wait_until
from tests.java_connect import JavaConnect
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGE = "org.apache.kafka.connect.transforms"
TIMESTAMP_MS = 1_700_000_000_123
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
PLAIN = {**JSON, "value.converter.schemas.enable": "false"}
STRING = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
HOISTED = {"transforms.hoist.type": f"{PACKAGE}.HoistField$Value", "transforms.hoist.field": "line"}
INSERTED = {
    "transforms.insert.type": f"{PACKAGE}.InsertField$Value",
    "transforms.insert.topic.field": "from_topic!",
    "transforms.insert.partition.field": "from_partition",
    "transforms.insert.offset.field": "from_offset?",
    "transforms.insert.timestamp.field": "at",
    "transforms.insert.static.field": "source",
    "transforms.insert.static.value": "a, b",
}
BOTH = {"transforms": "hoist,insert", **HOISTED, **INSERTED}
ROUTED = {
    "transforms": "route,hoist,insert,extract",
    "transforms.route.type": f"{PACKAGE}.RegexRouter",
    "transforms.route.regex": r"(\w+)-.*",
    "transforms.route.replacement": "$1-routed",
    "transforms.route.predicate": "marked",
    **HOISTED,
    "transforms.hoist.predicate": "tombstone",
    "transforms.hoist.negate": "true",
    "transforms.insert.type": f"{PACKAGE}.InsertField$Value",
    "transforms.insert.topic.field": "topic",
    "transforms.insert.predicate": "routed",
    "transforms.extract.type": f"{PACKAGE}.ExtractField$Value",
    "transforms.extract.field": "line",
    "transforms.extract.predicate": "routed",
    "transforms.extract.negate": "true",
    "predicates": "marked,tombstone,routed",
    "predicates.marked.type": f"{PACKAGE}.predicates.HasHeaderKey",
    "predicates.marked.name": "mark",
    "predicates.tombstone.type": f"{PACKAGE}.predicates.RecordIsTombstone",
    "predicates.routed.type": f"{PACKAGE}.predicates.TopicNameMatches",
    "predicates.routed.pattern": ".*-routed",
}


def extracted(path: str) -> dict[str, str]:
    """One field, by a path."""
    return {
        "transforms": "extract",
        "transforms.extract.type": f"{PACKAGE}.ExtractField$Value",
        "transforms.extract.field": path,
        "transforms.extract.field.syntax.version": "V2",
    }


def enveloped(schema: object, payload: object) -> bytes:
    """As JsonConverter writes it."""
    return json.dumps({"schema": schema, "payload": payload}).encode()


def field(name: str, kind: str, **more: object) -> dict[str, object]:
    """One of a struct, optional."""
    return {"field": name, "type": kind, "optional": True, **more}


INNER = field("inner", "struct", fields=[field("d", "double", default=2.5), field("s", "string")])
STRUCT = {"type": "struct", "optional": True, "name": "Outer", "fields": [field("id", "int64"), INNER]}
TEXT = {"type": "string", "optional": True}
LINES: list[bytes | None] = [b"foo", None, "a é😀 line".encode(), b"", b"null"]
STRUCTS: list[bytes | None] = [
    enveloped(STRUCT, {"id": 1, "inner": {"d": 1.5, "s": "x"}}),
    enveloped(STRUCT, {"inner": {"s": "no d"}}),
    enveloped(STRUCT, {"id": None, "inner": None}),
    enveloped(STRUCT, None),
    None,
]
ENVELOPES = [*STRUCTS, enveloped(TEXT, "text"), enveloped(TEXT, None), enveloped(None, {"q": {"a": [1, None]}})]
OBJECTS: list[bytes | None] = [
    b'{"b":1,"a":"x","inner":{"z":1.5,"y":[1,null,true,{"k":"v"}]}}',
    b"{}",
    b'{"source":"replaced","inner":{"deep":{"er":-7}}}',
    None,
    b"null",
    b'{"inner":null}',
    json.dumps({f"name{number}": number for number in range(30)}).encode(),
]
VALUES = [*OBJECTS, b'"text"', b"12", b"[1,2]", b"true"]


def as_it_is(line: str, value: bytes | None) -> str:
    """Lines that need no translation."""
    del value
    return line


def hoisted_map(line: str, value: bytes | None) -> str:
    """A map of one entry, into whose copy fields were inserted."""
    del value
    return java_text(json.loads(line), copied_of=1)


def inserted_map(line: str, value: bytes | None) -> str:
    """A copy of the value's own map, into which fields were inserted."""
    before = json.loads(value or b"null")
    return java_text(json.loads(line), copied_of=None if before is None else len(before))


def plain_map(line: str, value: bytes | None) -> str:
    """Whatever JSON it is."""
    del value
    return java_text(json.loads(line))


@dataclass(frozen=True)
class Case:
    """One config over one topic."""

    properties: Mapping[str, str]
    values: Sequence[bytes | None]
    printed: Callable[[str, bytes | None], str] = as_it_is


def printed_envelope(line: str, value: bytes | None) -> str:
    """Of those without a schema."""
    return hoisted_map(line, value) if line.startswith("{") else line


CASES = {
    "text": Case({**STRING, **BOTH}, LINES),
    "enveloped": Case({**JSON, **BOTH}, ENVELOPES, printed_envelope),
    "enveloped-inserted": Case({**JSON, "transforms": "insert", **INSERTED}, STRUCTS),
    "enveloped-extracted": Case({**JSON, **extracted("inner.d")}, STRUCTS),
    "enveloped-struct": Case({**JSON, **extracted("inner")}, STRUCTS),
    "plain": Case({**PLAIN, **BOTH}, VALUES, hoisted_map),
    "plain-inserted": Case({**PLAIN, "transforms": "insert", **INSERTED}, OBJECTS, inserted_map),
    "plain-extracted": Case({**PLAIN, **extracted("inner.deep")}, OBJECTS, plain_map),
    "routed": Case({**STRING, **ROUTED}, [b"foo", b"bar", None, b"", b"null", "é".encode()]),
}


async def write(bootstrap: str, topic: str, values: Sequence[bytes | None]) -> None:
    """Records with a timestamp; the even ones have a header."""
    writer = IdempotentWriter(KafkaSettings(bootstrap=bootstrap), last_topic="")
    await writer.start()
    try:
        column, count = pa.array(values, pa.binary()), len(values)
        timestamps = pa.array([TIMESTAMP_MS] * count, pa.int64())
        headers = [[] if number % 2 else [("mark", b"x")] for number in range(count)]
        await writer.commit([TopicRecords(topic, column, timestamps_ms=timestamps, headers=headers)])
    finally:
        await writer.stop()


@asynccontextmanager
async def java_sink(worker: JavaConnect, properties: Mapping[str, str]) -> AsyncIterator[None]:
    """A connector of the real worker while the block lasts."""
    body = {"name": properties["name"], "config": properties}
    status, answer = await asyncio.to_thread(worker.ask, "POST", "/connectors", body)
    assert status == 201, answer
    try:
        yield
    finally:
        await asyncio.to_thread(worker.ask, "DELETE", f"/connectors/{properties['name']}")


def config(side: str, topic: str, folder: Path, properties: Mapping[str, str]) -> dict[str, str]:
    """A file sink's."""
    named = {"name": f"{side}-{topic}", "connector.class": "FileStreamSink", "topics": topic}
    return {**named, "file": str(folder / side), "key.converter": STRING["value.converter"], **properties}


@pytest.mark.parametrize("name", CASES)
async def test_files_are_equal(
    kafka: KafkaStack, java_connect: Running[JavaConnect], topic_name: str, tmp_path: Path, *, name: str
) -> None:
    """Every line, in order."""
    case = CASES[name]
    await write(kafka.bootstrap, topic_name, case.values)
    sinks = Sinks(kafka.bootstrap, config("ours", topic_name, tmp_path, case.properties))
    files = tmp_path / "ours", tmp_path / "java"
    async with java_sink(java_connect.server, config("java", topic_name, tmp_path, case.properties)), sinks.running():
        await wait_until(lambda: all(len(lines_of(file)) == len(case.values) for file in files))
    ours, java = ([line.decode() for line in lines_of(file)] for file in files)
    assert [case.printed(line, value) for line, value in zip(ours, case.values, strict=True)] == java


REFUSED: Mapping[str, Case] = {
    "text": Case({**STRING, "transforms": "insert", **INSERTED}, [b"a", None, b"b"]),
    "no-fields": Case({**STRING, **extracted("line")}, [b"a", None]),
    "hoisted-nulls": Case(
        {**JSON, **BOTH, "transforms.insert.static.field": "line"}, [enveloped(TEXT, None), None], printed_envelope
    ),
    "unknown": Case({**JSON, **extracted("no")}, [enveloped(STRUCT, {}), enveloped(STRUCT, None), None]),
    "no-struct-at-all": Case({**JSON, **extracted("no")}, [enveloped(TEXT, "a"), enveloped(TEXT, None), None]),
    "no-struct": Case({**JSON, **extracted("inner.d.x")}, [enveloped(STRUCT, {"inner": {"d": 1.5}}), None]),
    "duplicate": Case(
        {**JSON, "transforms": "insert", **INSERTED, "transforms.insert.static.field": "id"},
        [enveloped(STRUCT, {"id": 1}), None],
    ),
    "plain": Case({**PLAIN, **extracted("inner.deep.er")}, [*VALUES, b'{"inner":{"deep":1.5}}', None]),
}
_OWN = {"__connect.errors.connector.name", "__connect.errors.exception.stacktrace"}


def letter(record: StoredRecord) -> tuple[bytes | None, dict[str, bytes | None]]:
    """What is comparable of a dead letter."""
    return record.value, {header: value for header, value in record.headers if header not in _OWN}


@pytest.mark.parametrize("name", REFUSED)
async def test_dead_letters_are_equal(
    kafka: KafkaStack, java_connect: Running[JavaConnect], topic_name: str, tmp_path: Path, *, name: str
) -> None:
    """The same records, for the same reasons; the others are in the file."""
    case = REFUSED[name]
    await write(kafka.bootstrap, topic_name, case.values)
    letters, configs = {}, {}
    for side in ("ours", "java"):
        tolerant = {
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"dead-{side}-{topic_name}",
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
        configs[side] = config(side, topic_name, tmp_path, {**case.properties, **tolerant})
    sinks = Sinks(kafka.bootstrap, configs["ours"])
    files = tmp_path / "ours", tmp_path / "java"
    async with java_sink(java_connect.server, configs["java"]), sinks.running(), asyncio.timeout(400):
        for side in ("ours", "java"):
            found: list[StoredRecord] = []
            while len(found) + len(lines_of(tmp_path / side)) < len(case.values):
                found = await stored_if_there(kafka.bootstrap, f"dead-{side}-{topic_name}")
            letters[side] = [letter(record) for record in found]
    assert letters["ours"] == letters["java"]
    assert letters["ours"]
    ours, java = ([line.decode() for line in lines_of(file)] for file in files)
    assert [case.printed(line, None) for line in ours] == java


async def stored_if_there(bootstrap: str, topic: str) -> list[StoredRecord]:
    """A topic's records; none while there is no topic."""
    try:
        return await stored(bootstrap, topic)
    except DeliveryFatal:
        await asyncio.sleep(0.2)
        return []
