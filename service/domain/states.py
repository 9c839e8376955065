"""States of connectors and tasks, the one table of legal transitions between them, and the states one may ask for."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Kafka Connect's states; a task is never STOPPED, because a stopped connector has none."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class TargetState(StrEnum):
    """What a connector is asked to be; the names are those of the config topic."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


_U, _R, _P, _S, _F, _X = (
    State.UNASSIGNED,
    State.RUNNING,
    State.PAUSED,
    State.STOPPED,
    State.FAILED,
    State.RESTARTING,
)
LEGAL_TRANSITIONS: dict[State, frozenset[State]] = {
    _U: frozenset({_R, _P, _S, _F, _X}),
    _R: frozenset({_U, _P, _S, _F, _X}),
    _P: frozenset({_U, _R, _S, _F, _X}),
    _S: frozenset({_U, _R, _P, _F, _X}),
    _F: frozenset({_U, _S, _X}),
    _X: frozenset({_U, _R, _P, _S, _F}),
}


class IllegalTransitionError(RuntimeError):
    """A bug of the runtime: the table does not know this transition."""


def transition(current: State, following: State) -> State:
    """``following``, if the table allows it from ``current``; staying is always legal."""
    if following is not current and following not in LEGAL_TRANSITIONS[current]:
        message = f"{current} → {following} is no legal transition"
        raise IllegalTransitionError(message)
    return following
