"""Transformations of sinks on the real broker: routed records are counted once, refused ones go their way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from metrics.events import SinkOffsetsCommitted
from service.domain.errors import RecordRejectedError
from service.registry.settings import RegistrySettings
from service.worker.schemas import RegistrySchemas
from tests import journal
from tests.integration.sinks.sink_runs import Sinks, lines_of, produce, sink_properties, stored, wait_until
from tests.integration.sinks.test_file_sink import committed_offset
from tests.stack import KafkaStack, RegistryStack
from tests.unit.sinks.test_sink_decoding import USER_1, framed

pytestmark = pytest.mark.integration

PACKAGE = "org.apache.kafka.connect.transforms"
JSON = "org.apache.kafka.connect.json.JsonConverter"
ROUTER = {
    "transforms": "merge,hoist,insert",
    "transforms.merge.type": f"{PACKAGE}.RegexRouter",
    "transforms.merge.regex": ".*",
    "transforms.merge.replacement": "merged",
    "transforms.hoist.type": f"{PACKAGE}.HoistField$Value",
    "transforms.hoist.field": "line",
    "transforms.insert.type": f"{PACKAGE}.InsertField$Value",
    "transforms.insert.topic.field": "topic",
    "transforms.insert.offset.field": "offset",
}


def lines(name: str, count: int, *, begin: int = 0) -> list[bytes | None]:
    """Values of one topic."""
    return [f"{name}{number}".encode() for number in range(begin, count)]


def printed(name: str, count: int) -> list[bytes]:
    """What the sink makes of them."""
    return [f"Struct{{line={name}{number},topic=merged,offset={number}}}".encode() for number in range(count)]


async def test_routed_topics_are_counted_by_their_own_names(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Two topics become one, and the task dies with lines that it has not committed: each line is there once."""
    file, other = tmp_path / "out.txt", f"{topic_name}-b"
    properties = {**sink_properties(topic_name, f"{topic_name},{other}", file), **ROUTER}
    sinks = Sinks(kafka.bootstrap, properties, flush_seconds=3600.0)
    await produce(kafka.bootstrap, topic_name, lines("a", 2))
    await produce(kafka.bootstrap, other, lines("b", 1))
    async with asyncio.TaskGroup() as group:
        task = await sinks.task()
        work = group.create_task(task.run())
        await wait_until(lambda: len(lines_of(file)) == 3 and bool(sinks.told(SinkOffsetsCommitted)))
        await produce(kafka.bootstrap, topic_name, lines("a", 50, begin=2))
        await produce(kafka.bootstrap, other, lines("b", 9, begin=1))
        await wait_until(lambda: len(lines_of(file)) == 59)
        work.cancel()
    assert (await committed_offset(kafka.bootstrap, topic_name, topic_name) or 0) < 50
    async with sinks.running():
        await produce(kafka.bootstrap, other, lines("b", 10, begin=9))
        await wait_until(lambda: len(lines_of(file)) >= 60)
    assert sorted(lines_of(file)) == sorted([*printed("a", 50), *printed("b", 10)])
    ends = [await committed_offset(kafka.bootstrap, topic_name, topic) for topic in (topic_name, other)]
    assert ends == [50, 10]


async def test_a_record_that_does_not_fit_fails_the_task(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Where nothing is tolerated; the message says where, at which stage, and nothing is committed behind it."""
    file = tmp_path / "out.txt"
    properties = {**sink_properties(topic_name, topic_name, file), **ROUTER, "transforms": "insert"}
    await produce(kafka.bootstrap, topic_name, [b"no struct"])
    task = await Sinks(kafka.bootstrap, properties).task()
    with pytest.raises(RecordRejectedError, match=rf"topic '{topic_name}', .* offset 0, stage TRANSFORMATION"):
        await task.run()
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) is None
    assert lines_of(file) == []


async def test_refused_records_become_dead_letters(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """With their own bytes and Connect's headers; the records around them are put."""
    file, dead = tmp_path / "out.txt", f"{topic_name}-dead"
    tolerant = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.context.headers.enable": "true",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }
    properties = {**sink_properties(topic_name, topic_name, file), **ROUTER, **tolerant, "transforms": "merge,insert"}
    await produce(kafka.bootstrap, topic_name, [b'{"n": 1.10}', b'"text"', b"{", b'{"n": 3}'])
    async with Sinks(kafka.bootstrap, properties).running():
        await wait_until(lambda: len(lines_of(file)) == 2)
    assert lines_of(file) == [b'{"n":1.10,"topic":"merged","offset":0}', b'{"n":3,"topic":"merged","offset":3}']
    letters = [(record.value, journal.headers_of(record)) for record in await stored(kafka.bootstrap, dead)]
    assert [value for value, _ in letters] == [b'"text"', b"{"]
    told = [(headers["__connect.errors.stage"], headers["__connect.errors.class.name"]) for _, headers in letters]
    assert told == [("TRANSFORMATION", f"{PACKAGE}.InsertField$Value"), ("VALUE_CONVERTER", JSON)]
    assert {headers["__connect.errors.topic"] for _, headers in letters} == {topic_name}
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == 4


async def test_records_of_avro(kafka: KafkaStack, registry: RegistryStack, topic_name: str, tmp_path: Path) -> None:
    """Read with the registry's schema, given fields, printed as Java prints structs."""
    file = tmp_path / "out.txt"
    schema_id = await asyncio.to_thread(journal.register_schema, registry.url, f"{topic_name}-value", USER_1)
    await produce(kafka.bootstrap, topic_name, [framed(schema_id, USER_1, {"id": 7}), None])
    avro = {"value.converter": "avro", "value.converter.schema.registry.url": registry.url}
    properties = {**sink_properties(topic_name, topic_name, file), **ROUTER, **avro, "transforms": "insert,hoist"}
    settings, _ = RegistrySettings.parse({"schema.registry.url": registry.url})
    schemas = RegistrySchemas(contract_registry=settings)
    async with schemas, Sinks(kafka.bootstrap, properties, schemas).running():
        await wait_until(lambda: len(lines_of(file)) == 2)
    # A tombstone of Avro has no schema, so it is hoisted into a map.
    assert lines_of(file) == [b"Struct{line=Struct{id=7,topic=%s,offset=0}}" % topic_name.encode(), b'{"line":null}']
