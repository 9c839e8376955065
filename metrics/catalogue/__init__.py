"""Every metric, declared once: Connect's names in ``connect…``, headrace's in ``own``.

Names are written nowhere else. The reference page, the bounds of labels and the test that
dashboards and alert rules name only declared metrics are derived from ``CATALOGUE``.
"""

from __future__ import annotations

from metrics.catalogue import connect, connect_described, connect_group, connect_sink, own
from metrics.catalogue.declaration import Kind, Metric

__all__ = ["CATALOGUE", "Kind", "Metric", "series_names"]

CATALOGUE: tuple[Metric, ...] = tuple(
    value
    for room in (own, connect, connect_described, connect_sink, connect_group)
    for value in vars(room).values()
    if isinstance(value, Metric)
)


def series_names() -> frozenset[str]:
    """Return every sample name a PromQL expression may ask for."""
    return frozenset(name for metric in CATALOGUE for name in metric.series)
