"""Averages, extremes and rates over the recent past, counted as Kafka's client metrics count them.

Kafka keeps two samples of 30 s (``metrics.num.samples``, ``metrics.sample.window.ms``): a
measurement goes into the newest, the older is dropped 60 s after it began. So a figure looks back
30 to 60 s, in constant memory, whatever the number of measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SAMPLE_SECONDS = 30.0
SAMPLES = 2


@dataclass(slots=True)
class _Sample:
    start_seconds: float
    count: int = 0
    total: float = 0.0
    smallest: float = math.inf
    largest: float = -math.inf


class SampledWindow:
    """Measurements of one quantity; ``now_seconds`` is a monotonic clock's, given by the caller."""

    __slots__ = ("_samples",)

    def __init__(self, *, now_seconds: float) -> None:
        self._samples = [_Sample(now_seconds)]

    def record(self, value: float, *, now_seconds: float) -> None:
        """Take one measurement into the sample of now."""
        self._drop_old(now_seconds)
        if not self._samples or now_seconds - self._samples[-1].start_seconds >= SAMPLE_SECONDS:
            self._samples = [*self._samples[1 - SAMPLES :], _Sample(now_seconds)]
        newest = self._samples[-1]
        newest.count += 1
        newest.total += value
        newest.smallest = min(newest.smallest, value)
        newest.largest = max(newest.largest, value)

    def average(self, *, now_seconds: float) -> float:
        """Return the mean, NaN without a measurement."""
        self._drop_old(now_seconds)
        count = sum(sample.count for sample in self._samples)
        return sum(sample.total for sample in self._samples) / count if count else math.nan

    def maximum(self, *, now_seconds: float) -> float:
        """Return the largest, NaN without a measurement."""
        self._drop_old(now_seconds)
        return max((s.largest for s in self._samples if s.count), default=math.nan)

    def minimum(self, *, now_seconds: float) -> float:
        """Return the smallest, NaN without a measurement."""
        self._drop_old(now_seconds)
        return min((s.smallest for s in self._samples if s.count), default=math.nan)

    def rate(self, *, now_seconds: float) -> float:
        """Return the sum per second, as if at least one sample's time had passed before this one.

        Without that, the first record after a start would show as thousands per second.
        """
        self._drop_old(now_seconds)
        if not self._samples:
            return 0.0
        elapsed = now_seconds - self._samples[0].start_seconds
        missing = max(0, SAMPLES - 1 - int(elapsed // SAMPLE_SECONDS))
        total = sum(sample.total for sample in self._samples)
        return total / (elapsed + missing * SAMPLE_SECONDS)

    def _drop_old(self, now_seconds: float) -> None:
        oldest = now_seconds - SAMPLES * SAMPLE_SECONDS
        if self._samples and self._samples[0].start_seconds <= oldest:
            self._samples = [s for s in self._samples if s.start_seconds > oldest]
