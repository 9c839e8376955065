"""What the cycle collector looks at, and that nothing that has ended stays for ever."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

from service.worker.garbage_collection import GROWTH, collecting_gently

ROOT = Path(__file__).parents[3]
COLLECT_SECONDS_MAX = 300


class Ring:
    """Refers to itself, so only the collector ends it."""

    def __init__(self) -> None:
        """Closed at once."""
        self.me = self


def test_in_a_process_of_its_own() -> None:
    """What is set aside and found: a full collection of a whole test run's heap takes seconds, of a fresh one none."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.worker.test_garbage_collection"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COLLECT_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def demand_what_has_survived_is_set_aside() -> None:
    """The next full collection does not look at it: a ring that ended meanwhile is still there."""
    with collecting_gently():
        ring = Ring()
        ended = weakref.ref(ring)
        gc.collect()
        aside = gc.get_freeze_count()
        del ring
        gc.collect()
        assert ended() is not None
        # Not less by more than what other threads have let go of meanwhile: those objects end without the collector.
        assert abs(gc.get_freeze_count() - aside) < 1_000
    gc.collect()
    assert ended() is None
    assert gc.get_freeze_count() == 0


def demand_what_has_ended_is_found_once_as_much_again_is_set_aside() -> None:
    """Garbage never outgrows what is alive for long."""
    with collecting_gently():
        alive = gc.get_freeze_count()
        rings = [Ring() for _ in range(round(GROWTH * alive))]
        ended = weakref.ref(rings[0])
        gc.collect()
        del rings
        assert ended() is not None
        gc.collect()
        assert ended() is None
        assert gc.get_freeze_count() < GROWTH * alive


def test_python_collects_as_before_afterwards() -> None:
    """Thresholds and callbacks are given back."""
    before = gc.get_threshold(), list(gc.callbacks)
    with collecting_gently():
        assert gc.get_threshold() != before[0]
    assert (gc.get_threshold(), list(gc.callbacks)) == before


if __name__ == "__main__":
    gc.disable()
    demand_what_has_survived_is_set_aside()
    demand_what_has_ended_is_found_once_as_much_again_is_set_aside()
