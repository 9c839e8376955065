"""Two workers with one job: the newer goes on, the older is fenced and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.numbered_lines import GrowingFile, demand_exactly_once, job_files
from tests.faults.topic_watch import committed_end, wait_for_commits
from tests.faults.worker_life import LOG_LOOK_SECONDS, WorkerLife, wait_until
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
POLL_MS = "500"
"""Nothing is killed here, so neither need be at work at each moment: each micro-batch has its price."""


def test_the_older_of_two_workers_is_fenced(
    kafka: KafkaStack, spark_remote: str, topic_name: str, tmp_path: Path
) -> None:
    """The older's task FAILS with a clear text and its worker ends with 1; together they deliver all once."""
    source = GrowingFile(tmp_path / "lines.jsonl")
    source.path.touch()
    files = job_files(
        tmp_path,
        bootstrap=kafka.bootstrap,
        topic=topic_name,
        source=source.path,
        worker={"spark.remote": spark_remote},
        connector={"poll.interval.ms": POLL_MS},
    )
    older = WorkerLife(*files, log=tmp_path / "older.log")
    newer = WorkerLife(*files, log=tmp_path / "newer.log")
    try:
        with source.growing():
            older.start()
            assert wait_for_commits(kafka.bootstrap, topic_name, beyond=0, seconds_max=300)
            newer.start()
            has_failed = wait_until(
                lambda: older.events("task_failed") != [], seconds_max=300, look_seconds=LOG_LOOK_SECONDS
            )
            assert has_failed, older.log_text()[-4000:]
            (failure,) = older.events("task_failed")
            assert failure["error_class"] == "WriterFenced"
            assert "a newer writer with the same transactional id took over" in failure["message"]
            status, health = older.get("/health/ready")
            assert (status, "took over" in health) == (503, True)
            seen = committed_end(kafka.bootstrap, topic_name)
            assert wait_for_commits(kafka.bootstrap, topic_name, beyond=seen, seconds_max=300)
            assert older.stop(seconds_max=300) == 1
            assert newer.events("task_failed") == []
        assert newer.stop(seconds_max=300) == 0
        newer.start("--until-idle", "2")
        assert newer.wait(seconds_max=300) == 0, newer.log_text()[-4000:]
    finally:
        older.end()
        newer.end()
    demand_exactly_once(kafka.bootstrap, topic_name, lines=source.lines)
