"""One event reaches every observer; a test can wait for one."""

from __future__ import annotations

import asyncio

import pytest

from metrics.events import Event, PageFetched, TaskEvents, TaskRemoved, discard
from metrics.fanout import Emitter, RecordingEmitter


def test_every_observer_gets_every_event_in_order() -> None:
    """Observers are called one after another, in the order given."""
    seen: list[tuple[str, Event]] = []
    emit = Emitter(lambda event: seen.append(("first", event)), lambda event: seen.append(("second", event)), discard)
    event = TaskRemoved("c", 0)
    emit(event)

    assert seen == [("first", event), ("second", event)]


def test_a_broken_observer_is_not_hidden() -> None:
    """An observer's error reaches whoever emitted."""

    def broken(_event: Event) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        Emitter(broken)(TaskRemoved("c", 0))


def test_a_bound_task_fills_in_its_name() -> None:
    """A stage names only the facts; connector and task are bound once."""
    recorded = RecordingEmitter()
    TaskEvents(recorded, "c", 3)(PageFetched, records=2, bytes=20)

    assert recorded.events == [PageFetched("c", 3, records=2, bytes=20)]
    assert recorded.of(TaskRemoved) == []


async def test_waiting_ends_with_the_awaited_event() -> None:
    """A waiter wakes when enough events have come, earlier ones included."""
    recorded = RecordingEmitter()
    events = TaskEvents(recorded, "c", 0)
    events(PageFetched, records=1, bytes=1)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(recorded.wait_for(PageFetched, count=2))
        await asyncio.sleep(0)
        events(TaskRemoved)
        await asyncio.sleep(0)
        assert not waiting.done()
        events(PageFetched, records=2, bytes=2)

    assert [page.records for page in waiting.result()] == [1, 2]


async def test_waiting_in_vain_says_what_came_instead() -> None:
    """The timeout names the events seen."""
    recorded = RecordingEmitter()
    recorded(TaskRemoved("c", 0))
    with pytest.raises(TimeoutError, match=r"1 PageFetched; seen: .*TaskRemoved"):
        await recorded.wait_for(PageFetched, timeout_seconds=0.01)
