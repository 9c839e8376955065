"""Days, zones and windows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fetchers.mixpanel.windows import ONE_DAY, Window, end_of, grid_day, last_finished, windows_between

ZONES = st.sampled_from(sorted(available_timezones() - {"localtime"})).map(ZoneInfo)
INSTANTS = st.datetimes(datetime(1990, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - aware by timezones
DAYS = st.dates(date(1990, 1, 1), date(2035, 1, 1))


@pytest.mark.parametrize(
    ("zone", "now", "expected"),
    [
        ("UTC", "2024-03-02T00:00:00Z", "2024-03-01"),
        ("UTC", "2024-03-01T23:59:59Z", "2024-02-29"),
        ("US/Pacific", "2024-03-02T07:59:59Z", "2024-02-29"),
        ("US/Pacific", "2024-03-02T08:00:00Z", "2024-03-01"),
        ("Pacific/Auckland", "2024-03-01T11:00:00Z", "2024-03-01"),
        ("Pacific/Auckland", "2024-03-01T10:59:59Z", "2024-02-29"),
        # Clocks go forward at midnight: the day that has no 00:00 begins at 01:00.
        ("Africa/Cairo", "2024-04-25T22:00:00Z", "2024-04-25"),
        # Clocks went back from 00:01 to 23:01: the day ended twice, the second time counts.
        ("America/St_Johns", "2010-11-07T02:30:30Z", "2010-11-05"),
        ("America/St_Johns", "2010-11-07T03:30:00Z", "2010-11-06"),
        # A day that Samoa never had is over as soon as the day before it is.
        ("Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30"),
    ],
)
def test_the_newest_day_that_is_over(zone: str, now: str, expected: str) -> None:
    """A day is over when its last instant in the project's zone has passed."""
    assert last_finished(datetime.fromisoformat(now), ZoneInfo(zone)) == date.fromisoformat(expected)


@settings(deadline=None)  # a busy machine is no failure
@given(now=INSTANTS, zone=ZONES)
@example(now=datetime(2010, 11, 7, 2, 30, 30, tzinfo=UTC), zone=ZoneInfo("America/St_Johns"))
def test_no_instant_of_a_finished_day_is_still_to_come(now: datetime, zone: ZoneInfo) -> None:
    """Whatever the zone does to its clocks, no later instant falls into a day that was called over."""
    day = last_finished(now, zone)
    for minutes in (0, 1, 29, 31, 59, 61, 119, 121, 24 * 60):
        assert (now + timedelta(minutes=minutes)).astimezone(zone).date() > day


@settings(deadline=None)  # a busy machine is no failure
@given(now=INSTANTS, zone=ZONES)
def test_the_day_after_the_newest_finished_one_is_not_over(now: datetime, zone: ZoneInfo) -> None:
    """Nothing that could be read is left for later."""
    day = last_finished(now, zone)
    assert end_of(day, zone) <= now < end_of(day + ONE_DAY, zone) or end_of(day + ONE_DAY, zone) == end_of(day, zone)


@settings(deadline=None)  # a busy machine is no failure
@given(now=INSTANTS, later=st.timedeltas(timedelta(0), timedelta(days=400)), zone=ZONES)
def test_a_finished_day_stays_finished(now: datetime, later: timedelta, zone: ZoneInfo) -> None:
    """Time never makes a day unfinished."""
    assert last_finished(now, zone) <= last_finished(now + later, zone)


@settings(deadline=None)  # a busy machine is no failure
@given(first=DAYS, days=st.integers(-5, 200), width=st.integers(1, 31))
def test_windows_cover_their_days_once(first: date, days: int, width: int) -> None:
    """Every day is in exactly one window, in order, and no window is wider than allowed."""
    last = first + timedelta(days=days)
    windows = list(windows_between(first, last, width))
    covered = [
        window.first + timedelta(days=number)
        for window in windows
        for number in range((window.last - window.first).days + 1)
    ]
    assert covered == [first + timedelta(days=number) for number in range(days + 1)]
    assert all((window.last - window.first).days < width for window in windows)


@settings(deadline=None)  # a busy machine is no failure
@given(first=DAYS, second=DAYS, width=st.integers(1, 31))
def test_a_day_has_one_label_wherever_reading_begins(first: date, second: date, width: int) -> None:
    """A day read again is found in the window it was in before."""
    last = max(first, second) + timedelta(days=40)
    labels: list[dict[date, str]] = [
        {
            window.first + timedelta(days=number): window.label
            for window in windows_between(begin, last, width)
            for number in range((window.last - window.first).days + 1)
        }
        for begin in (first, second)
    ]
    common = labels[0].keys() & labels[1].keys()
    assert all(labels[0][day] == labels[1][day] for day in common)
    assert all(label == grid_day(day, width).isoformat() for day, label in labels[0].items())


def test_nothing_is_due_before_the_first_day() -> None:
    """A first day in the future makes no window."""
    assert list(windows_between(date(2024, 1, 2), date(2024, 1, 1), 1)) == []


def test_a_day_is_a_window_of_its_own_by_default() -> None:
    """One request for each day, both dates the same: they are inclusive."""
    day = date(2024, 1, 1)
    assert list(windows_between(day, day, 1)) == [Window(day, day, "2024-01-01")]
