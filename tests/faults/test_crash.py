"""Kill anything at any moment: a ``read_committed`` consumer sees every source record exactly once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.faults.mixpanel_backfill import backfill
from tests.faults.numbered_lines import GrowingFile, demand_exactly_once, job_files
from tests.faults.topic_watch import committed_end, wait_for_commits
from tests.faults.worker_life import WorkerLife, pause, wait_until
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow]

WORKER, SPARK, BROKER = "worker", "spark", "broker"
PROGRESS_SECONDS_MAX = 300.0
KINDS = (WORKER, SPARK, BROKER, WORKER, SPARK)
"""Of every five kills, in a drawn order."""


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
        """Kill ``kills`` times, in bursts of one to three; between bursts something must be committed."""
        kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
        self.draw.shuffle(kinds)
        seen = 0
        while kinds:
            seen = self._wait_for_progress(seen)
            for _ in range(min(len(kinds), self.draw.randint(1, 3))):
                pause(self.draw.uniform(0, 2.0))
                self._kill(kinds.pop())
        self._wait_for_progress(seen)

    def _wait_for_progress(self, seen: int) -> int:
        bootstrap = self.kafka.bootstrap
        has_moved = wait_for_commits(bootstrap, self.topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
        assert has_moved, f"nothing was committed after {self.killed}:\n{self.life.log_text()[-6000:]}"
        return committed_end(bootstrap, self.topic)

    def _kill(self, kind: str) -> None:
        assert self.life.is_running, f"the worker ended by itself after {self.killed}:\n{self.life.log_text()[-6000:]}"
        if kind == WORKER:
            self.orphans += self.life.kill()
            self.life.start()
        elif kind == SPARK:
            assert wait_until(self.life.kill_spark, seconds_max=PROGRESS_SECONDS_MAX), "no Spark was started"
        else:
            self.kafka.kill()
            pause(self.draw.uniform(0, 1.0))
            self.kafka.restart()
        self.killed.append(kind)


@pytest.mark.timeout(1500)
def test_every_record_is_there_exactly_once_whatever_was_killed(
    kafka: KafkaStack, topic_name: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Records and dead letters of a growing file and a backfill stand exactly once, and no JVM outlives its worker."""
    seed = pytestconfig.getoption("--kill-seed")
    source = GrowingFile(tmp_path / "lines.jsonl")
    source.path.touch()
    files = job_files(tmp_path, bootstrap=kafka.bootstrap, topic=topic_name, source=source.path)
    with backfill(f"{topic_name}-events") as events:
        life = WorkerLife(*files, events.connector_file(tmp_path), log=tmp_path / "worker.log")
        chaos = Chaos(life, kafka, topic_name, random.Random(seed))
        try:
            with source.growing():
                life.start()
                chaos.run(kills=pytestconfig.getoption("--kills"))
            assert life.stop(seconds_max=300) == 0, life.log_text()[-4000:]
            life.start("--until-idle", "2")
            assert life.wait(seconds_max=300) == 0, life.log_text()[-4000:]
        finally:
            life.end()
            print(f"seed {seed}, killed {chaos.killed}, {source.lines} lines")  # noqa: T201 - to repeat a failure
        events.demand_exactly_once(kafka.bootstrap)
    assert not life.events("task_failed"), life.events("task_failed")[-1]
    demand_exactly_once(kafka.bootstrap, topic_name, lines=source.lines)
    gone = wait_until(lambda: not any(orphan.is_running() for orphan in chaos.orphans), seconds_max=300)
    assert gone, f"left behind: {[orphan.cmdline()[:3] for orphan in chaos.orphans if orphan.is_running()]}"
