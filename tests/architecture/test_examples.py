"""The README's example is the one in docs/examples, is a valid job, and gets the verdicts the README tells of."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from service.config.definition import ConnectorDefinition
from service.job import Job, read_job
from spark_batch.exact.verdicts import exact_verdict
from spark_batch.plan_findings import plan_findings
from tests.architecture.tracked import ROOT, text_of

FOLDER = "docs/examples/orders"
FENCE = re.DOTALL | re.MULTILINE
BLOCK = re.compile(r"^```\w+\n(.*?)^```$", FENCE)
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| (.+) \|$", re.MULTILINE)
RULE_FAILED = "rule_failed"
"""Rules are Spark's; what the columns say of them is told in tests/spark."""


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """The example's job, read from the root as the README runs it."""
    monkeypatch.chdir(ROOT)
    return read_job(Path(FOLDER, "worker.properties"), [Path(FOLDER, "orders.properties")])


@pytest.fixture
def definition(job: Job) -> ConnectorDefinition:
    """Its only connector."""
    (definition,) = job.definitions()
    return definition


@pytest.mark.parametrize("name", ["worker.properties", "orders.properties", "orders.avsc", "orders.jsonl"])
def test_the_readme_shows_the_files(name: str) -> None:
    """Each file of the example stands in the README, byte for byte."""
    assert text_of(f"{FOLDER}/{name}") in BLOCK.findall(text_of("README.md"))


def test_the_readme_and_the_guide_show_the_same_first_connector() -> None:
    """The guide's fetcher is run by a test; the README's is the same, and useful in twenty lines."""
    guide = re.findall(r"^```\w+ file=(quakes\.\w+)\n(.*?)^```$", text_of("docs/guides/add-a-fetcher.md"), FENCE)
    shown = dict(guide)

    assert set(shown) == {"quakes.py", "quakes.properties"}
    for text in shown.values():
        assert text in BLOCK.findall(text_of("README.md"))
    assert len([line for line in shown["quakes.py"].splitlines() if line.strip()]) <= 20


def test_the_example_is_a_valid_job(job: Job, definition: ConnectorDefinition) -> None:
    """Nothing is found wrong with it, not even a warning, and its contract is one Spark can be given."""
    assert job.warnings == ()
    assert definition.contract_source is not None
    assert definition.contract_source.text is not None
    assert plan_findings(definition.plan(definition.contract_source.text)) == []


def test_the_verdicts_are_those_of_the_readme(definition: ConnectorDefinition) -> None:
    """Each line of the file is accepted, or rejected with the reason and message of the README's table."""
    assert definition.contract_source is not None
    plan = definition.plan(definition.contract_source.text)
    lines = text_of(f"{FOLDER}/orders.jsonl").splitlines()
    told = {int(number): (reason, message) for number, reason, message in ROW.findall(text_of("README.md"))}
    found = {
        number: (verdict.rejection.reason.value, verdict.rejection.message)
        for number, line in enumerate(lines, 1)
        if (verdict := exact_verdict(plan, line.encode())).rejection
    }

    assert found == {number: verdict for number, verdict in told.items() if verdict[0] != RULE_FAILED}
    failing = [json.loads(lines[number - 1]) for number, (reason, _) in told.items() if reason == RULE_FAILED]
    assert [record["amount"] > 0 for record in failing] == [False]


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs/examples/seeds").iterdir()))
def test_what_the_seeds_print_is_run(name: str) -> None:
    """Each file of them is named by a test, which runs it as it is printed."""
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if "architecture" not in path.parts]
    assert [path.name for path in tests if f'{name}"' in path.read_text(encoding="utf-8")]
