"""Holds the samples of all metrics and bounds their labels; writes them in Prometheus' text format.

Own storage instead of the client library's instruments, for three reasons: a removed task must take
its series with it, an observation must count for 50,000 records at once, and Connect has names that
the library would rename. The library writes the exposition.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from metrics.catalogue import CATALOGUE, Kind, Metric
from metrics.catalogue.declaration import OTHER
from metrics.catalogue.own import LABEL_VALUES_FOLDED

LABEL_VALUES_MAX = 64
"""Distinct values of one open label of one metric; the next ones are shown as ``other``."""

WORD = re.compile(r"[A-Za-z0-9_.:/{}+\-]{1,120}")
"""What a label may look like. A URL with a query, a message or a key with blanks does not pass."""

Labels = tuple[str, ...]


@dataclass(slots=True)
class _Buckets:
    counts: list[int]
    total: float = 0.0


@dataclass(slots=True)
class _Series:
    metric: Metric
    values: dict[Labels, float] = field(default_factory=dict)
    buckets: dict[Labels, _Buckets] = field(default_factory=dict)
    owned: dict[str, set[Labels]] = field(default_factory=dict)
    """The keys of both by their first label, the connector where there is one: a thousand connectors have many."""

    def claim(self, labels: Labels) -> None:
        """Have the sample found by ``of``."""
        if labels not in self.values and labels not in self.buckets:
            self.owned.setdefault(labels[0] if labels else "", set()).add(labels)

    def of(self, owner: Labels) -> list[Labels]:
        """The samples whose labels begin with these."""
        if not owner:
            return [*self.values, *self.buckets]
        return [labels for labels in self.owned.get(owner[0], ()) if labels[: len(owner)] == owner]

    def drop(self, labels: Labels) -> None:
        """Remove the sample of these label values, so that it is exposed no more."""
        self.values.pop(labels, None)
        self.buckets.pop(labels, None)
        mates = self.owned[labels[0]]
        mates.discard(labels)
        if not mates:
            del self.owned[labels[0]]


class Instruments(Collector):
    """The samples of every metric of the catalogue; changed on one thread, the event loop's.

    Label values are given in the order of ``metric.labels``; ``task`` may be an int.
    """

    def __init__(self) -> None:
        self._series = {metric.name: _Series(metric) for metric in CATALOGUE}
        self._words: dict[tuple[str, str], set[str]] = {}

    def add(self, metric: Metric, amount: float, *labels: str | int) -> None:
        """Let a counter grow by ``amount`` ≥ 0; 0 makes its series appear."""
        series = self._series[metric.name]
        bounded = self._bounded(metric, labels)
        series.claim(bounded)
        series.values[bounded] = series.values.get(bounded, 0.0) + amount

    def set(self, metric: Metric, value: float, *labels: str | int) -> None:
        """Give a gauge its value."""
        series = self._series[metric.name]
        bounded = self._bounded(metric, labels)
        series.claim(bounded)
        series.values[bounded] = value

    def tell(self, metric: Metric, *labels: str | int) -> None:
        """Let an info or one-hot metric say its last label, and take back what it said before."""
        *owner, word = self._bounded(metric, labels)
        series = self._series[metric.name]
        samples = {(*owner, other): 0.0 for other in metric.words_of(metric.labels[-1])} | {(*owner, word): 1.0}
        for other in series.of(tuple(owner)):
            if other not in samples:
                series.drop(other)
        for sample, value in samples.items():
            series.claim(sample)
            series.values[sample] = value

    def observe(self, metric: Metric, value: float, *labels: str | int, count: int = 1) -> None:
        """Count ``value`` ``count`` times in a histogram."""
        series = self._series[metric.name]
        bounded = self._bounded(metric, labels)
        buckets = series.buckets.get(bounded)
        if buckets is None:
            series.claim(bounded)
            buckets = series.buckets[bounded] = _Buckets([0] * (len(metric.buckets) + 1))
        buckets.counts[bisect_left(metric.buckets, value)] += count
        buckets.total += value * count

    def forget(self, connector: str, task: int | None = None, *, metrics: Iterable[Metric] = CATALOGUE) -> None:
        """Remove the series of a task, or (``task`` None) of a connector and all its tasks."""
        for metric in metrics:
            if metric.labels[:1] != ("connector",):
                continue
            is_of_task = metric.labels[1:2] == ("task",)
            if task is None:
                owner: Labels = (connector,)
            elif is_of_task:
                owner = (connector, str(task))
            else:
                continue
            series = self._series[metric.name]
            for labels in series.of(owner):
                series.drop(labels)

    def collect(self) -> Iterator[Family]:
        """Yield the families that have samples, for the client library to write out.

        May run on another thread than the changes: it takes copies, each in one step.
        """
        for series in self._series.values():
            if series.buckets:
                yield _histogram(series)
            elif series.values:
                yield _plain(series)

    def _bounded(self, metric: Metric, labels: tuple[str | int, ...]) -> Labels:
        if len(labels) != len(metric.labels):
            message = f"{metric.name} has the labels {metric.labels}, given were {labels}"
            raise ValueError(message)
        return tuple(
            str(value) if name in {"connector", "task"} else self._word(metric, name, str(value))
            for name, value in zip(metric.labels, labels, strict=True)
        )

    def _word(self, metric: Metric, label: str, value: str) -> str:
        allowed = metric.words_of(label)
        if allowed:
            is_in_bounds = value in allowed
        else:
            seen = self._words.setdefault((metric.name, label), set())
            is_in_bounds = value in seen or (len(seen) < LABEL_VALUES_MAX and WORD.fullmatch(value) is not None)
            if is_in_bounds:
                seen.add(value)
        if is_in_bounds or value == OTHER:
            return value
        self.add(LABEL_VALUES_FOLDED, 1)
        return OTHER


def _histogram(series: _Series) -> Family:
    metric = series.metric
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*(str(float(bound)) for bound in metric.buckets), "+Inf"]
    for labels, buckets in list(series.buckets.items()):
        cumulative = list(zip(bounds, accumulate(list(buckets.counts)), strict=True))
        family.add_metric(list(labels), cumulative, buckets.total)
    return family


def _plain(series: _Series) -> Family:
    metric = series.metric
    family: CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily
    if metric.kind is Kind.COUNTER:
        family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    elif metric.kind is Kind.UNTYPED:
        family = UnknownMetricFamily(metric.name, metric.help, labels=metric.labels)
    else:
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in list(series.values.items()):
        family.add_metric(list(labels), value)
    return family
