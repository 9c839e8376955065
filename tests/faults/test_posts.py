"""Kill a worker that listens to X with backfill: every post stands in the topic once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service.simulators.x import XSimulator
from service.simulators.x_settings import XSettings
from tests.faults.numbered_lines import job_files
from tests.faults.topic_watch import committed_end, committed_values, wait_for_commits
from tests.faults.worker_life import LOG_LOOK_SECONDS, WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow]
PROGRESS_SECONDS_MAX = 240.0
TICK_SECONDS = 0.02


@dataclass
class Posting:
    """A simulated X in a thread of its own, where somebody posts all the time."""

    x: XSimulator = field(default_factory=lambda: XSimulator(XSettings(is_enterprise=True, keep_alive_seconds=1.0)))
    ids: list[str] = field(default_factory=list)
    _is_posting: threading.Event = field(default_factory=threading.Event)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _is_up: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve and post while the block runs."""
        self._is_posting.set()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="posting")
        thread.start()
        try:
            assert self._is_up.wait(120)
            yield
        finally:
            self._is_over.set()
            thread.join()

    def stop_posting(self) -> None:
        """No more posts; who listens is not hung up on."""
        self._is_posting.clear()

    async def _serve(self) -> None:
        async with self.x:
            self._is_up.set()
            while not self._is_over.is_set():
                await asyncio.sleep(TICK_SECONDS)
                # What is posted before the connector has come for the first time it need not know.
                if self._is_posting.is_set() and (self.ids or self.x.connections):
                    self.ids.append(self.x.post(f"kafka {len(self.ids)}").id)


@pytest.mark.timeout(900)
def test_a_killed_worker_loses_no_post_and_repeats_none(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """X sends whole minutes again after each kill; the topic has each post once. Then it is idle."""
    posting = Posting()
    with posting.running():
        worker, _ = job_files(tmp_path, bootstrap=kafka.bootstrap, topic=topic_name, source=tmp_path / "unused")
        properties = {
            "name": topic_name,
            "topic": topic_name,
            "connector.class": "XStreamSource",
            "x.base.url": posting.x.url,
            "x.bearer.token": posting.x.settings.bearer_token,
            "x.keywords": "kafka",
            "x.recovery": "backfill",
            "key.converter": "string",
            "value.converter": "json",
            "errors.restart.backoff.ms": "200",
        }
        life = WorkerLife(worker, write_properties(tmp_path / "x.properties", properties), log=tmp_path / "worker.log")
        try:
            for number in range(3):
                life.start()
                _demand_progress(kafka, life, topic_name)
                if number < 2:
                    life.kill()
            posting.stop_posting()
            is_there = wait_until(
                lambda: _ids(kafka, topic_name).keys() >= {*posting.ids},
                seconds_max=PROGRESS_SECONDS_MAX,
                look_seconds=LOG_LOOK_SECONDS,
            )
            assert is_there, life.log_text()[-4000:]
            life.kill()
            # Only now: who posts may be kept waiting longer than it takes to look idle.
            life.start("--until-idle", "3")
            assert life.wait(seconds_max=300) == 0, life.log_text()[-4000:]
        finally:
            life.end()
    assert _ids(kafka, topic_name) == Counter(posting.ids)
    assert posting.x.truth().doubles > 0
    assert not life.events("source_gap")


def _ids(kafka: KafkaStack, topic: str) -> Counter[str]:
    """Of the posts in the topic, and how often each is there."""
    values = committed_values(kafka.bootstrap, topic)
    return Counter({json.loads(value or b"")["data"]["id"]: count for value, count in values.items()})


def _demand_progress(kafka: KafkaStack, life: WorkerLife, topic: str) -> None:
    seen = committed_end(kafka.bootstrap, topic)
    has_moved = wait_for_commits(kafka.bootstrap, topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
    assert has_moved, f"nothing was committed to {topic}:\n{life.log_text()[-6000:]}"
