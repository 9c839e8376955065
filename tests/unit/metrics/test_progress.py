"""The figures of connectors follow from events alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fetchers.file.reading import FileMissing
from metrics.events import (
    BatchConverted,
    ConnectorRemoved,
    PageFetched,
    RecordsDeduplicated,
    RecordsDelivered,
    RecordsRejected,
    RetriesEnded,
    RetryScheduled,
    SinkLagMeasured,
    SinkOffsetsCommitted,
    SinkRecordsPut,
    SinkRecordsRead,
    SourceCaughtUp,
    TaskEvents,
    TaskFailed,
    TaskRemoved,
    TaskStarted,
    TaskStateChanged,
    TransactionAborted,
    TransactionCommitted,
)
from metrics.progress import RATE_SECONDS, ConnectorProgress, ProgressView, combined_state


class Scene:
    """A view, the time it reads, and the events of one connector's tasks."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.view = ProgressView(lambda _, task: {0: 2.0, 1: 5.0}.get(task), clock=self.now, wall_clock=self.now)

    def now(self) -> float:
        """Both clocks."""
        return self.seconds

    def task(self, number: int = 0) -> TaskEvents:
        """The events of one task, which has begun."""
        events = TaskEvents(self.view, "orders", number)
        events(TaskStarted, is_success=True, seconds=1.0)
        events(TaskStateChanged, state="RUNNING")
        return events

    def commit(self, task: TaskEvents, records: int) -> None:
        """Fetch and deliver so many."""
        task(PageFetched, records=records, bytes=1)
        task(RecordsDelivered, records=records, bytes=1)
        task(TransactionCommitted, records=records, source_records=records, seconds=0.1)

    @property
    def progress(self) -> ConnectorProgress:
        """Of the one connector."""
        (found,) = self.view.connectors()
        return found


def test_counts_are_those_of_commits() -> None:
    """What was fetched is in hand until a commit settles it, delivered or not."""
    scene = Scene()
    task = scene.task()
    task(PageFetched, records=10, bytes=100)
    assert scene.progress.tasks[0].records_in_hand == 10
    task(RecordsDelivered, records=6, bytes=60)
    task(RecordsRejected, stage="VALUE_CONVERTER", reason="type", count=3)
    task(RecordsDeduplicated, count=1)
    task(TransactionCommitted, records=9, source_records=10, seconds=0.1)
    found = scene.progress
    assert (found.fetched_records, found.delivered_records) == (10, 6)
    assert (found.rejected_records, found.deduplicated_records) == (3, 1)
    assert (found.tasks[0].records_in_hand, found.tasks[0].commits) == (0, 1)
    assert found.last_commit_seconds == scene.seconds


def test_tasks_are_summed_and_the_worst_is_shown() -> None:
    """Counts add up; of lags the largest, of states the one that wants looking at."""
    scene = Scene()
    first, second = scene.task(0), scene.task(1)
    scene.commit(first, 5)
    scene.commit(second, 7)
    second(TaskStateChanged, state="FAILED")
    found = scene.progress
    assert (found.delivered_records, found.lag_seconds, found.state) == (12, 5.0, "FAILED")


def test_a_rate_looks_back_half_a_minute() -> None:
    """It is that of the start at first, and 0 when nothing has come for long."""
    scene = Scene()
    task = scene.task()
    assert scene.progress.records_per_second == 0
    scene.seconds += 2
    scene.commit(task, 100)
    assert scene.progress.records_per_second == 50
    for _ in range(100):
        scene.seconds += 1
        scene.commit(task, 10)
    assert round(scene.progress.records_per_second) == 10
    scene.seconds += RATE_SECONDS + 1
    assert scene.progress.records_per_second == 0


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(0, 1000)), max_size=60))
def test_a_rate_is_never_more_than_what_was_settled(commits: list[tuple[float, int]]) -> None:
    """Nor negative, whatever the rhythm."""
    scene = Scene()
    task = scene.task()
    total = 0
    for wait, records in commits:
        scene.seconds += wait
        scene.commit(task, records)
        total += records
        assert 0 <= scene.progress.records_per_second <= total
    assert scene.progress.delivered_records == total


