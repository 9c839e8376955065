"""The accounts of the demo of X; that they balance is tested with the real parts."""

from __future__ import annotations

import pytest
from rich.console import Console

from service.cli.demo import x_table
from service.config.files import read_properties
from service.demo.accounts import Accounts
from service.demo.audit import TopicAudit
from service.demo.x import SEED, XReport
from service.simulators.x_ledger import Truth
from tests.faults.worker_life import ROOT


def test_the_demo_runs_the_seeds_config() -> None:
    """Key by key what stands in the examples."""
    assert dict(SEED) == read_properties(ROOT / "docs/examples/seeds/twitter-source.properties")


def test_the_live_view_shows_both_sides() -> None:
    """What X has told, and what the worker has made of it."""
    console = Console(record=True, width=120)
    found = report()
    console.print(x_table(found.accounts, found.truth))
    text = console.export_text()
    assert all(words in text for words in ("told again", "doubles dropped", "withheld", "missing, told as gaps"))


def report(**changes: int) -> XReport:
    """Ten posts, of which one came after its deletion and two were withheld; one double."""
    counts = {"posts": 7, "distinct": 7, "deletes": 2, "tombstones": 2, "doubles": 1, "gap": 2} | changes
    accounts = Accounts()
    accounts.delivered["c"] = 9
    accounts.deduplicated["c"] = counts["doubles"]
    accounts.passed_over["deleted"] = 1
    accounts.gap_messages["dropped"] = counts["gap"]
    told = frozenset(map(str, range(8)))
    truth = Truth(12, told | {"8", "9"}, told, 1, frozenset({"7", "1"}), 2)
    posts, deletes = TopicAudit(counts["posts"], counts["distinct"]), TopicAudit(counts["deletes"], counts["deletes"])
    return XReport(accounts, truth, 1, posts, deletes, counts["tombstones"], 1.0)


def test_accounts_of_x_that_balance_say_so() -> None:
    """Nothing differs."""
    assert report().differences() == []
    assert report().figures()["balanced"] is True


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"posts": 6, "distinct": 6}, "posts found = matching posts"),
        ({"posts": 8}, "no post twice"),
        ({"deletes": 1, "tombstones": 1}, "deletions found"),
        ({"tombstones": 1}, "every deletion is a tombstone"),
        ({"doubles": 0}, "doubles too"),
        ({"gap": 0}, "messages of gaps"),
    ],
)
def test_accounts_of_x_that_do_not_balance_say_where(changes: dict[str, int], words: str) -> None:
    """A post lost or repeated, a deletion lost or with a value, a double or a gap that nobody tells."""
    differences = report(**changes).differences()
    assert any(words in difference for difference in differences), differences
    assert report(**changes).figures()["balanced"] is False
