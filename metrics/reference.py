"""Writes the reference page of all metrics from the catalogue: ``python -m metrics.reference FILE``.

The page is committed; tests/architecture fails when it is not what this module would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from metrics.catalogue import CATALOGUE, Metric
from metrics.catalogue.declaration import OTHER
from metrics.instruments import LABEL_VALUES_MAX

PAGE = """\
<!-- Written by `python -m metrics.reference docs/reference/metrics.md`; do not edit by hand. -->
# Metrics

`GET /metrics` on the worker's port gives all of these in Prometheus' text format. A series appears when there is
something to tell; a task's counters appear with 0 when the task starts; the series of a removed task or connector end.

Labels are bounded. Where a table names the values of a label, any other value is shown as `{other}`; a label without
named values takes at most {values_max} short words, and then `{other}`. `headrace_label_values_folded_total` counts
how often that happened.

## headrace

Base units; counters end in `_total` and last as long as the worker. Rates are for the query: `rate(…[5m])`.

{own}
## Kafka Connect

The names that the usual JMX exporter rules give to Kafka Connect's metrics, so that dashboards made for Connect go on
working. Units are Connect's: `_ms`, and fractions 0…1 in spite of the names `_percentage` and `_ratio`. Averages,
extremes and rates look back 30 to 60 seconds. The counters of a task begin again when the task restarts.

{connect}
## Process

Measured on Linux only.

{process}"""


def page() -> str:
    """Return the whole page, Markdown."""
    own = [metric for metric in CATALOGUE if metric.name.startswith("headrace_")]
    connect = [metric for metric in CATALOGUE if metric.name.startswith("kafka_connect_")]
    process = [metric for metric in CATALOGUE if metric not in own and metric not in connect]
    return PAGE.format(
        other=OTHER,
        values_max=LABEL_VALUES_MAX,
        own=_table(own),
        connect=_table(connect),
        process=_table(process),
    )


def _table(metrics: Iterable[Metric]) -> str:
    lines = ["| name | kind | labels | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{metric.name}` | {metric.kind} | {_labels(metric)} | {metric.help}{_buckets(metric)} |"
        for metric in sorted(metrics, key=lambda metric: metric.name)
    ]
    return "\n".join(lines) + "\n"


def _labels(metric: Metric) -> str:
    return ", ".join(_label(metric, label) for label in metric.labels)


def _label(metric: Metric, label: str) -> str:
    words = metric.words_of(label)
    return f"`{label}` ({', '.join(words)})" if words else f"`{label}`"


def _buckets(metric: Metric) -> str:
    return f" Bounds: {', '.join(f'{bound:g}' for bound in metric.buckets)}." if metric.buckets else ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
