"""The lag behind the source is as told, and goes on growing while nobody can tell it."""

from __future__ import annotations

from metrics.catalogue import own
from metrics.events import (
    MemoryWaitBegan,
    MemoryWaited,
    PageFetched,
    QueueStalled,
    QueueWaitBegan,
    RetryScheduled,
    SourceBacklogMeasured,
    SourceLagMeasured,
    TaskEvents,
)
from metrics.prometheus import PrometheusObserver
from tests.unit.metrics.exposition import Exposition


class Scene:
    """An observer, the time it reads, and one task's events."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.observe = PrometheusObserver(clock=lambda: self.seconds)
        self.task = TaskEvents(self.observe, "orders", 0)

    def retry(self, stage: str) -> None:
        """Fail once."""
        self.task(RetryScheduled, stage=stage, error_class="Retriable", attempt=1, wait_seconds=1.0, message="away")

    def lag_after(self, seconds: float) -> float | None:
        """The lag that is shown when so much time has passed."""
        self.seconds += seconds
        return Exposition(self.observe.render()).value(own.SOURCE_LAG.name, connector="orders", task="0")


def test_the_lag_is_as_last_told_while_the_fetcher_works() -> None:
    """Time alone adds nothing: a source that was read to its end and is idle has no lag."""
    scene = Scene()
    assert scene.lag_after(0) is None
    scene.task(SourceLagMeasured, seconds=40.0)
    assert scene.lag_after(60) == 40
    scene.task(SourceLagMeasured, seconds=0.0)
    assert scene.lag_after(3600) == 0


def test_what_the_source_keeps_is_shown_in_bytes() -> None:
    """As last told; of a source that never told there is no series."""
    scene = Scene()
    labels = {"connector": "orders", "task": "0"}
    assert Exposition(scene.observe.render()).value(own.SOURCE_BACKLOG.name, **labels) is None
    scene.task(SourceBacklogMeasured, bytes=7_000_000)
    scene.task(SourceBacklogMeasured, bytes=5_000_000)
    assert Exposition(scene.observe.render()).value(own.SOURCE_BACKLOG.name, **labels) == 5_000_000


def test_the_lag_grows_from_the_first_failure_on_until_the_source_answers() -> None:
    """However often it is tried meanwhile; a conversion that is tried again says nothing of the source."""
    scene = Scene()
    scene.task(SourceLagMeasured, seconds=5.0)
    scene.retry("convert")
    assert scene.lag_after(100) == 5
    scene.retry("fetch")
    assert scene.lag_after(100) == 105
    scene.retry("fetch")
    assert scene.lag_after(3600) == 3705
    scene.task(SourceLagMeasured, seconds=0.0)
    assert scene.lag_after(100) == 0


def test_a_page_after_a_failure_ends_the_growth() -> None:
    """The source answers again; what the fetcher told last holds until it tells more."""
    scene = Scene()
    scene.task(SourceLagMeasured, seconds=5.0)
    scene.retry("fetch")
    assert scene.lag_after(100) == 105
    scene.task(PageFetched, records=1, bytes=1, seconds=0.1)
    assert scene.lag_after(100) == 5


def test_the_lag_grows_while_a_page_waits_for_room() -> None:
    """A broker that is away for hours leaves the source unread for hours."""
    scene = Scene()
    scene.task(SourceLagMeasured, seconds=0.0)
    scene.task(QueueWaitBegan)
    assert scene.lag_after(7200) == 7200
    scene.task(QueueStalled, seconds=7200.0)
    assert scene.lag_after(10) == 0


def test_the_lag_grows_while_the_worker_has_no_memory_for_a_page() -> None:
    """The source is not asked meanwhile, whoever holds the memory."""
    scene = Scene()
    scene.task(SourceLagMeasured, seconds=0.0)
    scene.task(MemoryWaitBegan)
    assert scene.lag_after(60) == 60
    scene.task(MemoryWaited, seconds=60.0)
    assert scene.lag_after(10) == 0
