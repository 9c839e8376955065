"""Headers of records on the real broker, as a sink is handed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from service.kafka.client import KafkaSettings
from service.kafka.producer import IdempotentWriter
from service.kafka.records import TopicRecords
from service.sinks.contract import SinkBatch, SinkConfig, SinkConnector
from tests.integration.sinks.sink_runs import Sinks, sink_properties, wait_until
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration

PACKAGE = "org.apache.kafka.connect.transforms"


class HeaderConfig(SinkConfig):
    """Nothing."""


class HeaderSink(SinkConnector[HeaderConfig]):
    """Keeps the headers of each record by the record's text."""

    handed: ClassVar[dict[str, list[tuple[str, str | None, str | None]]]] = {}

    async def put(self, batch: SinkBatch) -> None:
        """Keep them."""
        headers: list[Any] = batch.connect_headers().to_pylist()
        texts: list[Any] = batch.records.column("value").to_pylist()
        for text, own in zip(texts, headers, strict=True):
            self.handed[text] = [(each["name"], each["schema"], each["value"]) for each in own]


async def test_headers_have_their_types(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Read by SimpleHeaderConverter, dropped and made by transformations; records with and without them in one poll."""
    made = {
        "transforms": "drop,insert",
        "transforms.drop.type": f"{PACKAGE}.DropHeaders",
        "transforms.drop.headers": "secret",
        "transforms.insert.type": f"{PACKAGE}.InsertHeader",
        "transforms.insert.header": "to",
        "transforms.insert.value.literal": '["7"]',
        "transforms.insert.predicate": "marked",
        "predicates": "marked",
        "predicates.marked.type": f"{PACKAGE}.predicates.HasHeaderKey",
        "predicates.marked.name": "count",
    }
    properties = sink_properties(topic_name, topic_name, tmp_path / "unused", **made)
    properties = {**properties, "connector.class": f"{HeaderSink.__module__}:{HeaderSink.__qualname__}"}
    del properties["file"]
    texts = [f"{topic_name}-{number}" for number in range(3)]
    headers: list[list[tuple[str, bytes | None]]] = [[("secret", b"x"), ("count", b"300")], [], [("none", None)]]
    writer = IdempotentWriter(KafkaSettings(bootstrap=kafka.bootstrap), last_topic="")
    await writer.start()
    try:
        values: Any = pa.array([text.encode() for text in texts], pa.binary())
        await writer.commit([TopicRecords(topic_name, values, headers=headers)])
    finally:
        await writer.stop()
    async with Sinks(kafka.bootstrap, properties).running():
        await wait_until(lambda: all(text in HeaderSink.handed for text in texts))
    string = '{"type":"string","optional":false}'
    assert [HeaderSink.handed[text] for text in texts] == [
        [
            ("count", '{"type":"int16","optional":false}', "300"),
            ("to", f'{{"type":"array","items":{string},"optional":false}}', '["7"]'),
        ],
        [],
        [("none", None, None)],
    ]
