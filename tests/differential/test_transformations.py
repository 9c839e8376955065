"""Transformations as Kafka Connect's own classes do them: one config and one file, two workers, topics byte by byte.

One difference is none of theirs: in JSON, Connect escapes characters beyond U+FFFF as pairs of surrogates, and here
they stand as they are. The pairs are replaced before anything is compared.
The Avro form is compared with what the registry says of it, since Confluent's converter is not at hand.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.embedded.running import Running
from service.kafka.errors import DeliveryFatal
from tests import journal
from tests.faults.worker_life import WorkerLife, pause, write_properties
from tests.java_connect import JavaConnect
from tests.stack import KafkaStack, RegistryStack

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

LINES = ["foo", 'a "line" \\ of é😀\tand /', "", '{"a": 1.10}', " spaces  "]
RUN_SECONDS_MAX = 300.0
JAVA_SECONDS_MAX = 240.0
PACKAGE = "org.apache.kafka.connect.transforms"
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
PLAIN = {**JSON, "value.converter.schemas.enable": "false"}
STRING = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
AVRO = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
DOCUMENTED = {
    "transforms": "MakeMap,InsertSource",
    "transforms.MakeMap.type": f"{PACKAGE}.HoistField$Value",
    "transforms.MakeMap.field": "line",
    "transforms.InsertSource.type": f"{PACKAGE}.InsertField$Value",
    "transforms.InsertSource.static.field": "data_source",
    "transforms.InsertSource.static.value": "test-file-source",
}
ROUTED = {
    "transforms": "Route,Keep,MakeMap,Topic,Never",
    "transforms.Route.type": f"{PACKAGE}.RegexRouter",
    "transforms.Route.regex": r"(\w+)-(\p{Alnum}+)-routed",
    "transforms.Route.replacement": "$1-$2-there",
    "transforms.Keep.type": f"{PACKAGE}.RegexRouter",
    "transforms.Keep.regex": "there",
    "transforms.Keep.replacement": "nowhere",
    "transforms.MakeMap.type": f"{PACKAGE}.HoistField$Value",
    "transforms.MakeMap.field": "line",
    "transforms.MakeMap.predicate": "IsNull",
    "transforms.MakeMap.negate": "true",
    "transforms.Topic.type": f"{PACKAGE}.InsertField$Value",
    "transforms.Topic.static.field": "last?",
    "transforms.Topic.static.value": "x",
    "transforms.Topic.topic.field": "first!",
    "transforms.Topic.predicate": "IsThere",
    "transforms.Never.type": f"{PACKAGE}.HoistField$Value",
    "transforms.Never.field": "never",
    "transforms.Never.predicate": "IsThere",
    "transforms.Never.negate": "true",
    "predicates": "IsNull,IsThere",
    "predicates.IsNull.type": f"{PACKAGE}.predicates.RecordIsTombstone",
    "predicates.IsThere.type": f"{PACKAGE}.predicates.TopicNameMatches",
    "predicates.IsThere.pattern": ".*-there",
}
EXTRACTED = {
    "transforms": "A,B,Never,C",
    "transforms.A.type": f"{PACKAGE}.HoistField$Value",
    "transforms.A.field": "a.b",
    "transforms.A.predicate": "HasHeader",
    "transforms.A.negate": "true",
    "transforms.Never.type": f"{PACKAGE}.HoistField$Value",
    "transforms.Never.field": "never",
    "transforms.Never.predicate": "HasHeader",
    "transforms.B.type": f"{PACKAGE}.HoistField$Value",
    "transforms.B.field": "b",
    "transforms.C.type": f"{PACKAGE}.ExtractField$Value",
    "transforms.C.field": "b.`a.b`",
    "transforms.C.field.syntax.version": "V2",
    "predicates": "HasHeader",
    "predicates.HasHeader.type": f"{PACKAGE}.predicates.HasHeaderKey",
    "predicates.HasHeader.name": "any",
}
KEYED = {
    "transforms": "Never,MakeMap,Key,Mark,Gone,Back,Unmarked",
    "transforms.Never.type": f"{PACKAGE}.Filter",
    "transforms.Never.predicate": "IsNull",
    "transforms.MakeMap.type": f"{PACKAGE}.HoistField$Value",
    "transforms.MakeMap.field": "line",
    "transforms.Key.type": f"{PACKAGE}.ValueToKey",
    "transforms.Key.fields": "line",
    "transforms.Mark.type": f"{PACKAGE}.InsertHeader",
    "transforms.Mark.header": "mark",
    "transforms.Mark.value.literal": "007",
    "transforms.Gone.type": f"{PACKAGE}.InsertHeader",
    "transforms.Gone.header": "gone",
    "transforms.Gone.value.literal": "x",
    "transforms.Back.type": f"{PACKAGE}.DropHeaders",
    "transforms.Back.headers": "gone",
    "transforms.Unmarked.type": f"{PACKAGE}.Filter",
    "transforms.Unmarked.predicate": "IsMarked",
    "transforms.Unmarked.negate": "true",
    "predicates": "IsNull,IsMarked",
    "predicates.IsNull.type": f"{PACKAGE}.predicates.RecordIsTombstone",
    "predicates.IsMarked.type": f"{PACKAGE}.predicates.HasHeaderKey",
    "predicates.IsMarked.name": "mark",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
}
COMPARED: Mapping[str, Mapping[str, str]] = {
    "plain": {**PLAIN, **DOCUMENTED},
    "enveloped": {**JSON, **DOCUMENTED},
    "string": {**STRING, **DOCUMENTED},
    "routed": {**JSON, **ROUTED},
    "extracted": {**JSON, **EXTRACTED},
    "text": {**STRING, **EXTRACTED},
    "bare": {**PLAIN, **EXTRACTED},
    "keyed": {**JSON, **KEYED},
}
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
AVRO_ROUTED = {**AVRO, **ROUTED}


def without_pairs(text: bytes) -> bytes:
    """JSON with its escaped pairs of surrogates as the characters that they are."""
    return _PAIR.sub(lambda found: json.loads(b'"' + found[0] + b'"').encode(), text)


@dataclass(frozen=True)
class Topics:
    """Where both workers have written."""

    bootstrap: str
    registry_url: str
    prefix: str

    def values(self, side: str, name: str) -> list[bytes | None]:
        """What stands in a topic of one side, its own name in the values replaced."""
        records = journal.committed_records(self.bootstrap, self.topic(side, name))
        return [record.value and without_pairs(record.value.replace(side.encode(), b"SIDE")) for record in records]

    def topic(self, side: str, name: str) -> str:
        """The topic's whole name."""
        return f"{side}-{self.prefix}-{name}"


