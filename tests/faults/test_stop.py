"""Stopping under full load: in time, with exit code 0, nothing lost and nothing repeated."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.faults.numbered_lines import GrowingFile, demand_exactly_once, job_files
from tests.faults.topic_watch import committed_end, wait_for_commits
from tests.faults.worker_life import WorkerLife, wait_until
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

BACKLOG_LINES = 200_000
STOP_SECONDS_MAX = 300.0
"""Far beyond the deadline of 8 s, which the report of the stop tells of: a busy machine takes long to end processes."""


def test_signals_stop_in_stages_and_lose_nothing(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """SIGTERM and SIGINT end a busy worker with 0 in time; a second signal ends it at once; all arrives once."""
    source = GrowingFile(tmp_path / "lines.jsonl")
    source.append(BACKLOG_LINES)
    files = job_files(tmp_path, bootstrap=kafka.bootstrap, topic=topic_name, source=source.path)
    life = WorkerLife(*files, log=tmp_path / "worker.log")
    try:
        with source.growing():
            for number in (signal.SIGTERM, signal.SIGINT):
                _start_and_wait_for_progress(life, kafka, topic_name)
                children = life.children()
                assert life.stop(number=number, seconds_max=STOP_SECONDS_MAX) == 0, life.log_text()[-4000:]
                _demand_ended(children)
            # One that waits long for a Spark that hangs: the second signal may be late.
            with files[0].open("a", encoding="utf-8") as worker:
                worker.write("task.shutdown.graceful.timeout.ms=300000\n")
            _start_and_wait_for_progress(life, kafka, topic_name)
            children = life.children()
            with _without_spark(children):
                life.process.send_signal(signal.SIGTERM)
                assert wait_until(lambda: life.events("worker_stopping")[2:] != [], seconds_max=300)
                assert life.stop(number=signal.SIGTERM, seconds_max=STOP_SECONDS_MAX) == -signal.SIGTERM
            _demand_ended(children)
        life.start("--until-idle", "2")
        assert life.wait(seconds_max=300) == 0, life.log_text()[-4000:]
    finally:
        life.end()
    assert [line for line in life.log_text().splitlines() if not line.startswith("{")] == [], "each line is an event"
    reasons = [stopping["reason"] for stopping in life.events("worker_stopping")]
    assert reasons == ["SIGTERM", "SIGINT", "SIGTERM", "idle"]
    demand_exactly_once(kafka.bootstrap, topic_name, lines=source.lines)


@contextmanager
def _without_spark(children: Sequence[psutil.Process]) -> Iterator[None]:
    """So a stop takes its whole time, and the second signal comes before its end on a busy machine too."""
    suspended = []
    for child in children:
        with suppress(psutil.NoSuchProcess):
            if child.name() == "java":
                child.suspend()
                suspended.append(child)
    assert suspended, "there was no Spark"
    try:
        yield
    finally:
        for child in suspended:
            with suppress(psutil.NoSuchProcess):
                child.resume()


def _demand_ended(children: Sequence[psutil.Process]) -> None:
    """Nothing that a worker has started stays behind it, its Spark least of all."""
    assert wait_until(lambda: not any(child.is_running() for child in children), seconds_max=300)


def _start_and_wait_for_progress(life: WorkerLife, kafka: KafkaStack, topic: str) -> None:
    seen = committed_end(kafka.bootstrap, topic)
    life.start()
    has_moved = wait_for_commits(kafka.bootstrap, topic, beyond=seen, seconds_max=300)
    assert has_moved, life.log_text()[-4000:]
