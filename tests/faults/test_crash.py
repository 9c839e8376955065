"""Kill anything at any moment: a ``read_committed`` consumer sees every source record exactly once."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.faults.topic_watch import committed_end, committed_values
from tests.faults.worker_life import WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow]

BAD_EVERY = 97
LINES_PER_SECOND = 2_000
SCHEMA = {"type": "record", "name": "Numbered", "fields": [{"name": "number", "type": "long"}]}
WORKER, SPARK, BROKER = "worker", "spark", "broker"
KINDS = (WORKER, SPARK, SPARK, BROKER)
"""What is killed, drawn at random: Spark twice as often, since it alone costs no new worker."""


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
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Append in a thread while the block runs."""
        thread = threading.Thread(target=self._grow, name="growing file")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _grow(self) -> None:
        with self.path.open("ab", buffering=0) as file:
            while not self._stop.wait(0.05):
                numbers = range(self.lines, self.lines + LINES_PER_SECOND // 20)
                file.write(b"".join(line(number) + b"\n" for number in numbers))
                self.lines = numbers.stop


@dataclass
class Chaos:
    """The driver: waits for progress, kills, sees to it that things go on."""

    life: WorkerLife
    kafka: KafkaStack
    topic: str
    draw: random.Random
    orphans: list[psutil.Process] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)

    def run(self, *, kills: int) -> None:
        """Kill ``kills`` times, each time after something was committed since the last."""
        seen = 0
        while len(self.killed) < kills:
            seen = self._wait_for_progress(seen)
            threading.Event().wait(self.draw.uniform(0, 0.6))
            self._kill(self.draw.choice(KINDS))

    def _wait_for_progress(self, seen: int) -> int:
        """Sometimes not at all: a worker may die while it starts."""
        if self.killed and self.killed[-1] == WORKER and self.draw.random() < 0.3:
            threading.Event().wait(self.draw.uniform(0.1, 4.0))
            return seen
        bootstrap = self.kafka.bootstrap
        has_moved = wait_until(
            lambda: committed_end(bootstrap, self.topic) > seen, seconds_max=90, pause=threading.Event().wait
        )
        assert has_moved, f"nothing was committed for 90 s after {self.killed}:\n{self.life.log_text()[-4000:]}"
        return committed_end(bootstrap, self.topic)

    def _kill(self, kind: str) -> None:
        if kind == SPARK and not self.life.kill_spark():
            return
        if kind == WORKER:
            self.orphans += self.life.kill()
            self.life.start()
        if kind == BROKER:
            self.kafka.kill()
            threading.Event().wait(self.draw.uniform(0, 1.0))
            self.kafka.restart()
        self.killed.append(kind)


@pytest.mark.timeout(1500)
def test_every_record_is_there_exactly_once_whatever_was_killed(
    kafka: KafkaStack, topic_name: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Records and dead letters stand exactly once, and no JVM outlives its worker."""
    seed = pytestconfig.getoption("--kill-seed")
    source = GrowingFile(tmp_path / "lines.jsonl")
    source.path.touch()
    life = WorkerLife(*_files(kafka, topic_name, source.path, tmp_path), log=tmp_path / "worker.log")
    chaos = Chaos(life, kafka, topic_name, random.Random(seed))
    try:
        with source.growing():
            life.start()
            chaos.run(kills=pytestconfig.getoption("--kills"))
        assert life.stop(seconds_max=60) == 0, life.log_text()[-4000:]
        life.start("--until-idle", "2")
        assert life.wait(seconds_max=180) == 0, life.log_text()[-4000:]
    finally:
        life.end()
        print(f"seed {seed}, killed {chaos.killed}, {source.lines} lines")  # noqa: T201 - to repeat a failure
    _demand_exactly_once(kafka, topic_name, lines=source.lines)
    gone = wait_until(
        lambda: not any(orphan.is_running() for orphan in chaos.orphans), seconds_max=30, pause=threading.Event().wait
    )
    assert gone, f"left behind: {[orphan.cmdline()[:3] for orphan in chaos.orphans if orphan.is_running()]}"


def _files(kafka: KafkaStack, topic: str, source: Path, folder: Path) -> tuple[Path, Path]:
    worker = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": f"crash-{topic}",
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(folder / "data"),
        "offset.storage.topic": f"{topic}-offsets",
        "log.format": "json",
    }
    connector = {
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
    }
    return (
        write_properties(folder / "worker.properties", worker),
        write_properties(folder / "connector.properties", connector),
    )


def _demand_exactly_once(kafka: KafkaStack, topic: str, *, lines: int) -> None:
    records = committed_values(kafka.bootstrap, topic)
    letters = committed_values(kafka.bootstrap, f"{topic}-dead-letters")
    good = {b'{"number":%d}' % number for number in range(lines) if number % BAD_EVERY}
    bad = {line(number) for number in range(0, lines, BAD_EVERY)}
    for found, expected, what in ((records, good, "records"), (letters, bad, "dead letters")):
        lost = expected - found.keys()
        assert not lost, f"{len(lost)} {what} lost, such as {sorted(lost)[:3]}"
        strangers = found.keys() - expected
        assert not strangers, f"{len(strangers)} {what} that no source has, such as {list(strangers)[:3]}"
        assert found.total() == len(found), f"{found.total() - len(found)} {what} more than once"
