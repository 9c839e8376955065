"""Every metric is declared once, fed by an event, documented, and named nowhere else."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import shutil
import subprocess
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from metrics import events
from metrics.catalogue import CATALOGUE, Kind, series_names
from metrics.prometheus import PrometheusObserver
from metrics.reference import page
from tests.architecture.tracked import Module, modules
from tests.unit.metrics.exposition import Exposition

ROOT = Path(__file__).parents[2]

CONNECT = {
    "kafka_connect_worker": """
        connector_count task_count
        connector_startup_attempts_total connector_startup_success_total connector_startup_success_percentage
        connector_startup_failure_total connector_startup_failure_percentage
        task_startup_attempts_total task_startup_success_total task_startup_success_percentage
        task_startup_failure_total task_startup_failure_percentage
        connector_total_task_count connector_running_task_count connector_paused_task_count
        connector_failed_task_count connector_unassigned_task_count connector_destroyed_task_count
        connector_restarting_task_count
    """,
    "kafka_connect_connector": "status connector_type connector_class connector_version",
    "kafka_connect_connector_task": """
        status running_ratio pause_ratio offset_commit_max_time_ms offset_commit_avg_time_ms
        offset_commit_failure_percentage offset_commit_success_percentage batch_size_max batch_size_avg
        connector_class connector_type connector_version task_class task_version key_converter_class
        key_converter_version value_converter_class value_converter_version header_converter_class
        header_converter_version
    """,
    "kafka_connect_connector_transform": "transform_class transform_version",
    "kafka_connect_connector_predicate": "predicate_class predicate_version",
    "kafka_connect_worker_rebalance": """
        connect_protocol leader_name epoch completed_rebalances_total rebalancing rebalance_avg_time_ms
        rebalance_max_time_ms time_since_last_rebalance_ms
    """,
    "kafka_connect_coordinator": """
        assigned_connectors assigned_tasks join_rate join_total sync_rate sync_total heartbeat_rate heartbeat_total
        heartbeat_response_time_max last_heartbeat_seconds_ago rebalance_latency_avg rebalance_latency_max
        rebalance_latency_total failed_rebalance_rate_per_hour failed_rebalance_total last_rebalance_seconds_ago
    """,
    "kafka_connect_source_task": """
        source_record_poll_rate source_record_poll_total source_record_write_rate source_record_write_total
        poll_batch_max_time_ms poll_batch_avg_time_ms source_record_active_count source_record_active_count_max
        source_record_active_count_avg transaction_size_min transaction_size_max transaction_size_avg
    """,
    "kafka_connect_sink_task": """
        sink_record_read_rate sink_record_read_total sink_record_send_rate sink_record_send_total sink_record_lag_max
        partition_count offset_commit_seq_no offset_commit_completion_rate offset_commit_completion_total
        offset_commit_skip_rate offset_commit_skip_total put_batch_max_time_ms put_batch_avg_time_ms
        sink_record_active_count sink_record_active_count_max sink_record_active_count_avg
    """,
    "kafka_connect_task_error": """
        total_record_failures total_record_errors total_records_skipped total_retries total_errors_logged
        deadletterqueue_produce_requests deadletterqueue_produce_failures last_error_timestamp
    """,
}
"""Attributes of ConnectMetricsRegistry and of the worker's group client (Kafka 4.1) that a worker has, by group."""


def test_names_are_unique() -> None:
    """No two metrics share a name or a sample's name."""
    series = [name for metric in CATALOGUE for name in metric.series]

    assert len(series) == len(set(series))


@pytest.mark.parametrize("group", CONNECT)
def test_connects_names_are_kept_one_to_one(group: str) -> None:
    """A dashboard made for Kafka Connect finds every name it asks for, and no invented one."""
    expected = {f"{group}_{attribute}" for attribute in CONNECT[group].split()}
    others = tuple(f"{other}_" for other in CONNECT if other.startswith(f"{group}_"))
    declared = {
        metric.name
        for metric in CATALOGUE
        if metric.name.startswith(f"{group}_") and not (others and metric.name.startswith(others))
    }

    assert declared == expected


