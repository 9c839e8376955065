"""A source's file through a topic into a sink's file, as an operator runs it: byte for byte the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.worker_life import WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

TEXT = (
    "plain\n\n\ttabs and  blanks \n"
    "ä€🙂\u2028one line\u2029still\u0085\n"
    "lone \r return\n"
    '"quoted" {"a": 1} null\n'
    f"{'long ' * 100_000}\n"
    "null\n"
    "the end\n"
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("converter", ["string", "org.apache.kafka.connect.json.JsonConverter"])
def test_a_file_is_copied_byte_for_byte(kafka: KafkaStack, topic_name: str, tmp_path: Path, converter: str) -> None:
    """Multi-byte text, empty and long lines, separators that are no line ends; also under a restart in between."""
    source, copy = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text(TEXT, encoding="utf-8", newline="")
    worker = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": f"group-{topic_name}",
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(tmp_path / "data"),
        "offset.storage.topic": f"{topic_name}-offsets",
        "config.storage.topic": f"{topic_name}-configs",
        "status.storage.topic": f"{topic_name}-status",
        "log.format": "json",
        "value.converter": converter,
    }
    reading = {"name": f"{topic_name}-source", "connector.class": "FileStreamSource", "file": str(source)}
    writing = {"name": f"{topic_name}-sink", "connector.class": "FileStreamSink", "file": str(copy)}
    life = WorkerLife(
        write_properties(tmp_path / "worker.properties", worker),
        write_properties(tmp_path / "source.properties", {**reading, "topic": topic_name}),
        write_properties(tmp_path / "sink.properties", {**writing, "topics": topic_name}),
        log=tmp_path / "worker.log",
    )
    try:
        for expected in (TEXT, TEXT + "more\n"):
            source.write_text(expected, encoding="utf-8", newline="")
            life.start()
            is_there = wait_until(
                lambda expected=expected: copy.exists() and copy.stat().st_size >= len(expected.encode()),  # type: ignore[misc]
                seconds_max=170,
            )
            assert is_there, f"{copy.stat().st_size if copy.exists() else None} of {len(expected.encode())} bytes"
            assert life.stop(seconds_max=60) == 0, life.log_text()[-6000:]
    finally:
        life.end()
    assert copy.read_bytes() == source.read_bytes()
