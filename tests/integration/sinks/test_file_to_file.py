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
CONVERTERS = {"text": {"value.converter": "string"}, "json": {}}
"""A connector's own, or else the worker's."""


@pytest.mark.timeout(600)
def test_a_file_is_copied_byte_for_byte(kafka: KafkaStack, spark_remote: str, topic_name: str, tmp_path: Path) -> None:
    """Multi-byte text, empty and long lines, separators that are no line ends; also under a restart in between."""
    source, copies = tmp_path / "in.txt", [tmp_path / f"{form}.txt" for form in CONVERTERS]
    files = _files(tmp_path, kafka.bootstrap, topic_name, source, spark_remote=spark_remote)
    life = WorkerLife(*files, log=tmp_path / "worker.log")
    try:
        for expected in (TEXT, TEXT + "more\n"):
            source.write_text(expected, encoding="utf-8", newline="")
            life.start()
            bytes_expected = len(expected.encode())
            is_there = wait_until(lambda size=bytes_expected: min(map(_size, copies)) >= size, seconds_max=250)  # type: ignore[misc]
            assert is_there, f"{[*map(_size, copies)]} of {bytes_expected} bytes"
            assert life.stop(seconds_max=180) == 0, life.log_text()[-6000:]
    finally:
        life.end()
    for copy in copies:
        assert copy.read_bytes() == source.read_bytes(), copy


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _files(folder: Path, bootstrap: str, topic_name: str, source: Path, *, spark_remote: str) -> list[Path]:
    """A source and a sink by each converter, each pair with a topic of its own."""
    worker = {
        "bootstrap.servers": bootstrap,
        "spark.remote": spark_remote,
        "group.id": f"group-{topic_name}",
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(folder / "data"),
        "offset.storage.topic": f"{topic_name}-offsets",
        "config.storage.topic": f"{topic_name}-configs",
        "status.storage.topic": f"{topic_name}-status",
        "log.format": "json",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    }
    files = [write_properties(folder / "worker.properties", worker)]
    for form, converting in CONVERTERS.items():
        topic = f"{topic_name}-{form}"
        reading = {"name": f"{topic}-source", "connector.class": "FileStreamSource", "file": str(source)}
        writing = {"name": f"{topic}-sink", "connector.class": "FileStreamSink", "file": str(folder / f"{form}.txt")}
        files += [
            write_properties(folder / f"{form}-source.properties", {**reading, **converting, "topic": topic}),
            write_properties(folder / f"{form}-sink.properties", {**writing, **converting, "topics": topic}),
        ]
    return files
