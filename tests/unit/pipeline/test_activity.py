"""What counts as idle."""

from __future__ import annotations

from fetchers.sdk.testing.clock import FakeClock
from service.pipeline.activity import Activity


async def test_nothing_is_idle_before_the_first_round_has_ended() -> None:
    """Then idleness begins, however long the round took."""
    clock = FakeClock(is_automatic=False)
    activity = Activity(clock)
    await clock.advance(600)
    assert activity.idle_seconds is None
    activity.finish_round()
    assert activity.idle_seconds == 0
    await clock.advance(5)
    activity.finish_round()
    assert activity.idle_seconds == 5


async def test_pages_in_hand_waits_and_retries_are_no_idleness() -> None:
    """Each by itself; idleness begins when the last of them ends."""
    clock = FakeClock(is_automatic=False)
    activity = Activity(clock)
    activity.finish_round()
    activity.take_in_hand(records=3)
    await clock.advance(10)
    assert activity.idle_seconds is None
    activity.put_down(pages=1, records=3)
    assert activity.idle_seconds == 0
    with activity.waiting_for_limit():
        await clock.advance(10)
        assert activity.idle_seconds is None
    assert activity.idle_seconds == 0


async def test_a_round_without_news_ends_a_time_of_retrying() -> None:
    """Otherwise a source that came back with nothing new would never be idle again."""
    clock = FakeClock(is_automatic=False)
    activity = Activity(clock)
    activity.finish_round()
    activity.is_retrying = True
    await clock.advance(10)
    assert activity.idle_seconds is None
    activity.finish_round()
    assert activity.idle_seconds == 0
    await clock.advance(3)
    assert activity.idle_seconds == 3


async def test_a_page_without_records_is_no_activity() -> None:
    """It stores an offset: a quiet stream stays idle, except while that is under way."""
    clock = FakeClock(is_automatic=False)
    activity = Activity(clock)
    activity.finish_round()
    await clock.advance(10)
    activity.take_in_hand(records=0)
    assert activity.idle_seconds is None
    activity.put_down(pages=1, records=0)
    assert activity.idle_seconds == 10
