"""The recent past is counted as Kafka's client metrics count it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.window import SAMPLE_SECONDS, SAMPLES, SampledWindow

measurements = st.lists(
    st.tuples(
        st.floats(min_value=0, max_value=45),  # seconds since the one before
        st.floats(min_value=-1e6, max_value=1e6),
    ),
    max_size=60,
)


def test_without_measurements_there_is_no_average_and_no_extreme_but_a_rate_of_nothing() -> None:
    """An idle task shows NaN for averages and extremes, and 0 for rates."""
    window = SampledWindow(now_seconds=0)

    assert math.isnan(window.average(now_seconds=10))
    assert math.isnan(window.maximum(now_seconds=10))
    assert math.isnan(window.minimum(now_seconds=10))
    assert window.rate(now_seconds=10) == 0


def test_a_measurement_is_forgotten_a_minute_after_its_sample_began() -> None:
    """Two samples of 30 s are kept: an extreme is seen at 59.9 s and gone at 60 s."""
    window = SampledWindow(now_seconds=0)
    window.record(7, now_seconds=29)

    assert window.maximum(now_seconds=59.9) == 7
    assert math.isnan(window.maximum(now_seconds=60))
    assert window.rate(now_seconds=60) == 0


def test_the_first_record_of_a_task_is_not_shown_as_thousands_per_second() -> None:
    """A rate divides by at least one sample's length, however young the window is."""
    window = SampledWindow(now_seconds=0)
    window.record(60, now_seconds=0.001)

    assert window.rate(now_seconds=0.001) == pytest.approx(60 / 30.001)


def test_a_steady_rate_is_shown_as_it_is() -> None:
    """Ten records a second for two minutes are ten records a second."""
    window = SampledWindow(now_seconds=0)
    for second in range(120):
        window.record(10, now_seconds=second)

    assert window.rate(now_seconds=120) == pytest.approx(10, rel=0.05)


@given(measurements)
def test_figures_come_from_recent_measurements_only(steps: list[tuple[float, float]]) -> None:
    """Extremes and average lie within what was measured in the last minute, in constant memory."""
    window = SampledWindow(now_seconds=0)
    now, taken = 0.0, []
    for wait, value in steps:
        now += wait
        window.record(value, now_seconds=now)
        taken.append((now, value))

    recent = [value for at, value in taken if at > now - SAMPLES * SAMPLE_SECONDS]
    surely_kept = [value for at, value in taken if at > now - (SAMPLES - 1) * SAMPLE_SECONDS]
    if surely_kept:
        assert max(surely_kept) <= window.maximum(now_seconds=now) <= max(recent)
        assert min(recent) <= window.minimum(now_seconds=now) <= min(surely_kept)
        assert min(recent) - 1e-6 <= window.average(now_seconds=now) <= max(recent) + 1e-6