def test_a_retry_is_trouble_until_its_stage_works_again() -> None:
    """A page says nothing of a conversion that fails, nor does another conversion."""
    scene = Scene()
    task = scene.task()
    task(
        RetryScheduled,
        stage="convert",
        error_class="SparkAway",
        attempt=2,
        wait_seconds=1.0,
        message="Spark is away",
        part=7,
    )
    task(PageFetched, records=1, bytes=1)
    task(BatchConverted, records=1, seconds=0.1)
    task(RetriesEnded, stage="convert", part=6)
    trouble = scene.progress.trouble
    assert trouble is not None
    assert (trouble.message, trouble.attempt, trouble.is_over) == ("convert is tried again: Spark is away", 2, False)
    task(RetriesEnded, stage="convert", part=7)
    trouble = scene.progress.trouble
    assert trouble is not None
    assert trouble.is_over


def test_whatever_is_loud_in_the_log_is_trouble() -> None:
    """A file that is not there is told of once, in the log; the figures say it for as long as it lasts."""
    scene = Scene()
    task = scene.task()
    task(FileMissing, file="/data/x.log")
    trouble = scene.progress.trouble
    assert trouble is not None
    assert (trouble.message, trouble.is_over) == ("file missing: file /data/x.log", False)
    task(PageFetched, records=1, bytes=1)
    trouble = scene.progress.trouble
    assert trouble is not None
    assert trouble.is_over


def test_a_failure_is_over_when_the_task_has_started_again() -> None:
    """What is not over is shown before what came later and is."""
    scene = Scene()
    first, second = scene.task(0), scene.task(1)
    first(TaskFailed, error_class="Fatal", message="the file is gone", trace="")
    scene.seconds += 1
    second(TransactionAborted, error_class="Fenced")
    second(TaskStarted, is_success=True, seconds=1.0)
    trouble = scene.progress.trouble
    assert trouble is not None
    assert trouble.message == "the file is gone"
    first(TaskStarted, is_success=True, seconds=1.0)
    trouble = scene.progress.trouble
    assert trouble is not None
    assert (trouble.message, trouble.is_over) == ("transaction aborted: error_class Fenced, dead_letters 0", True)


def test_an_incarnation_begins_anew() -> None:
    """Its commits, what it has in hand, whether it has seen all; the counts go on."""
    scene = Scene()
    task = scene.task()
    scene.commit(task, 3)
    task(PageFetched, records=4, bytes=1)
    task(SourceCaughtUp)
    assert scene.progress.tasks[0].is_caught_up
    scene.task()
    found = scene.progress.tasks[0]
    assert (found.commits, found.records_in_hand, found.is_caught_up) == (0, 0, False)
    assert found.delivered_records == 3


def test_a_sink_counts_what_it_has_taken() -> None:
    """Its lag is in records."""
    scene = Scene()
    task = scene.task()
    task(SinkRecordsRead, records=8, bytes=1)
    task(SinkRecordsPut, records=8, seconds=0.1)
    task(SinkLagMeasured, records=2)
    task(SinkOffsetsCommitted, number=1, records=8, seconds=0.1)
    found = scene.progress
    assert (found.fetched_records, found.delivered_records, found.lag_records) == (8, 8, 2)
    assert (found.tasks[0].commits, found.tasks[0].records_in_hand) == (1, 0)


def test_what_a_task_has_done_stays_when_it_moves_away() -> None:
    """Until its connector is gone from here."""
    scene = Scene()
    scene.commit(scene.task(0), 3)
    scene.commit(scene.task(1), 4)
    scene.view(TaskRemoved("orders", 1))
    assert (scene.progress.delivered_records, len(scene.progress.tasks)) == (7, 1)
    scene.view(ConnectorRemoved("orders"))
    assert scene.view.connectors() == ()
    assert scene.view.connectors(["orders"]) == ()


def test_states_combine_to_the_most_urgent() -> None:
    """Nothing at all is UNASSIGNED."""
    assert combined_state(["RUNNING", "RESTARTING"]) == "RESTARTING"
    assert combined_state([]) == "UNASSIGNED"
