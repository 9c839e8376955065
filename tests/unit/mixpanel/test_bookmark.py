"""The source offset of ``MixpanelSource``."""

from __future__ import annotations

import json
from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.mixpanel.bookmark import Bookmark
from fetchers.mixpanel.windows import ONE_DAY, windows_between
from fetchers.sdk import Fatal

DAY = date(2024, 3, 10)


@pytest.mark.parametrize(
    "offset",
    [{"position": "soon"}, {"position": 20240310}, {}, {"day": "2024-03-10"}, {"position": "2024-03-10", "open": "x"}]
    + [{"position": "2024-03-10", "open": "2024-03-09", "days": days} for days in (0, "7", True)],
)
def test_an_offset_that_is_not_understood_fails_the_task(offset: dict[str, str | int]) -> None:
    """Guessing would lose days or repeat them, so a person must act."""
    with pytest.raises(Fatal, match="stored source offset"):
        Bookmark.of(offset, width_days=1)


def test_the_2016_connector_s_offset_is_read() -> None:
    """Its position is the next day to read; nothing before it is asked for, because nothing is known of it."""
    bookmark = Bookmark.of({"position": "2016-03-22"}, width_days=1)
    assert (bookmark.position, bookmark.open) == (date(2016, 3, 22), date(2016, 3, 22))


def test_the_width_of_windows_stays_as_it_was() -> None:
    """Another width in the config would give days that are read again other labels."""
    bookmark = Bookmark.first(DAY, width_days=7)
    assert Bookmark.of(bookmark.offset(), width_days=1).width_days == 7
    assert Bookmark.of({"position": "2016-03-22"}, width_days=7).width_days == 7


@settings(deadline=None)  # a busy machine is no failure
@given(
    look_back=st.integers(0, 10),
    width=st.integers(1, 9),
    rounds=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    unfinished=st.integers(0, 1),
)
def test_rounds_never_ask_for_a_closed_window(look_back: int, width: int, rounds: list[int], unfinished: int) -> None:
    """However rounds fall, no window is read whose state was dropped, no day is skipped; offsets survive storing."""
    bookmark = Bookmark.first(DAY, width_days=width)
    closed_before = ""
    read: set[date] = set()
    finished = DAY - ONE_DAY
    for days in rounds:
        finished += timedelta(days=days)
        last = finished + timedelta(days=unfinished)
        position = bookmark.position
        for window in windows_between(bookmark.open, last, bookmark.width_days):
            assert window.label >= closed_before
            closed_before = bookmark.scope(window).oldest_open
            assert closed_before <= window.label
            read |= {window.first + timedelta(days=day) for day in range((window.last - window.first).days + 1)}
            inside = bookmark.inside(window, line=7)
            assert Bookmark.of(json.loads(json.dumps(inside.offset())), width_days=99) == inside
            bookmark = bookmark.after(
                window, finished=finished, look_back_days=look_back, is_round_over=window.last == last
            )
            closed_before = max(closed_before, bookmark.scope(window).oldest_open)
        assert bookmark.position == max(position, finished + ONE_DAY)
        assert bookmark.open <= bookmark.position
        assert read >= {DAY + timedelta(days=day) for day in range((finished - DAY).days + 1)}


@settings(deadline=None)  # a busy machine is no failure
@given(look_back=st.integers(0, 10), days=st.integers(1, 30))
def test_the_days_open_for_late_events_are_those_asked_for(look_back: int, days: int) -> None:
    """After a backfill, so many days before the position are open, or all of them."""
    bookmark = Bookmark.first(DAY, width_days=1)
    last = DAY + timedelta(days=days - 1)
    for window in windows_between(DAY, last, 1):
        bookmark = bookmark.after(window, finished=last, look_back_days=look_back, is_round_over=False)
    assert (bookmark.position - bookmark.open).days == min(look_back, days)


def test_a_day_that_is_not_over_does_not_count_as_read() -> None:
    """It is read again until it has ended."""
    window = next(windows_between(DAY, DAY, 1))
    bookmark = Bookmark.first(DAY, width_days=1).after(
        window, finished=DAY - ONE_DAY, look_back_days=5, is_round_over=True
    )
    assert bookmark.position == DAY
