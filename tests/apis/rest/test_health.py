"""What a worker says of its health."""

from __future__ import annotations

import pytest

from metrics.events import (
    BatchConverted,
    ComponentStateChanged,
    Event,
    FetchCompleted,
    ListenerConnected,
    PageFetched,
    RetriesEnded,
    RetryScheduled,
    SinkRecordsPut,
    TaskRemoved,
    TaskStateChanged,
    WorkerStarted,
    WorkerStopping,
)
from service.rest.health import Health

RUNNING = TaskStateChanged("c", 0, state="RUNNING")


def health(*events: Event) -> Health:
    """A started worker's, after these events."""
    made = Health()
    for event in (WorkerStarted(version="1"), *events):
        made(event)
    return made


def retry(stage: str, attempt: int = 1) -> RetryScheduled:
    """A retry of the only task."""
    return RetryScheduled(
        "c",
        0,
        stage=stage,
        error_class="Retriable",
        attempt=attempt,
        wait_seconds=1.23456,
        message="Retriable: away",
        part=None if stage == "fetch" else 7,
    )


def test_a_worker_is_ready_once_it_has_started() -> None:
    """Not before, and not once it stops: nothing new should be sent to it then."""
    assert not Health().is_ready
    assert health(RUNNING).is_ready
    assert not health(RUNNING, WorkerStopping(reason="asked")).is_ready


@pytest.mark.parametrize("state", ["FAILED", "RESTARTING"])
def test_a_task_that_does_not_work_makes_it_unready_and_says_why(state: str) -> None:
    """Until it works again."""
    broken = health(RUNNING, TaskStateChanged("c", 0, state=state, reason="Fatal: 401"))
    assert not broken.is_ready
    assert broken.report(has_reasons=True)["tasks"] == {"c-0": {"state": state, "reason": "Fatal: 401"}}
    broken(RUNNING)
    assert broken.is_ready


def test_a_component_that_is_away_makes_it_unready_and_says_why() -> None:
    """Spark while it starts, Kafka while it is restarted."""
    spark = health(ComponentStateChanged(component="spark", is_ready=False, detail="starting"))
    assert spark.report(has_reasons=True) == {
        "status": "not ready",
        "components": {"spark": {"ready": False, "detail": "starting"}},
        "tasks": {},
    }
    spark(ComponentStateChanged(component="spark", is_ready=True))
    assert spark.is_ready


def test_a_retry_is_told_and_the_worker_still_ready() -> None:
    """An API that is away is no fault of the worker; whoever looks sees it."""
    retrying = health(RUNNING, retry("fetch", 2), retry("fetch", 3), retry("convert"))
    assert retrying.is_ready
    assert retrying.report(has_reasons=True)["tasks"]["c-0"]["retrying"] == [
        {"stage": "fetch", "error": "Retriable", "message": "Retriable: away", "attempt": 3, "wait_seconds": 1.235},
        {"stage": "convert", "error": "Retriable", "message": "Retriable: away", "attempt": 1, "wait_seconds": 1.235},
    ]


@pytest.mark.parametrize(
    ("stage", "recovery"),
    [
        ("fetch", PageFetched("c", 0, records=1, bytes=1)),
        ("fetch", FetchCompleted("c", 0, outcome="ok", bytes=1, seconds=1)),
        ("fetch", ListenerConnected("c", 0, is_resumed=True)),
        ("convert", RetriesEnded("c", 0, stage="convert", part=7)),
        ("put", RetriesEnded("c", 0, stage="put", part=7)),
        ("fetch", RUNNING),
    ],
)
def test_a_retry_is_told_until_its_stage_works_again(stage: str, recovery: Event) -> None:
    """Of that task and stage, and of no other."""
    other = RetryScheduled("d", 0, stage=stage, error_class="X", attempt=1, wait_seconds=1)
    recovered = health(RUNNING, retry(stage), other, recovery)
    assert "retrying" not in recovered.report(has_reasons=True)["tasks"]["c-0"]
    assert "retrying" in recovered.report(has_reasons=True)["tasks"]["d-0"]


def test_a_failing_request_is_no_recovery() -> None:
    """Nor is the success of another stage."""
    failing = health(
        RUNNING,
        retry("fetch"),
        FetchCompleted("c", 0, outcome="retriable", bytes=0, seconds=1),
        BatchConverted("c", 0, records=1, seconds=1),
    )
    assert "retrying" in failing.report(has_reasons=True)["tasks"]["c-0"]


@pytest.mark.parametrize("stage", ["convert", "put"])
def test_what_is_done_beside_a_retry_does_not_end_it(stage: str) -> None:
    """A task converts and puts several things at once: the one that is tried again waits as before."""
    failing = health(
        RUNNING,
        retry(stage),
        BatchConverted("c", 0, records=1, seconds=1),
        SinkRecordsPut("c", 0, records=1, seconds=1),
        RetriesEnded("c", 0, stage=stage, part=6),
    )
    assert "retrying" in failing.report(has_reasons=True)["tasks"]["c-0"]


def test_a_removed_task_is_forgotten() -> None:
    """A deleted connector that had failed does not keep the worker unready."""
    removed = health(TaskStateChanged("c", 0, state="FAILED"), retry("fetch"), TaskRemoved("c", 0))
    assert removed.is_ready
    assert removed.report(has_reasons=True)["tasks"] == {}
