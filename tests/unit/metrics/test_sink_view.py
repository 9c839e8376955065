"""Kafka Connect's figures of a sink task, from its events."""

from __future__ import annotations

from metrics.events import (
    PageFetched,
    SinkCommitFailed,
    SinkDeadLettersFailed,
    SinkLagMeasured,
    SinkOffsetsCommitted,
    SinkPartitionsChanged,
    SinkRecordsPut,
    SinkRecordsRead,
    TaskEvents,
    TaskRemoved,
    TaskRestarted,
    TaskStarted,
    TaskStateChanged,
)
from metrics.prometheus import PrometheusObserver
from tests.unit.metrics.exposition import Exposition

SINK = "kafka_connect_sink_task"
LABELS = {"connector": "out", "task": "0"}


class Scene:
    """An observer, a clock, and one sink task."""

    def __init__(self) -> None:
        self.now = 100.0
        self.observer = PrometheusObserver(clock=lambda: self.now, wall_clock=lambda: 0.0)
        self.task = TaskEvents(self.observer, "out", 0)

    def shown(self, name: str) -> float | None:
        """A sample of the task."""
        return Exposition(self.observer.render()).value(name, **LABELS)

    def names(self) -> set[str]:
        """Names of all samples."""
        return Exposition(self.observer.render()).names()


def test_a_started_sink_shows_its_figures_from_zero_and_none_of_sources() -> None:
    """Also where its first state was told before anybody knew that it is a sink."""
    scene = Scene()
    scene.task(TaskStateChanged, state="RESTARTING")
    scene.task(TaskStarted, is_success=True, seconds=0.1, kind="sink")
    assert scene.shown(f"{SINK}_sink_record_read_total") == 0
    assert scene.shown(f"{SINK}_partition_count") == 0
    assert [name for name in scene.names() if name.startswith("kafka_connect_source_task")] == []


def test_a_source_shows_no_figures_of_sinks() -> None:
    """Each kind has its group."""
    scene = Scene()
    scene.task(TaskStarted, is_success=True, seconds=0.1)
    scene.task(PageFetched, records=1, bytes=1)
    assert [name for name in scene.names() if name.startswith(SINK)] == []


def test_records_go_from_read_to_put_to_committed() -> None:
    """Active are those read and not yet committed."""
    scene = Scene()
    scene.task(SinkPartitionsChanged, count=3)
    scene.task(SinkRecordsRead, records=60, bytes=600)
    scene.task(SinkRecordsPut, records=58, seconds=0.25)
    assert scene.shown(f"{SINK}_sink_record_active_count") == 60
    scene.task(SinkOffsetsCommitted, number=1, records=60, seconds=0.1)
    scene.task(SinkLagMeasured, records=7)
    expected = {
        "partition_count": 3,
        "sink_record_read_total": 60,
        "sink_record_read_rate": 2,
        "sink_record_send_total": 58,
        "put_batch_max_time_ms": 250,
        "sink_record_active_count": 0,
        "sink_record_active_count_max": 60,
        "offset_commit_seq_no": 1,
        "offset_commit_completion_total": 1,
        "offset_commit_skip_total": 0,
        "sink_record_lag_max": 7,
    }
    assert {name: scene.shown(f"{SINK}_{name}") for name in expected} == expected
    assert scene.shown("kafka_connect_connector_task_batch_size_max") == 60


def test_commits_that_fail_and_those_that_come_too_late() -> None:
    """Both are failures; only the latter are skipped, and what was read is no longer this task's."""
    scene = Scene()
    scene.task(SinkRecordsRead, records=5, bytes=5)
    scene.task(SinkCommitFailed, error_class="Away", is_outdated=False)
    scene.task(SinkCommitFailed, error_class="CommitOutdated", is_outdated=True)
    scene.task(SinkPartitionsChanged, count=0)
    assert scene.shown(f"{SINK}_offset_commit_skip_total") == 1
    assert scene.shown(f"{SINK}_sink_record_active_count") == 0
    assert scene.shown("kafka_connect_connector_task_offset_commit_failure_percentage") == 1


def test_dead_letters_that_fail_are_counted() -> None:
    """As tried, and as failed."""
    scene = Scene()
    scene.task(SinkDeadLettersFailed, count=2, error_class="Away")
    assert scene.shown("kafka_connect_task_error_deadletterqueue_produce_requests") == 2
    assert scene.shown("kafka_connect_task_error_deadletterqueue_produce_failures") == 2


def test_a_restart_begins_anew_and_a_removal_ends_the_series() -> None:
    """As with Connect's other figures of tasks."""
    scene = Scene()
    scene.task(TaskStarted, is_success=True, seconds=0.1, kind="sink")
    scene.task(SinkRecordsRead, records=5, bytes=5)
    scene.task(TaskRestarted, attempt=1)
    assert scene.shown(f"{SINK}_sink_record_read_total") == 0
    assert [name for name in scene.names() if name.startswith("kafka_connect_source_task")] == []
    scene.observer(TaskRemoved("out", 0))
    assert [name for name in scene.names() if name.startswith(SINK)] == []
