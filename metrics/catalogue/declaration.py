"""What a metric is: a name, a kind, its labels, what it means, and the bounds of its histogram."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

TASK = ("connector", "task")
OTHER = "other"
"""What a label value beyond its bounds is folded into."""


class Kind(StrEnum):
    """How the samples of a metric behave."""

    COUNTER = "counter"
    """Only grows, until the process (or, for Connect's task groups, the task) starts again."""
    GAUGE = "gauge"
    """Goes up and down."""
    UNTYPED = "untyped"
    """A counter under a name that Prometheus' naming rules would not give to a counter."""
    INFO = "info"
    """A gauge of value 1 whose label is the message."""
    ONE_HOT = "one-hot"
    """A gauge per possible value of the last label: 1 for the one that holds, 0 for the others."""
    HISTOGRAM = "histogram"
    """Counts of observations below bounds, with their sum and number."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, declared once; the observers, the reference page and the tests derive from it.

    ``buckets`` are upper bounds in the unit of the name, +Inf left out. ``words`` bounds a label:
    values outside it are shown as ``other``. A label that is neither ``connector`` nor ``task`` nor
    in ``words`` may take at most ``LABEL_VALUES_MAX`` values (metrics/instruments.py).
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a declaration that could not be exposed; raises ValueError."""
        if (self.kind is Kind.HISTOGRAM) != bool(self.buckets):
            message = f"{self.name}: a histogram, and nothing else, has buckets"
            raise ValueError(message)
        if list(self.buckets) != sorted(set(self.buckets)):
            message = f"{self.name}: bucket bounds must rise"
            raise ValueError(message)
        if self.kind is Kind.COUNTER and not self.name.endswith("_total"):
            message = f"{self.name}: a counter's name ends in _total"
            raise ValueError(message)

    @property
    def series(self) -> tuple[str, ...]:
        """Names under which samples appear in the exposition and may be asked for in PromQL."""
        if self.kind is Kind.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)

    def words_of(self, label: str) -> tuple[str, ...]:
        """Return the values allowed for ``label``, or nothing where any short word is."""
        return dict(self.words).get(label, ())
