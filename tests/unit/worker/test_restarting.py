"""A connector's keys of restarting itself."""

from __future__ import annotations

from fetchers.sdk import BackOff
from service.worker.restarting import restart_policy
from service.worker.supervising import RestartPolicy


def test_a_connectors_keys_say_how_often_and_how_soon() -> None:
    """The longest wait is never shorter than the first."""
    keys = {"errors.restart.max": "3", "errors.restart.backoff.ms": "9000", "errors.retry.delay.max.ms": "2000"}
    assert restart_policy(keys) == RestartPolicy(3, BackOff(first_seconds=9.0, cap_seconds=9.0))


def test_what_is_no_number_is_the_default() -> None:
    """The definition refuses it with its finding; until then the policy must not fail."""
    assert restart_policy({"errors.restart.max": "often"}) == restart_policy({})
    assert restart_policy({}) == RestartPolicy(1_000_000, BackOff(first_seconds=1.0, cap_seconds=60.0))
