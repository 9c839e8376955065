"""The peer: Kafka Connect 4.1.1 standalone with its own FileStreamSource, or FileStreamSink, and StringConverter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from service.embedded.jars import class_path, java_program
from tests.benchmarks.processes import Child, running, write_properties


def connect_file_source(
    folder: Path, *, bootstrap: str, file: Path, topic: str, more: Mapping[str, str] | None = None
) -> AbstractContextManager[Child]:
    """A file's lines into a topic; ``more`` keys of the connector."""
    connector = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "topic": topic}
    return connect_standalone(folder, {**connector, "file": str(file), **(more or {})}, bootstrap=bootstrap)


def connect_file_sink(folder: Path, *, bootstrap: str, file: Path, topic: str) -> AbstractContextManager[Child]:
    """A topic's texts into a file."""
    connector = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "topics": topic}
    return connect_standalone(folder, {**connector, "file": str(file)}, bootstrap=bootstrap)


@contextmanager
def connect_standalone(
    folder: Path, properties: Mapping[str, str], *, bootstrap: str, more: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Run it as ``connect-standalone.sh`` does, heap included (256 MB to 2 GB); ``more`` keys of the worker."""
    folder.mkdir(parents=True, exist_ok=True)
    worker = write_properties(
        folder / "worker.properties",
        {
            "bootstrap.servers": bootstrap,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "10000",
            "listeners": "http://127.0.0.1:0",
            "plugin.discovery": "only_scan",
            **(more or {}),
        },
    )
    connector = write_properties(
        folder / "connector.properties",
        # A sink's group has the connector's name: of its own for each run, or it has read the topic already.
        {"name": folder.name, "tasks.max": "1", **properties},
    )
    main_class = "org.apache.kafka.connect.cli.ConnectStandalone"
    command = [
        str(java_program()),
        *("-Xms256m", "-Xmx2g", "-XX:+UseG1GC"),
        *("-cp", class_path("connect"), main_class, str(worker), str(connector)),
    ]
    with running(command, log=folder / "connect.log") as child:
        yield child
