"""A source that grows all the time, the job that reads it, and the demand that all of it arrives exactly once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.topic_watch import committed_values
from tests.faults.worker_life import write_properties

BAD_EVERY = 97
LINES_PER_SECOND = 1_000
_STEP_SECONDS = 0.05
SCHEMA = {"type": "record", "name": "Numbered", "fields": [{"name": "number", "type": "long"}]}


def line(number: int) -> bytes:
    """One source record: good, or broken in a way of its own."""
    if number % BAD_EVERY == 0:
        return b'{"number": "%d"}' % number
    return b'{"number": %d, "text": "caf\xc3\xa9 \xe2\x80\xa8"}' % number


@dataclass
class GrowingFile:
    """A file that grows all the time, so that whatever is killed is at work."""

    path: Path
    lines: int = 0
    lines_per_second: int = LINES_PER_SECOND
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Append in a thread while the block runs."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._grow, name="growing file")
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """No more lines from now on, although the block goes on; returns when the last is written."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def append(self, lines: int) -> None:
        """Append so many lines at once."""
        with self.path.open("ab", buffering=0) as file:
            numbers = range(self.lines, self.lines + lines)
            file.write(b"".join(line(number) + b"\n" for number in numbers))
            self.lines = numbers.stop

    def _grow(self) -> None:
        while not self._stop.wait(_STEP_SECONDS):
            self.append(int(self.lines_per_second * _STEP_SECONDS))


def job_files(
    folder: Path,
    *,
    bootstrap: str,
    topic: str,
    source: Path,
    worker: Mapping[str, str] | None = None,
    connector: Mapping[str, str] | None = None,
) -> tuple[Path, Path]:
    """The worker's and the connector's file of a job in small micro-batches; more keys go over its own."""
    worker_properties = {
        "bootstrap.servers": bootstrap,
        "group.id": f"group-{topic}",
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(folder / "data"),
        "offset.storage.topic": f"{topic}-offsets",
        "offset.storage.partitions": "2",
        "log.format": "json",
        **(worker or {}),
    }
    connector_properties = {
        "name": topic,
        "topic": topic,
        "connector.class": "FileStreamSource",
        "file": str(source),
        "poll.interval.ms": "50",
        "file.page.bytes": "65536",
        "batch.size": "1",
        "batch.records.max": "4000",
        "value.converter": "json",
        "contract.schema": json.dumps(SCHEMA),
        "errors.tolerance": "all",
        "errors.restart.backoff.ms": "200",
        "errors.retry.delay.max.ms": "2000",
        **(connector or {}),
    }
    return (
        write_properties(folder / "worker.properties", worker_properties),
        write_properties(folder / f"{topic}.properties", connector_properties),
    )


def demand_exactly_once(bootstrap: str, topic: str, *, lines: int) -> None:
    """Every good line stands in the topic once, every bad one in its dead letters once, and nothing else."""
    good = {b'{"number":%d}' % number for number in range(lines) if number % BAD_EVERY}
    bad = {line(number) for number in range(0, lines, BAD_EVERY)}
    for name, expected in ((topic, good), (f"{topic}-dead-letters", bad)):
        found = committed_values(bootstrap, name)
        lost = expected - found.keys()
        assert not lost, f"{len(lost)} of {len(expected)} are not in {name}, such as {sorted(lost)[:3]}"
        strangers = found.keys() - expected
        assert not strangers, f"{len(strangers)} in {name} are not in the source, such as {list(strangers)[:3]}"
        assert found.total() == len(found), f"{found.total() - len(found)} are in {name} more than once"
