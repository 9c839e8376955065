"""Events become the figures that Kafka Connect's and headrace's dashboards show."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.events import (
    BatchClosed,
    ComponentStateChanged,
    ConnectorRemoved,
    ConnectorStarted,
    ConnectorStateChanged,
    DeadLettersWritten,
    EndToEndMeasured,
    Event,
    FetchCompleted,
    MemoryHeldChanged,
    MemoryWaitBegan,
    OffsetCommitted,
    PageFetched,
    QueueWaitBegan,
    RecordRejectedLogged,
    RecordsCoerced,
    RecordsDeduplicated,
    RecordsDelivered,
    RecordsRejected,
    RequestAnswered,
    RetryScheduled,
    TaskEvents,
    TaskFailed,
    TaskRemoved,
    TaskRestarted,
    TaskStarted,
    TaskStateChanged,
    TransactionAborted,
    TransactionCommitted,
    WorkerStarted,
)
from metrics.prometheus import PrometheusObserver
from tests.unit.metrics.exposition import Exposition


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, seconds: float = 1000.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


class Scene:
    """One observer, the clock it reads, and one task's events."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.observe = PrometheusObserver(clock=self.clock, wall_clock=lambda: 1_700_000_000.5)
        self.task = TaskEvents(self.observe, "orders", 0)

    def shown(self) -> Exposition:
        """Return what Prometheus would scrape now."""
        return Exposition(self.observe.render())

    def of_task(self, name: str, **labels: str) -> float | None:
        """Return one sample of the task."""
        return self.shown().value(name, connector="orders", task="0", **labels)


@pytest.fixture
def scene() -> Scene:
    """An observer that has seen nothing."""
    return Scene()


def test_a_fresh_worker_shows_its_process_and_no_connector(scene: Scene) -> None:
    """Before any event there are process figures and no task's series."""
    shown = scene.shown()

    assert shown.connectors() == set()
    assert (shown.value("process_resident_memory_bytes") or 0) > 1_000_000
    assert shown.value("kafka_connect_worker_task_count") == 0


def test_the_version_is_shown_once_the_worker_started(scene: Scene) -> None:
    """``headrace_build_info`` carries the version."""
    scene.observe(WorkerStarted(version="1.2.3"))

    assert scene.shown().value("headrace_build_info", version="1.2.3") == 1


def test_a_started_task_shows_zeros_so_that_a_first_dead_letter_is_an_increase(scene: Scene) -> None:
    """Counters exist from the start of the task on."""
    scene.task(TaskStarted, is_success=True, seconds=0.1)

    assert scene.of_task("headrace_dead_letters_total") == 0
    assert scene.of_task("headrace_records_delivered_total") == 0
    assert scene.of_task("kafka_connect_task_error_total_record_errors") == 0
    assert scene.of_task("kafka_connect_source_task_source_record_poll_total") == 0


def test_a_started_source_task_waits_for_no_room(scene: Scene) -> None:
    """Whatever its last incarnation died of; a sink has no queue to show."""
    scene.task(QueueWaitBegan)
    scene.task(MemoryWaitBegan)
    assert scene.of_task("headrace_queue_pages_waiting") == scene.of_task("headrace_memory_waiting") == 1
    scene.task(TaskStarted, is_success=True, seconds=0.1)
    assert scene.of_task("headrace_queue_pages_waiting") == scene.of_task("headrace_memory_waiting") == 0

    sink = Scene()
    sink.task(TaskStarted, is_success=True, seconds=0.1, kind="sink")
    assert sink.of_task("headrace_queue_pages_waiting") is None


def test_memory_is_shown_of_a_task_and_of_the_worker(scene: Scene) -> None:
    """The worker's is told with each task's: it has no label."""
    scene.task(MemoryHeldChanged, bytes=10, worker_bytes=30, worker_bytes_max=100)

    assert scene.of_task("headrace_task_memory_bytes") == 10
    assert scene.shown().value("headrace_memory_bytes") == 30
    assert scene.shown().value("headrace_memory_bytes_limit") == 100


