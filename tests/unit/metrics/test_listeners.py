"""What is shown of a listener: its connections, its inbox, and what it has missed."""

from __future__ import annotations

from metrics.events import (
    InboxChanged,
    InboxWaitBegan,
    InboxWaited,
    ListenerConnected,
    ReconnectCeilingReached,
    SourceGap,
    TaskEvents,
    TaskStarted,
)
from metrics.prometheus import PrometheusObserver
from tests.unit.metrics.exposition import Exposition


def test_what_a_listener_misses_is_counted_from_nought_on() -> None:
    """Gaps with their seconds and messages where they are known; and whether it does not read for want of room."""
    observe = PrometheusObserver()
    tell = TaskEvents(observe, "c", 0)

    def shown(*names: str) -> list[float | None]:
        exposition = Exposition(observe.render())
        return [exposition.value(f"headrace_{name}", connector="c", task="0") for name in names]

    missed = ("source_gaps_total", "source_gap_seconds_total", "source_gap_messages_total")
    tell(TaskStarted, is_success=True, seconds=1.0)
    assert shown(*missed) == [0, 0, 0]
    tell(ListenerConnected, is_resumed=False)
    tell(SourceGap, reason="restarted", seconds=2.5)
    tell(SourceGap, reason="dropped", messages=7)
    tell(ReconnectCeilingReached, attempt=9, wait_seconds=320.0, message="away")
    tell(InboxWaitBegan)
    assert shown(*missed) == [2, 2.5, 7]
    assert shown("listener_connects_total", "reconnect_ceilings_total", "inbox_waiting") == [1, 1, 1]
    tell(InboxWaited, seconds=1.5)
    tell(InboxChanged, records=3, bytes=40)
    assert shown("inbox_waiting", "inbox_wait_seconds_sum", "inbox_records", "inbox_bytes") == [0, 1.5, 3, 40]
