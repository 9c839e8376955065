"""How a run is spread over processes: whole groups of tests, those that may take longest first.

A pytest plugin, loaded by tests/conftest.py. Each process starts the servers that its tests ask for, so what shares
expensive servers stays together: a file, or one of the folders below.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

PROCESSES_MAX = 4
"""Each has a broker, a registry and a Spark of its own."""
TOGETHER = ("tests/spark/", "tests/clients/", "tests/differential/", "tests/architecture/")
LAST = ("tests/spark/test_runner",)
"""In their group: they end the JVM that the others share."""
_SECONDS = 0.5
"""What a test is taken for that names no time limit of its own; the others are taken at their word."""


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """One group at a time for each process, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """A process has ended: hand the rest of its groups to another, but for the test that it died of.

        That one is returned, to be told as failed. xdist would run it again and again, and hand out groups without a
        test, behind which a process is asked for nothing any more.
        """
        work = self.assigned_work.pop(node)
        left = {group: tests for group, tests in work.items() if not all(tests.values())}
        died_of = next((test for tests in left.values() for test, is_done in tests.items() if not is_done), None)
        if died_of is not None:
            left[group_of(died_of)][died_of] = True
        self.workqueue.update({group: tests for group, tests in left.items() if not all(tests.values())})
        for other in self.nodes:
            self._reschedule(other)
        return died_of

    def _reschedule(self, node: WorkerController) -> None:
        """A process begins a test when it knows the one behind it: a group of one test is not enough to go on.

        One that stands in for another is handed nothing before it has collected the tests; xdist calls this again then.
        """
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


def group_of(nodeid: str) -> str:
    """The folder or the file whose tests run in one process."""
    return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])


def pytest_xdist_auto_num_workers() -> int:
    """As many as cores: with more, brokers are starved of processor time until their controllers take them for dead."""
    return min(os.cpu_count() or 1, PROCESSES_MAX)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Asked for by xdist, in the process that spreads."""
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep groups together, in the order that was drawn but for the long ones, which come first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for item in items:
        seconds[group_of(item.nodeid)] += _seconds_allowed(item)
    longest_first = sorted(seconds, key=seconds.__getitem__, reverse=True)
    place = {group: number for number, group in enumerate(longest_first)}
    items.sort(key=lambda item: (place[group_of(item.nodeid)], item.nodeid.startswith(LAST)))


def _seconds_allowed(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else _SECONDS