def test_a_settled_batch_leaves_no_record_active(scene: Scene) -> None:
    """Delivered, dead-lettered and dropped records together equal the fetched: none stays active."""
    scene.task(PageFetched, records=100, bytes=9_000, seconds=0.25)
    assert scene.of_task("kafka_connect_source_task_source_record_active_count") == 100

    scene.task(RecordsDelivered, records=90, bytes=8_000)
    scene.task(RecordsRejected, stage="VALUE_CONVERTER", reason="wrong_type", count=7)
    scene.task(DeadLettersWritten, count=7)
    scene.task(RecordsDeduplicated, count=3)
    scene.task(RecordsCoerced, field="price", count=5)
    scene.task(TransactionCommitted, records=97, seconds=0.02, source_records=100)

    assert scene.of_task("kafka_connect_source_task_source_record_active_count") == 0
    assert scene.of_task("kafka_connect_source_task_source_record_active_count_max") == 100
    assert scene.of_task("kafka_connect_source_task_source_record_poll_total") == 100
    assert scene.of_task("kafka_connect_source_task_source_record_write_total") == 90
    assert scene.of_task("kafka_connect_source_task_transaction_size_max") == 97
    assert scene.of_task("kafka_connect_source_task_poll_batch_max_time_ms") == 250
    assert scene.of_task("headrace_records_fetched_total") == 100
    assert scene.of_task("headrace_records_delivered_total") == 90
    assert scene.of_task("headrace_records_deduplicated_total") == 3
    assert scene.of_task("headrace_records_coerced_total", field="price") == 5
    assert scene.of_task("headrace_dead_letters_total") == 7
    rejected = scene.of_task("headrace_records_rejected_total", stage="VALUE_CONVERTER", reason="wrong_type")
    assert rejected == 7


def test_errors_count_as_connect_counts_them(scene: Scene) -> None:
    """Each attempt is a failure, each lost record an error, only tolerated ones are skipped."""
    retry = {"stage": "fetch", "error_class": "Retriable"}
    scene.task(RetryScheduled, stage="fetch", error_class="Retriable", attempt=1, wait_seconds=0.5)
    scene.task(RecordsRejected, stage="VALUE_CONVERTER", reason="malformed_json", count=4)
    scene.task(RecordsRejected, stage="VALUE_CONVERTER", reason="malformed_json", count=1, is_tolerated=False)
    scene.task(
        RecordRejectedLogged,
        stage="VALUE_CONVERTER",
        reason="malformed_json",
        message="",
        source_partition="{}",
        source_offset="{}",
    )
    scene.task(DeadLettersWritten, count=4)
    scene.task(TransactionAborted, error_class="KafkaError", dead_letters=2)

    errors = "kafka_connect_task_error"
    assert scene.of_task(f"{errors}_total_record_failures") == 6
    assert scene.of_task(f"{errors}_total_record_errors") == 5
    assert scene.of_task(f"{errors}_total_records_skipped") == 4
    assert scene.of_task(f"{errors}_total_retries") == 1
    assert scene.of_task(f"{errors}_total_errors_logged") == 1
    assert scene.of_task(f"{errors}_deadletterqueue_produce_requests") == 6
    assert scene.of_task(f"{errors}_deadletterqueue_produce_failures") == 2
    assert scene.of_task(f"{errors}_last_error_timestamp") == 1_700_000_000_500
    assert scene.of_task("headrace_retries_total", **retry) == 1


def test_offset_commits_show_times_and_the_share_that_failed(scene: Scene) -> None:
    """One aborted of four commits is a quarter, in spite of the name a fraction."""
    for seconds in (0.01, 0.02, 0.03):
        scene.task(OffsetCommitted, seconds=seconds)
    scene.task(TransactionAborted, error_class="KafkaError")

    task = "kafka_connect_connector_task"
    assert scene.of_task(f"{task}_offset_commit_max_time_ms") == pytest.approx(30)
    assert scene.of_task(f"{task}_offset_commit_avg_time_ms") == pytest.approx(20)
    assert scene.of_task(f"{task}_offset_commit_failure_percentage") == 0.25
    assert scene.of_task(f"{task}_offset_commit_success_percentage") == 0.75


def test_shares_of_time_follow_the_states(scene: Scene) -> None:
    """Thirty seconds running, ten paused: three quarters and a quarter, as of now."""
    scene.task(TaskStateChanged, state="RUNNING")
    scene.clock.seconds += 30
    scene.task(TaskStateChanged, state="PAUSED")
    scene.clock.seconds += 10

    assert scene.of_task("kafka_connect_connector_task_running_ratio") == 0.75
    assert scene.of_task("kafka_connect_connector_task_pause_ratio") == 0.25
    assert scene.of_task("kafka_connect_connector_task_status", status="paused") == 1
    assert scene.of_task("kafka_connect_connector_task_status", status="running") == 0