@pytest.fixture(scope="module")
def topics(
    kafka: KafkaStack,
    registry: RegistryStack,
    *,
    java_connect: Running[JavaConnect],
    spark_remote: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Topics]:
    """Both have read the file."""
    folder = tmp_path_factory.mktemp("transformations")
    file = folder / "lines.txt"
    file.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    found = Topics(kafka.bootstrap, registry.url, uuid.uuid4().hex[:8])
    try:
        for name, properties in COMPARED.items():
            config = _connector(found, "java", name, {**properties, "file": str(file)})
            status, answer = java_connect.server.ask("POST", "/connectors", {"name": config["name"], "config": config})
            assert status == 201, answer
        _run_ours(found, spark_remote, file, folder)
        for name in COMPARED:
            _wait_for_java(found, "there" if name == "routed" else name)
        yield found
    finally:
        for name in COMPARED:
            java_connect.server.ask("DELETE", f"/connectors/{found.topic('java', name)}")


def _connector(topics: Topics, side: str, name: str, properties: Mapping[str, str]) -> dict[str, str]:
    named = {"name": topics.topic(side, name), "topic": topics.topic(side, name)}
    return {"connector.class": "FileStreamSource", **named, **properties}


def _run_ours(topics: Topics, spark_remote: str, file: Path, folder: Path) -> None:
    worker = {
        "bootstrap.servers": topics.bootstrap,
        "schema.registry.url": topics.registry_url,
        "spark.remote": spark_remote,
        "group.id": topics.prefix,
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(folder / "data"),
        "offset.storage.topic": f"{topics.prefix}-offsets",
        "dedupe.storage.topic": f"{topics.prefix}-dedupe",
    }
    files = [write_properties(folder / "worker.properties", worker)]
    for name, properties in {**COMPARED, "avro-routed": AVRO_ROUTED}.items():
        config = _connector(topics, "ours", name, {**properties, "file": str(file), "poll.interval.ms": "100"})
        if name == "avro-routed":
            config["topic"] = f"avro-{topics.prefix}-routed"
        files.append(write_properties(folder / f"{name}.properties", config))
    life = WorkerLife(*files, log=folder / "worker.log")
    try:
        life.start("--until-idle", "3")
        assert life.wait(seconds_max=RUN_SECONDS_MAX) == 0, life.log_text()[-4000:]
    finally:
        life.end()


