"""What to do about one instance: a pure function of what runs and of what is wanted."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.ids import ConnectorId, InstanceId
from service.domain.states import State, TargetState
from service.herder.ports import Desired


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of an instance now."""

    desired: Desired | None
    """None: that it ends."""
    restarts: int = 0
    """How often a restart was asked for; one more makes a new incarnation."""


def resting_state(instance: InstanceId, wish: Wish) -> State | None:
    """The state to rest in; None where the instance should run. A task is never STOPPED: its connector is."""
    if wish.desired is None:
        return State.UNASSIGNED
    if wish.desired.target is TargetState.PAUSED:
        return State.PAUSED
    if wish.desired.target is TargetState.STOPPED:
        return State.STOPPED if isinstance(instance, ConnectorId) else State.UNASSIGNED
    return None


def must_end(instance: InstanceId, begun: Wish, wish: Wish, *, is_failed: bool) -> bool:
    """Whether the incarnation that was begun for ``begun`` must make way.

    A FAILED one stays FAILED over pause and resume, as in Connect: a person restarts it, or changes its config.
    """
    if not is_same_incarnation(begun, wish):
        return True
    rest = resting_state(instance, wish)
    return rest is not None and (not is_failed or rest is not State.PAUSED)


def is_same_incarnation(begun: Wish, wish: Wish) -> bool:
    """Whether the two ask for the same thing to run, whether it runs or rests."""
    if begun.desired is None or wish.desired is None:
        return begun.desired is wish.desired
    return begun.restarts == wish.restarts and (
        begun.desired.config,
        begun.desired.task,
        begun.desired.generation,
    ) == (wish.desired.config, wish.desired.task, wish.desired.generation)


def state_between(instance: InstanceId, begun: Wish, wish: Wish) -> State:
    """The state after an incarnation has ended, before whatever is wanted then begins."""
    rest = resting_state(instance, wish)
    if begun.restarts != wish.restarts and rest in {None, State.PAUSED}:
        return State.RESTARTING
    return rest or State.UNASSIGNED