def test_the_worker_counts_connectors_tasks_and_their_states(scene: Scene) -> None:
    """Counts by state follow the last state of each task."""
    scene.observe(ConnectorStarted("orders", is_success=True, connector_class="a.B", version="1"))
    scene.observe(ConnectorStateChanged("orders", state="RUNNING"))
    for task, state in enumerate(["RUNNING", "RUNNING", "FAILED", "PAUSED"]):
        events = TaskEvents(scene.observe, "orders", task)
        events(TaskStarted, is_success=state != "FAILED", seconds=0.1)
        events(TaskStateChanged, state=state)

    shown = scene.shown()
    worker = "kafka_connect_worker"
    assert shown.value(f"{worker}_connector_count") == 1
    assert shown.value(f"{worker}_task_count") == 4
    assert shown.value(f"{worker}_connector_total_task_count", connector="orders") == 4
    assert shown.value(f"{worker}_connector_running_task_count", connector="orders") == 2
    assert shown.value(f"{worker}_connector_failed_task_count", connector="orders") == 1
    assert shown.value(f"{worker}_connector_paused_task_count", connector="orders") == 1
    assert shown.value(f"{worker}_task_startup_attempts_total") == 4
    assert shown.value(f"{worker}_task_startup_failure_percentage") == 0.25
    assert shown.value("kafka_connect_connector_status", connector="orders", status="running") == 1
    assert shown.value("kafka_connect_connector_connector_type", connector="orders", type="source") == 1


def test_a_restart_resets_connects_counters_and_keeps_ours(scene: Scene) -> None:
    """Connect's task counters begin again; headrace's go on, so that nothing is lost from the books."""
    scene.task(TaskStateChanged, state="RUNNING")
    scene.task(PageFetched, records=5, bytes=50)
    scene.task(TaskRestarted, attempt=1)
    scene.task(PageFetched, records=2, bytes=20)

    assert scene.of_task("kafka_connect_source_task_source_record_poll_total") == 2
    assert scene.of_task("kafka_connect_source_task_source_record_active_count") == 2
    assert scene.of_task("headrace_records_fetched_total") == 7
    assert scene.of_task("headrace_task_restarts_total") == 1
    assert scene.of_task("kafka_connect_connector_task_status", status="running") == 1


def test_a_removed_task_leaves_no_series_and_its_brother_all(scene: Scene) -> None:
    """After a task moved to another worker this one no longer speaks of it."""
    brother = TaskEvents(scene.observe, "orders", 1)
    for events in (scene.task, brother):
        run_through(events)
    scene.task(TaskRemoved)

    tasks = {dict(labels).get("task") for _, labels in scene.shown().samples} - {None}
    assert tasks == {"1"}
    assert scene.shown().value("kafka_connect_worker_task_count") == 1


def test_a_removed_connector_leaves_nothing(scene: Scene) -> None:
    """A deleted connector disappears from every metric; another stays."""
    scene.observe(ConnectorStarted("orders", is_success=True, connector_class="a.B", version="1"))
    scene.observe(ConnectorStateChanged("orders", state="RUNNING"))
    run_through(scene.task)
    run_through(TaskEvents(scene.observe, "clicks", 0))
    scene.observe(ConnectorRemoved("orders"))

    assert scene.shown().connectors() == {"clicks"}


def test_end_to_end_times_are_weighted_by_records(scene: Scene) -> None:
    """A page of 50,000 records counts for 50,000."""
    scene.task(EndToEndMeasured, seconds=0.3, count=50_000)
    scene.task(EndToEndMeasured, seconds=3, count=1)

    assert scene.of_task("headrace_end_to_end_seconds_count") == 50_001
    assert scene.of_task("headrace_end_to_end_seconds_bucket", le="0.5") == 50_000


def test_a_lost_component_is_seen(scene: Scene) -> None:
    """Readiness of each part is a gauge of its own."""
    scene.observe(ComponentStateChanged(component="kafka", is_ready=True))
    scene.observe(ComponentStateChanged(component="spark", is_ready=False, detail="JVM gone"))

    assert scene.shown().value("headrace_component_ready", component="kafka") == 1
    assert scene.shown().value("headrace_component_ready", component="spark") == 0


