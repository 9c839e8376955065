"""Kafka Connect's figures of the requests to the group's coordinator, from events."""

from __future__ import annotations

import pytest

from metrics.events import GroupRequest, GroupRequestEnded, GroupRoundEnded, TaskEvents, TaskStateChanged
from metrics.prometheus import PrometheusObserver
from tests.unit.metrics.exposition import Exposition

COORDINATOR = "kafka_connect_coordinator"


class Scene:
    """An observer and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.observer = PrometheusObserver(clock=lambda: self.now, wall_clock=lambda: 0.0)

    def ended(self, request: GroupRequest, *, seconds: float = 0.01, is_success: bool = True) -> None:
        """One more request."""
        self.observer(GroupRequestEnded(client_id="w1", request=request, seconds=seconds, is_success=is_success))

    def round_ended(self, *, seconds: float) -> None:
        """One more round."""
        self.observer(
            GroupRoundEnded(group_id="g", generation=1, leader="http://a:1", members=1, absent=0, seconds=seconds)
        )

    def shown(self, attribute: str) -> float | None:
        """A sample."""
        return Exposition(self.observer.render()).value(f"{COORDINATOR}_{attribute}", client_id="w1")


def test_a_worker_of_no_group_shows_none_of_it() -> None:
    """A standalone worker speaks to no coordinator."""
    names = Exposition(Scene().observer.render()).names()
    assert [name for name in names if name.startswith(COORDINATOR)] == []


def test_requests_are_counted_from_zero() -> None:
    """Those that failed only as failed rounds; a heartbeat is no round."""
    scene = Scene()
    scene.ended("join", is_success=False)
    assert [scene.shown(f"{name}_total") for name in ("join", "sync", "heartbeat", "failed_rebalance")] == [0, 0, 0, 1]
    for request in ("join", "sync", "heartbeat", "heartbeat"):
        scene.ended(request)
    scene.ended("heartbeat", is_success=False)
    scene.ended("sync", is_success=False)
    assert [scene.shown(f"{name}_total") for name in ("join", "sync", "heartbeat", "failed_rebalance")] == [1, 1, 2, 2]
    scene.now += 30
    assert scene.shown("heartbeat_rate") == pytest.approx(2 / 30)
    assert scene.shown("failed_rebalance_rate_per_hour") == pytest.approx(2 * 3600 / 30)


def test_times() -> None:
    """Milliseconds of what took long, seconds since what was last; -1 before the first."""
    scene = Scene()
    scene.ended("join", seconds=2.0)
    assert scene.shown("last_heartbeat_seconds_ago") == scene.shown("last_rebalance_seconds_ago") == -1
    scene.ended("heartbeat", seconds=0.25)
    scene.ended("heartbeat", seconds=0.5)
    scene.round_ended(seconds=1.0)
    scene.round_ended(seconds=3.0)
    scene.now += 1.5
    assert scene.shown("heartbeat_response_time_max") == 500
    assert scene.shown("rebalance_latency_avg") == 2000
    assert scene.shown("rebalance_latency_max") == 3000
    assert scene.shown("rebalance_latency_total") == 4000
    assert scene.shown("last_heartbeat_seconds_ago") == scene.shown("last_rebalance_seconds_ago") == 1.5


def test_what_is_assigned_is_what_is_here() -> None:
    """Two tasks of one connector."""
    scene = Scene()
    scene.ended("join")
    for task in (0, 1):
        TaskEvents(scene.observer, "c", task)(TaskStateChanged, state="RUNNING")
    assert scene.shown("assigned_tasks") == 2
    assert scene.shown("assigned_connectors") == 0
