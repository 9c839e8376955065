"""Chapter 7 of *Kafka: The Definitive Guide*: its commands as they are printed, for the connectors there are."""

from __future__ import annotations

import json

import pytest

from service.kafka.client import KafkaSettings
from service.kafka.reader import read_topic
from tests.clients.conftest import COMMAND_SECONDS_MAX, Shell, printed
from tests.faults.worker_life import wait_until
from tests.java_connect import asked

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SERVER_PROPERTIES = "# The id of the broker.\nbroker.id=0\n\nlog.dirs=/tmp/kafka-logs\nnum.partitions=1  \ncafé=ü\n"
ROOT, PLUGINS, SOURCE, SINK, DELETE, VALIDATE, *_ = printed("definitive-guide.sh")


def test_the_service_tells_of_itself(shell: Shell) -> None:
    """Version, commit and cluster; the class names that the book prints."""
    status, root = shell.run(ROOT)
    assert (status, sorted(root)) == (200, ["commit", "kafka_cluster_id", "version"])
    status, plugins = shell.run(PLUGINS)
    assert status == 200
    named = {plugin["class"] for plugin in plugins}
    file, confluent = "org.apache.kafka.connect.file.FileStream", "io.confluent.connect."
    assert {f"{file}SourceConnector", f"{file}SinkConnector"} <= named
    assert {
        f"{confluent}elasticsearch.ElasticsearchSinkConnector",
        f"{confluent}jdbc.JdbcSourceConnector",
    } <= named


async def test_a_file_goes_through_kafka_and_comes_out_as_it_was(shell: Shell) -> None:
    """Loaded line by line in the envelope that is printed, dumped byte by byte, and the dump deleted."""
    (shell.folder / "config").mkdir()
    (shell.folder / "config/server.properties").write_text(SERVER_PROPERTIES, encoding="utf-8")
    status, loaded = shell.run(SOURCE)
    assert status == 201
    config = {
        "connector.class": "FileStreamSource",
        "file": "config/server.properties",
        "topic": "kafka-config-topic",
        "name": "load-kafka-config",
    }
    assert loaded == {"name": "load-kafka-config", "config": config, "tasks": [], "type": "source"}
    status, _ = shell.run(SINK)
    assert status == 201
    copy = shell.folder / "copy-of-server-properties"

    def is_copied() -> bool:
        return copy.exists() and copy.read_bytes() == SERVER_PROPERTIES.encode()

    assert wait_until(is_copied, seconds_max=COMMAND_SECONDS_MAX)
    batches = read_topic(KafkaSettings(bootstrap=shell.bootstrap), "kafka-config-topic")
    records = [record async for batch in batches for record in batch]
    schema = {"type": "string", "optional": False}
    lines = [{"schema": schema, "payload": line} for line in SERVER_PROPERTIES.splitlines()]
    assert [json.loads(record.value or b"") for record in records] == lines
    assert {record.key for record in records} <= {None, b'{"schema":null,"payload":null}'}
    assert shell.run(DELETE) == (204, None)
    assert wait_until(
        lambda: asked(shell.url, "GET", "/connectors/dump-kafka-config/status")[0] == 404,
        seconds_max=COMMAND_SECONDS_MAX,
    )
    shell.wait_states("load-kafka-config", "RUNNING", "RUNNING")


def test_an_empty_config_shows_what_can_be_configured(shell: Shell) -> None:
    """With all definitions, as the book has them, of which it prints one; today's Connect answers 500 to it."""
    status, found = shell.run(VALIDATE)
    assert status == 200
    definitions = {entry["definition"]["name"]: entry["definition"] for entry in found["configs"]}
    assert {"name", "connector.class", "tasks.max", "connection.url", "topic.prefix"} <= set(definitions)
    shown = {
        "default_value": "",
        "dependents": [],
        "display_name": "Timestamp Column Name",
        "group": "Mode",
        "importance": "MEDIUM",
        "order": 3,
        "required": False,
        "type": "LIST",
        "width": "MEDIUM",
    }
    assert {key: definitions["timestamp.column.name"][key] for key in shown} == shown
