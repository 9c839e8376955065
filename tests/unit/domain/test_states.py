"""States of a task."""

from __future__ import annotations

import itertools

import pytest

from service.domain.ids import TaskId
from service.domain.states import LEGAL_TRANSITIONS, IllegalTransitionError, State, transition


def test_the_table_knows_every_state_and_none_leads_to_itself() -> None:
    """Staying is always legal and needs no entry."""
    assert set(LEGAL_TRANSITIONS) == set(State)
    assert all(state not in following for state, following in LEGAL_TRANSITIONS.items())


@pytest.mark.parametrize(("current", "following"), [*itertools.product(State, State)])
def test_only_what_the_table_allows_is_done(current: State, following: State) -> None:
    """Everything else is a bug of the runtime."""
    if current is following or following in LEGAL_TRANSITIONS[current]:
        assert transition(current, following) is following
    else:
        with pytest.raises(IllegalTransitionError, match=f"{current} → {following}"):
            transition(current, following)


def test_a_failed_task_never_runs_without_being_restarted() -> None:
    """Somebody must have decided it."""
    assert State.RUNNING not in LEGAL_TRANSITIONS[State.FAILED]


def test_ids_are_shown_and_fenced_as_in_connect() -> None:
    """``connector-0``; KIP-618's transactional id."""
    task_id = TaskId("my-source", 3)
    assert str(task_id) == "my-source-3"
    assert task_id.transactional_id("headrace") == "headrace-my-source-3"