def test_rest_answers_are_counted_by_route_pattern(scene: Scene) -> None:
    """The pattern is the label, braces and all."""
    scene.observe(RequestAnswered(method="GET", route="/connectors/{name}", status=404, seconds=0.002))

    labels = {"method": "GET", "route": "/connectors/{name}", "status": "404"}
    assert scene.shown().value("headrace_http_requests_total", **labels) == 1


def test_an_idle_task_shows_rates_of_nothing(scene: Scene) -> None:
    """A minute after the last page the rate is 0 and the average unknown, the total stays."""
    scene.task(PageFetched, records=60, bytes=600, seconds=0.1)
    scene.task(BatchClosed, records=60, bytes=600, age_seconds=0.1, reason="idle")
    assert (scene.of_task("kafka_connect_source_task_source_record_poll_rate") or 0) > 0
    scene.clock.seconds += 61

    assert scene.of_task("kafka_connect_source_task_source_record_poll_rate") == 0
    assert math.isnan(scene.of_task("kafka_connect_connector_task_batch_size_avg") or 0)
    assert scene.of_task("kafka_connect_source_task_source_record_poll_total") == 60


deliveries = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 100)), max_size=20
)


@settings(deadline=None)  # parses an exposition each time
@given(deliveries)
def test_the_books_balance(batches: list[tuple[int, int, int, int]]) -> None:
    """Whatever is settled: fetched = delivered + dead-lettered + duplicates + active."""
    scene = Scene()
    scene.task(TaskStarted, is_success=True, seconds=0.1)
    for delivered, rejected, deduplicated, left in batches:
        settled = delivered + rejected + deduplicated
        scene.task(PageFetched, records=settled + left, bytes=1)
        scene.task(RecordsDelivered, records=delivered, bytes=1)
        scene.task(DeadLettersWritten, count=rejected)
        scene.task(RecordsDeduplicated, count=deduplicated)
        scene.task(TransactionCommitted, records=delivered + rejected, seconds=0.1, source_records=settled)

    shown = scene.shown()
    fetched, *parts = (
        shown.value(name, connector="orders", task="0") or 0.0
        for name in (
            "headrace_records_fetched_total",
            "headrace_records_delivered_total",
            "headrace_dead_letters_total",
            "headrace_records_deduplicated_total",
            "kafka_connect_source_task_source_record_active_count",
        )
    )
    assert fetched == sum(parts) == sum(map(sum, batches))


async def test_metrics_can_be_written_while_events_go_on(scene: Scene) -> None:
    """Writing aside gives a sound exposition of at least what had happened, while the loop goes on."""
    scene.task(PageFetched, records=1, bytes=1)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(scene.observe.expose())
        for number in range(2000):
            TaskEvents(scene.observe, "orders", number)(EndToEndMeasured, seconds=0.1, count=1)
            if number % 100 == 0:
                await asyncio.sleep(0)

    written = Exposition(writing.result())
    assert written.value("headrace_records_fetched_total", connector="orders", task="0") == 1
    for (name, labels), count in written.samples.items():
        if name == "headrace_end_to_end_seconds_count":
            inner = dict(labels) | {"le": "+Inf"}
            assert written.value("headrace_end_to_end_seconds_bucket", **inner) == count


def test_an_event_without_figures_changes_nothing(scene: Scene) -> None:
    """An event that only the log knows is taken in peace."""
    before = scene.shown().names()
    scene.observe(Event())

    assert scene.shown().names() == before


def run_through(events: TaskEvents) -> None:
    """Let a task do something of everything."""
    events(TaskStarted, is_success=True, seconds=0.1)
    events(TaskStateChanged, state="RUNNING")
    events(FetchCompleted, outcome="ok", bytes=10, seconds=0.1)
    events(PageFetched, records=1, bytes=10)
    events(BatchClosed, records=1, bytes=10, age_seconds=0.1, reason="idle")
    events(RecordsRejected, stage="VALUE_CONVERTER", reason="malformed_json", count=1)
    events(TransactionCommitted, records=1, seconds=0.1)
    events(TaskFailed, error_class="Fatal", message="", trace="")
