"""Kill a worker that listens: nothing is lost or repeated of what can be had again, and else no more than was told."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.numbered_lines import SCHEMA, job_files
from tests.faults.talking_server import Counting
from tests.faults.topic_watch import committed_end, committed_values, wait_for_commits
from tests.faults.worker_life import LOG_LOOK_SECONDS, WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow]
PROGRESS_SECONDS_MAX = 240.0


@pytest.mark.timeout(900)
def test_a_killed_listener_loses_nothing_it_can_have_again_and_no_more_than_it_tells(
    kafka: KafkaStack, topic_name: str, tmp_path: Path
) -> None:
    """Events with ids, and messages behind a cursor, stand once each; of lines one run is missing for each gap told."""
    events, messages, lines = f"{topic_name}-events", f"{topic_name}-messages", f"{topic_name}-lines"
    counting = Counting()
    with counting.running():
        worker, _ = job_files(tmp_path, bootstrap=kafka.bootstrap, topic=topic_name, source=tmp_path / "unused")
        connectors = (
            _connector(tmp_path, events, {"connector.class": "SseSource", "sse.url": f"{counting.url}/events"}),
            _connector(
                tmp_path,
                messages,
                {
                    "connector.class": "WebSocketSource",
                    "websocket.url": f"{counting.url}/messages".replace("http:", "ws:"),
                    "websocket.subscribe": '{"after": {offset}}',
                    "websocket.cursor.field": "number",
                    "websocket.cursor.initial": "-1",
                },
            ),
            _connector(
                tmp_path, lines, {"connector.class": "NdjsonStreamSource", "stream.url": f"{counting.url}/lines"}
            ),
        )
        life = WorkerLife(worker, *connectors, log=tmp_path / "worker.log")
        try:
            for _ in range(2):
                life.start()
                _demand_progress(kafka, life, events, messages, lines)
                life.kill()
            life.start()
            _demand_progress(kafka, life, events, messages, lines)
            counting.stop_counting()
            is_there = wait_until(
                lambda: all(len(_numbers(kafka, topic)) >= counting.numbers for topic in (events, messages)),
                seconds_max=PROGRESS_SECONDS_MAX,
                look_seconds=LOG_LOOK_SECONDS,
            )
            assert is_there, life.log_text()[-4000:]
            assert life.stop(seconds_max=300) == 0, life.log_text()[-4000:]
        finally:
            life.end()
    for topic in (events, messages):
        assert _numbers(kafka, topic) == Counter(range(counting.numbers)), topic
    heard = _numbers(kafka, lines)
    assert heard.total() == len(heard), f"{heard.total() - len(heard)} lines are there more than once"
    gaps = [event for event in life.events("source_gap") if event["connector"] == lines]
    assert [gap["reason"] for gap in gaps] == ["restarted", "restarted"]
    assert all(gap["seconds"] > 0 for gap in gaps)
    assert _missing_runs(heard) <= len(gaps)
    assert not [event for event in life.events("source_gap") if event["connector"] != lines]


def _connector(folder: Path, topic: str, properties: dict[str, str]) -> Path:
    shared = {
        "name": topic,
        "topic": topic,
        "value.converter": "json",
        "contract.schema": json.dumps(SCHEMA),
        "errors.restart.backoff.ms": "200",
    }
    return write_properties(folder / f"{topic}.properties", shared | properties)


def _demand_progress(kafka: KafkaStack, life: WorkerLife, *topics: str) -> None:
    for topic in topics:
        seen = committed_end(kafka.bootstrap, topic)
        has_moved = wait_for_commits(kafka.bootstrap, topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
        assert has_moved, f"nothing was committed to {topic}:\n{life.log_text()[-6000:]}"


def _numbers(kafka: KafkaStack, topic: str) -> Counter[int]:
    values = committed_values(kafka.bootstrap, topic)
    return Counter({json.loads(value or b"")["number"]: count for value, count in values.items()})


def _missing_runs(heard: Counter[int]) -> int:
    """Runs of numbers that are missing between the first and the last one heard."""
    numbers = sorted(heard)
    return sum(later != earlier + 1 for earlier, later in pairwise(numbers))