def test_own_names_follow_prometheus_rules() -> None:
    """Base units, and _total for counters only."""
    for metric in (metric for metric in CATALOGUE if metric.name.startswith("headrace_")):
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert not metric.name.endswith(("_ms", "_millis", "_kb", "_percentage")), metric.name
        assert metric.help.endswith("."), metric.name


def every_event() -> Iterator[events.Event]:
    """Yield one event of each class, its fields filled by their types."""
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)]
    assert len(kinds) > 25
    for kind in kinds:
        types = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)
        for each in itertools.product(*(samples(types[field.name]) for field in fields)):
            yield kind(**{field.name: value for field, value in zip(fields, each, strict=True)})


def samples(kind: object) -> Sequence[object]:
    """Return values of a field's type: every word where it names them."""
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else (sample(kind),)


def sample(kind: object) -> object:
    """Return a value of a field's type."""
    values: dict[object, object] = {str: "word", int: 1, float: 1.0, bool: True, float | None: 1.0, int | None: 1}
    values[str | None] = "word"
    values[tuple[tuple[str, str], ...]] = (("name", "word"),)
    return values[kind]


def test_every_event_is_told_by_somebody() -> None:
    """A metric that is fed by an event which nobody tells of would be 0 for ever, and look well."""
    words = {
        word for module in modules() for word in _names(module) if not module.path.startswith(("metrics/", "tests/"))
    }
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)]
    bases = {base for kind in kinds for base in kind.__bases__}

    assert {kind.__name__ for kind in kinds if kind not in bases} <= words


def _names(module: Module) -> Iterator[str]:
    """Names the module speaks of, but for those it only imports."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def is_about_removal(event: events.Event) -> bool:
    """Tell whether the event ends series."""
    return isinstance(event, events.TaskRemoved | events.ConnectorRemoved)


def test_every_metric_is_fed_by_an_event() -> None:
    """After one event of each class every declared metric has a sample: none is declared in vain."""
    observe = PrometheusObserver()
    for event in sorted(every_event(), key=lambda event: isinstance(event, events.TaskRestarted), reverse=True):
        if not is_about_removal(event):
            observe(event)

    assert series_names() - Exposition(observe.render()).names() == set()


def test_nothing_is_shown_that_is_not_declared() -> None:
    """What /metrics shows is in the catalogue, so in the reference."""
    observe = PrometheusObserver()
    for event in every_event():
        observe(event)

    assert Exposition(observe.render()).names() - series_names() == set()


def test_every_event_is_frozen_and_says_what_it_tells() -> None:
    """An event is a value with a docstring."""
    for event in every_event():
        kind = type(event)
        assert kind.__doc__, kind
        assert not kind.__doc__.startswith(f"{kind.__name__}("), kind
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
            event.anything = 1  # type: ignore[attr-defined]


def test_metric_names_are_written_in_the_catalogue_only() -> None:
    """Code elsewhere says events; a name in a second place would drift."""
    strays = [
        f"{path.relative_to(ROOT)}: {node.value}"
        for room in ("service", "fetchers", "spark_batch", "metrics")
        for path in sorted((ROOT / room).rglob("*.py"))
        if "catalogue" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in series_names()
    ]

    assert strays == []


def test_the_reference_page_is_fresh() -> None:
    """docs/reference/metrics.md is what the catalogue says; `python -m metrics.reference` writes it."""
    written = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")

    assert written == page()


def test_every_metric_is_on_the_reference_page() -> None:
    """The page leaves none out."""
    missing = [metric.name for metric in CATALOGUE if f"| `{metric.name}` |" not in page()]

    assert missing == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)")
def test_prometheus_own_linter_finds_nothing_against_our_names() -> None:
    """The exposition parses, and what the linter says is about Connect's inherited names alone."""
    observe = PrometheusObserver()
    for event in every_event():
        if not is_about_removal(event):
            observe(event)
    command = ["promtool", "check", "metrics"]
    result = subprocess.run(command, input=observe.render(), capture_output=True, timeout=300, check=False)

    findings = result.stderr.decode().splitlines()
    assert result.returncode in {0, 3}, findings
    assert [finding for finding in findings if not finding.startswith("kafka_connect_")] == []
