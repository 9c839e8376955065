"""Samples are kept under bounded labels and written so that Prometheus reads the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from metrics.catalogue import Kind, Metric, connect, own
from metrics.instruments import LABEL_VALUES_MAX, Instruments
from tests.unit.metrics.exposition import Exposition


def shown(instruments: Instruments) -> Exposition:
    """Return what Prometheus would scrape."""
    registry = CollectorRegistry()
    registry.register(instruments)
    return Exposition(generate_latest(registry))


def test_an_undeclared_label_value_is_shown_as_other_and_counted() -> None:
    """A word outside its declared set becomes ``other``."""
    instruments = Instruments()
    instruments.add(own.FETCH_REQUESTS, 2, "c", 0, "exploded")

    assert shown(instruments).value(own.FETCH_REQUESTS.name, connector="c", task="0", outcome="other") == 2
    assert shown(instruments).value(own.LABEL_VALUES_FOLDED.name) == 1


@pytest.mark.parametrize(
    "text", ["bad value: 17 in line 3", "https://example.org/?key=1", "", "x" * 121, "line\nline", 'say "hi"']
)
def test_a_message_never_becomes_a_label(text: str) -> None:
    """What looks like no word is folded, where any short word may come."""
    instruments = Instruments()
    instruments.add(own.TASK_FAILURES, 1, "c", 0, text)

    assert shown(instruments).value(own.TASK_FAILURES.name, connector="c", task="0", error_class="other") == 1


def test_an_open_label_has_a_bounded_number_of_values() -> None:
    """However many reasons are told, a metric has at most its limit of them, and loses no count."""
    instruments = Instruments()
    for number in range(LABEL_VALUES_MAX * 3):
        instruments.add(own.RECORDS_REJECTED, 1, "c", 0, "VALUE_CONVERTER", f"reason_{number}")

    values = [v for (name, _), v in shown(instruments).samples.items() if name == own.RECORDS_REJECTED.name]
    assert len(values) == LABEL_VALUES_MAX + 1
    assert sum(values) == LABEL_VALUES_MAX * 3


def test_connector_names_are_never_folded() -> None:
    """A connector keeps its name, with blanks, quotes and line ends too."""
    instruments = Instruments()
    name = 'orders "eu"\n\\ é'
    instruments.add(own.PAGES, 1, name, 3)

    assert shown(instruments).value(own.PAGES.name, connector=name, task="3") == 1


def test_labels_that_do_not_fit_the_declaration_are_refused() -> None:
    """A wrong number of labels is an error, not a sample under a wrong name."""
    with pytest.raises(ValueError, match="headrace_pages_total has the labels"):
        Instruments().add(own.PAGES, 1, "c")


def test_a_state_takes_back_the_one_before() -> None:
    """Exactly one state of a task is 1, and another task's states are left alone."""
    instruments = Instruments()
    instruments.tell(connect.TASK_STATUS, "c", 0, "running")
    instruments.tell(connect.TASK_STATUS, "c", 1, "paused")
    instruments.tell(connect.TASK_STATUS, "c", 0, "failed")

    now = {
        (labels["task"], labels["status"])
        for (name, pairs), value in shown(instruments).samples.items()
        if name == connect.TASK_STATUS.name and value == 1 and (labels := dict(pairs))
    }
    assert now == {("0", "failed"), ("1", "paused")}


def test_an_info_takes_back_what_it_said() -> None:
    """After an upgrade only the new version is shown."""
    instruments = Instruments()
    instruments.tell(own.BUILD_INFO, "1.0")
    instruments.tell(own.BUILD_INFO, "1.1")

    exposition = shown(instruments)
    assert exposition.value(own.BUILD_INFO.name, version="1.0") is None
    assert exposition.value(own.BUILD_INFO.name, version="1.1") == 1


def test_forgetting_a_task_leaves_its_brothers_and_namesakes() -> None:
    """Task 1's series end; task 10's, and those of a connector whose name begins alike, stay."""
    instruments = Instruments()
    for connector, task in [("c", 1), ("c", 10), ("cc", 1)]:
        instruments.add(own.PAGES, 1, connector, task)
        instruments.observe(own.SPARK_JOB, 1.0, connector, task)
    instruments.forget("c", 1)

    exposition = shown(instruments)
    for name in (own.PAGES.name, f"{own.SPARK_JOB.name}_count"):
        assert exposition.value(name, connector="c", task="1") is None
        assert exposition.value(name, connector="c", task="10") == 1
        assert exposition.value(name, connector="cc", task="1") == 1


@settings(deadline=None)  # parses an exposition each time
@given(
    st.lists(st.tuples(st.floats(min_value=0, max_value=1e5), st.integers(min_value=1, max_value=100_000)), min_size=1)
)
def test_a_histogram_counts_each_observation_once_in_every_bucket_it_fits(
    observations: list[tuple[float, int]],
) -> None:
    """A bucket holds exactly the observations at or below its bound, weights included."""
    instruments = Instruments()
    for value, count in observations:
        instruments.observe(own.END_TO_END, value, "c", 0, count=count)

    exposition = shown(instruments)
    name = own.END_TO_END.name
    for bound in own.END_TO_END.buckets:
        expected = sum(count for value, count in observations if value <= bound)
        assert exposition.value(f"{name}_bucket", connector="c", task="0", le=str(float(bound))) == expected
    total = sum(count for _, count in observations)
    assert exposition.value(f"{name}_bucket", connector="c", task="0", le="+Inf") == total
    assert exposition.value(f"{name}_count", connector="c", task="0") == total
    assert exposition.value(f"{name}_sum", connector="c", task="0") == pytest.approx(
        sum(value * count for value, count in observations)
    )


@pytest.mark.parametrize(
    ("name", "kind", "buckets", "complaint"),
    [
        ("x_seconds", Kind.HISTOGRAM, (), "has buckets"),
        ("x_seconds", Kind.GAUGE, (1.0,), "has buckets"),
        ("x_seconds", Kind.HISTOGRAM, (2.0, 1.0), "must rise"),
        ("x", Kind.COUNTER, (), "ends in _total"),
    ],
)
def test_a_metric_that_could_not_be_exposed_cannot_be_declared(
    name: str, kind: Kind, buckets: tuple[float, ...], complaint: str
) -> None:
    """A wrong declaration fails at import, not at the first scrape."""
    with pytest.raises(ValueError, match=complaint):
        Metric(name, kind, "text", (), buckets)
