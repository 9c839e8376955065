"""What to do about an instance, by what runs and what is wanted."""

from __future__ import annotations

import pytest

from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.ports import Desired
from service.worker.reconcile import Wish, must_end, resting_state, state_between

TASK, CONNECTOR = TaskId("c", 0), ConnectorId("c")
RUN = Desired({"name": "c"}, TargetState.STARTED, {"task.class": "T"}, 1)
PAUSE = Desired({"name": "c"}, TargetState.PAUSED, {"task.class": "T"}, 1)
STOP = Desired({"name": "c"}, TargetState.STOPPED, {"task.class": "T"}, 1)


@pytest.mark.parametrize(
    ("instance", "desired", "state"),
    [
        (TASK, RUN, None),
        (CONNECTOR, RUN, None),
        (TASK, PAUSE, State.PAUSED),
        (CONNECTOR, PAUSE, State.PAUSED),
        (TASK, STOP, State.UNASSIGNED),
        (CONNECTOR, STOP, State.STOPPED),
        (TASK, None, State.UNASSIGNED),
        (CONNECTOR, None, State.UNASSIGNED),
    ],
)
def test_what_should_not_run_rests(instance: InstanceId, desired: Desired | None, state: State | None) -> None:
    """A task is never STOPPED."""
    assert resting_state(instance, Wish(desired)) is state


@pytest.mark.parametrize(
    ("wish", "is_over"),
    [
        (Wish(RUN), False),
        (Wish(Desired(dict(RUN.config), RUN.target, dict(RUN.task or {}), 1)), False),
        (Wish(PAUSE), True),
        (Wish(STOP), True),
        (Wish(None), True),
        (Wish(RUN, 1), True),
        (Wish(Desired({"name": "c", "x": "y"}, RUN.target, RUN.task, 1)), True),
        (Wish(Desired(RUN.config, RUN.target, {"task.class": "U"}, 1)), True),
        (Wish(Desired(RUN.config, RUN.target, RUN.task, 2)), True),
    ],
)
def test_what_runs_makes_way_for_any_other_wish(wish: Wish, *, is_over: bool) -> None:
    """Equal values mean that there is nothing to do."""
    assert must_end(TASK, Wish(RUN), wish, is_failed=False) is is_over


@pytest.mark.parametrize(
    ("instance", "wish", "is_over"),
    [
        (TASK, Wish(PAUSE), False),
        (CONNECTOR, Wish(PAUSE), False),
        (CONNECTOR, Wish(STOP), True),
        (TASK, Wish(None), True),
        (TASK, Wish(RUN, 1), True),
        (TASK, Wish(Desired(RUN.config, TargetState.PAUSED, RUN.task, 2)), True),
    ],
)
def test_what_is_failed_stays_so_over_pause_and_resume(instance: InstanceId, wish: Wish, *, is_over: bool) -> None:
    """As in Connect: only a restart, another config or its end moves it."""
    assert must_end(instance, Wish(RUN), wish, is_failed=True) is is_over


@pytest.mark.parametrize(
    ("instance", "wish", "state"),
    [
        (TASK, Wish(RUN, 1), State.RESTARTING),
        (TASK, Wish(PAUSE, 1), State.RESTARTING),
        (CONNECTOR, Wish(STOP, 1), State.STOPPED),
        (TASK, Wish(None, 1), State.UNASSIGNED),
        (TASK, Wish(PAUSE), State.PAUSED),
        (TASK, Wish(Desired({"x": "y"}, TargetState.STARTED)), State.UNASSIGNED),
    ],
)
def test_the_state_between_two_incarnations_says_why(instance: InstanceId, wish: Wish, state: State) -> None:
    """RESTARTING where somebody asked for it."""
    assert state_between(instance, Wish(RUN), wish) is state
