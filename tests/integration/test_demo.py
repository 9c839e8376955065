"""The demo, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.demo.accounts import Accounts
from service.demo.audit import TopicAudit
from service.demo.run import DemoReport
from service.demo.sources import OrdersFile
from service.simulators.mixpanel_ledger import Truth
from tests.faults.worker_life import ROOT


@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_balances_its_accounts(tmp_path: Path) -> None:
    """At least 100,000 events, each found once, every bad line a dead letter, exit code 0."""
    figures_file = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "demo", "--data", str(tmp_path / "data"), "--json", str(figures_file)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(figures_file.read_text())
    assert figures["balanced"] is True
    assert figures["in_topic"] == figures["delivered"] >= 100_000
    assert figures["fetched"] == figures["delivered"] + figures["dead_lettered"] + figures["deduplicated"]
    assert figures["dead_lettered"] == sum(figures["dead_lettered_by_reason"].values()) > 0
    assert figures["deduplicated"] > 0


def report(*, found: int = 10, distinct: int = 10, letters: int = 2) -> DemoReport:
    """A demo that delivered 10 records and 2 dead letters, and what was found of them."""
    accounts = Accounts()
    accounts.fetched["c"], accounts.delivered["c"] = 15, 10
    accounts.dead_lettered["c"], accounts.deduplicated["c"] = 2, 3
    truth = Truth(
        delivered=6,
        dead_lettered=1,
        bad_by_kind={},
        duplicates=0,
        days_answered=(),
        late_days_answered=(),
        requests=0,
    )
    topics = {"t": TopicAudit(found, distinct)}
    return DemoReport(accounts, truth, OrdersFile(Path("o"), 4, 1), topics, {"d": TopicAudit(letters, letters)}, 1.0)


def test_a_demo_that_balances_says_so() -> None:
    """Nothing differs."""
    assert report().differences() == []
    assert report().figures()["balanced"] is True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"found": 9, "distinct": 9}, "found in the topics"),
        ({"found": 11, "distinct": 10}, "no record twice"),
        ({"letters": 1}, "dead letters"),
    ],
)
def test_a_demo_that_does_not_balance_says_where(options: dict[str, int], words: str) -> None:
    """One record lost, one twice, one dead letter lost: each is seen."""
    differences = report(**options).differences()
    assert any(words in difference for difference in differences), differences
    assert report(**options).figures()["balanced"] is False
