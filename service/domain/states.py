"""States of a task, and the one table of legal transitions between them."""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """Kafka Connect's states."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


_U, _R, _P, _S, _F, _X = (
    TaskState.UNASSIGNED,
    TaskState.RUNNING,
    TaskState.PAUSED,
    TaskState.STOPPED,
    TaskState.FAILED,
    TaskState.RESTARTING,
)
LEGAL_TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    _U: frozenset({_R, _P, _S, _F, _X}),
    _R: frozenset({_U, _P, _S, _F, _X}),
    _P: frozenset({_U, _R, _S, _F, _X}),
    _S: frozenset({_U, _R, _P, _F}),
    _F: frozenset({_U, _S, _X}),
    _X: frozenset({_U, _R, _P, _S, _F}),
}


class IllegalTransitionError(RuntimeError):
    """A bug of the runtime: the table does not know this transition."""


def transition(current: TaskState, following: TaskState) -> TaskState:
    """``following``, if the table allows it from ``current``; staying is always legal."""
    if following is not current and following not in LEGAL_TRANSITIONS[current]:
        message = f"{current} → {following} is no legal transition"
        raise IllegalTransitionError(message)
    return following