def _wait_for_java(topics: Topics, name: str) -> None:
    give_up_at = time.monotonic() + JAVA_SECONDS_MAX
    while not _has_come(topics, name):
        assert time.monotonic() < give_up_at, topics.topic("java", name)
        pause(0.2)


def _has_come(topics: Topics, name: str) -> bool:
    """Whether all lines are there; before the first one there may be no topic."""
    try:
        return len(topics.values("java", name)) >= len(LINES)
    except DeliveryFatal:
        return False


@pytest.mark.parametrize("name", [name for name in COMPARED if name != "routed"])
def test_topics_are_equal(topics: Topics, name: str) -> None:
    """Every record to the byte, in order."""
    values = topics.values("ours", name)
    assert len(values) == len(LINES)
    assert values == topics.values("java", name)


def test_keys_and_headers_are_equal(topics: Topics) -> None:
    """Made of values and of literals."""
    found = [journal.committed_records(topics.bootstrap, topics.topic(side, "keyed")) for side in ("ours", "java")]
    ours, java = ([(without_pairs(each.key or b""), tuple(each.headers)) for each in records] for records in found)
    assert ours == java
    assert ours[0][1] == (("mark", b"7"),)


def test_the_documented_example_is_as_documented(topics: Topics) -> None:
    """The book's line, in the book's form."""
    assert topics.values("ours", "plain")[0] == b'{"line":"foo","data_source":"test-file-source"}'


def test_routed_topics_are_equal(topics: Topics) -> None:
    """Records are where the router sent them, and nowhere else."""
    values = topics.values("ours", "there")
    assert values == topics.values("java", "there")
    assert len(values) == len(LINES)
    assert f'"first":"SIDE-{topics.prefix}-there"'.encode() in (values[0] or b"")
    with pytest.raises(DeliveryFatal, match="does not exist"):
        topics.values("ours", "routed")


def test_avro_of_routed_records(topics: Topics) -> None:
    """The schema of the transformed record is registered under the topic in which it ends."""
    topic = f"avro-{topics.prefix}-there"
    records = journal.committed_records(topics.bootstrap, topic)
    decoded = journal.decoded([record.value for record in records], registry_url=topics.registry_url)
    assert decoded == [{"line": line, "first": topic, "last": "x"} for line in LINES]
    subject = f"{topics.registry_url}/subjects/{topic}-value/versions/latest"
    with urllib.request.urlopen(subject) as answer:  # noqa: S310 - a test's own URL
        schema = json.loads(json.load(answer)["schema"])
    assert [field["name"] for field in schema["fields"]] == ["line", "first", "last"]
