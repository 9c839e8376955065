"""The dashboard and the alert rules name only metrics and labels that headrace declares."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from metrics.catalogue import CATALOGUE
from tests.architecture.promql import Query, parse

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
RULES = ROOT / "deploy/prometheus/alerts.yml"
ALERT_TESTS = Path(__file__).parent / "alerts_test.yml"

PROMETHEUS_OWN = {"up": {"job", "instance"}}
"""Series that Prometheus itself writes at each scrape."""

TARGET_LABELS = {"job", "instance"}
LABELS = PROMETHEUS_OWN | {
    series: {*metric.labels, *TARGET_LABELS, *(["le"] if series.endswith("_bucket") else [])}
    for metric in CATALOGUE
    for series in metric.series
}


def complaints(query: Query) -> list[str]:
    """Return everything a query names that is not declared."""
    unknown = sorted(f"undeclared series {name}" for name in query.series - LABELS.keys())
    known = query.series & LABELS.keys()
    asked = sorted(
        f"{series} has no label {label}" for series, label in query.labels if label not in LABELS.get(series, {label})
    )
    grouped = sorted(
        f"nothing here has the label {label}"
        for label in query.grouped
        if known and not any(label in LABELS[name] for name in known)
    )
    return unknown + asked + grouped


def expressions_in(node: Any) -> Iterator[tuple[str, str]]:
    """Yield (expression, legend) of every query below a node of a dashboard."""
    if isinstance(node, dict):
        if "expr" in node:
            yield node["expr"], node.get("legendFormat", "")
        for child in node.values():
            yield from expressions_in(child)
    elif isinstance(node, list):
        for child in node:
            yield from expressions_in(child)


def rules() -> list[dict[str, Any]]:
    """Return all alert rules."""
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("rate(headrace_no_such_total[5m])", "undeclared series headrace_no_such_total"),
        ("sum by (le) (rate(headrace_pages_total_bucket[5m]))", "undeclared series headrace_pages_total_bucket"),
        ('headrace_queue_records{colour="red"}', "headrace_queue_records has no label colour"),
        ("sum by (colour) (headrace_queue_records)", "nothing here has the label colour"),
        ("headrace_queue_records / on (task) kafka_connect_nothing", "undeclared series kafka_connect_nothing"),
        ("headrace_spark_job_seconds > 1", "undeclared series headrace_spark_job_seconds"),
    ],
)
def test_an_undeclared_name_is_found(expression: str, complaint: str) -> None:
    """The check sees wrong series, wrong labels, and a histogram asked for without its suffix."""
    assert complaint in complaints(parse(expression))


def test_functions_texts_durations_and_variables_are_no_series() -> None:
    """Only names of series are taken for names of series."""
    query = parse(
        'histogram_quantile(0.9, sum by (le, task) (rate(a_bucket{x=~"$x", y!="b{}"}[$__rate_interval]))) '
        "> 800e6 and on (task) b offset 5m unless vector(0) # c\n"
    )

    assert query.series == {"a_bucket", "b"}
    assert query.labels == {("a_bucket", "x"), ("a_bucket", "y")}
    assert query.grouped == {"le", "task"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboard_names_only_declared_metrics(path: Path) -> None:
    """Every panel asks for series that exist, by labels they have."""
    found = list(expressions_in(json.loads(path.read_text(encoding="utf-8"))))
    wrong = {expression: problems for expression, _ in found if (problems := complaints(parse(expression)))}

    assert wrong == {}
    assert len(found) > 30


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_legend_shows_only_labels_its_query_keeps(path: Path) -> None:
    """A label that the aggregation drops would leave the legend empty."""
    for expression, legend in expressions_in(json.loads(path.read_text(encoding="utf-8"))):
        query = parse(expression)
        kept = query.grouped or set[str]().union(*(LABELS[name] for name in query.series))
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= kept, (expression, legend)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboards_variables_and_panels_are_sound(path: Path) -> None:
    """Variables list values of declared labels; panels have ids of their own and do not overlap."""
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            matched = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"])
            assert matched is not None, variable["definition"]
            assert matched[2] in LABELS[matched[1]]
    cells = [
        (x, y)
        for panel in dashboard["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_names_only_declared_metrics_and_says_what_to_do(rule: dict[str, Any]) -> None:
    """Every alert can fire, its text shows labels it has, and it names an action."""
    query = parse(rule["expr"])
    shown = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))

    assert complaints(query) == []
    assert query.series
    assert shown <= set[str]().union(*(LABELS[name] for name in query.series))
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["action"]


def test_every_alert_is_tried_against_made_up_series() -> None:
    """No alert is added without a case in which it fires."""
    tried = {
        case["alertname"]
        for test in yaml.safe_load(ALERT_TESTS.read_text(encoding="utf-8"))["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }

    assert tried == {rule["alert"] for rule in rules()}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", str(ROOT / "deploy/prometheus/prometheus.yml")),
        ("check", "rules", str(RULES)),
        ("test", "rules", str(ALERT_TESTS)),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_prometheus_own_tool_agrees(arguments: tuple[str, ...]) -> None:
    """The files load in Prometheus, and the alerts fire and stay silent as their cases say."""
    result = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=300, check=False)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)")
@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_prometheus_understands_every_panel(path: Path, tmp_path: Path) -> None:
    """Each query, its variables filled in as Grafana does, is sound PromQL."""
    found = expressions_in(json.loads(path.read_text(encoding="utf-8")))
    recorded = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "5m"))}
        for number, (expression, _) in enumerate(found)
    ]
    rules_of_panels = tmp_path / "panels.yml"
    rules_of_panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}), encoding="utf-8")
    command = ["promtool", "check", "rules", str(rules_of_panels)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
