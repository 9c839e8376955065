"""One instance from its first assignment to its end: one incarnation at a time, the last wish wins.

::

    wish: run ──► incarnation ──► stopped by steps ──┐
      ▲   └────── FAILED: wait for another wish ──────┤
      │   wish: pause or stop ──► rest until it changes ┤
      └───────────────────────────────────────────────┴──► wish: end ──► gone

A stop is staged: stop fetching, deliver what is there, at ¾ of the graceful time-out cancel, at its end once more.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from fetchers.sdk import Clock
from service.background import Background
from service.domain.cluster import Properties
from service.domain.ids import ConnectorId, InstanceId
from service.domain.states import State, TargetState, transition
from service.herder.ports import Desired
from service.worker.reporting import InstanceReporter
from service.worker.supervising import TaskSupervisor

CANCEL_AT_SHARE = 0.75
"""Part of the graceful time-out after which a stop cancels what has not ended by itself."""
START_SECONDS_MAX = 2.0
"""Time a start that is no longer wanted has to end by itself: cut off while it connects, it would leave sockets."""

VERSION_SECONDS_MAX = 2.0
"""Time that the import of a class has before what rests is told without its version, which is told when it comes."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of an instance now."""

    desired: Desired | None
    """None: that it ends."""
    restarts: int = 0
    """How often a restart was asked for; one more makes a new incarnation."""


class MakeSupervisor(Protocol):
    """Makes the supervisor of a new incarnation."""

    def __call__(self, desired: Desired, state: State, /) -> TaskSupervisor:
        """In the state the instance is in."""


@dataclass(slots=True)
class Incarnation:
    """What runs now, what for, and how its stop goes."""

    supervisor: TaskSupervisor
    begun: Wish
    cancel_at: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    cut_at: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    asked_at: float | None = None
    is_over: bool = False

    async def run(self, clock: Clock) -> None:
        """Until it is over, and say what a stop has left."""
        is_complete = True
        try:
            async with self.cut_at, self.cancel_at:
                await self.supervisor.run()
        except TimeoutError:
            is_complete = False
        finally:
            self.is_over = True
        if self.asked_at is not None:
            self.supervisor.report_stop(seconds=clock.monotonic() - self.asked_at, is_complete=is_complete)

    def begin_stop(self, *, now: float, seconds_max: float) -> None:
        """Stage one; what has not begun to run holds nothing and is cancelled soon. Harmless when repeated."""
        if self.asked_at is not None or self.is_over:
            return
        self.asked_at = now
        has_begun = self.supervisor.state is State.RUNNING
        self.supervisor.request_stop()
        loop_now = asyncio.get_running_loop().time()
        work_seconds = seconds_max * CANCEL_AT_SHARE
        self.cancel_at.reschedule(loop_now + (work_seconds if has_begun else min(START_SECONDS_MAX, work_seconds)))
        self.cut_at.reschedule(loop_now + seconds_max)


@dataclass(slots=True)
class InstanceLife:
    """Owner of one instance in this process."""

    instance: InstanceId
    make_supervisor: MakeSupervisor
    listener: InstanceReporter
    clock: Clock
    stop_seconds_max: float
    version_of: Callable[[Properties], Awaitable[str | None]]
    """The version of the class that a connector's config names; may wait, and raise whatever its import does."""
    wish: Wish
    state: State = State.UNASSIGNED
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _running: Incarnation | None = None

    def want(self, desired: Desired | None) -> None:
        """The last wish counts; takes effect by itself."""
        if desired != self.wish.desired:
            self._wish(Wish(desired, self.wish.restarts))

    def restart(self) -> None:
        """Ask for a new incarnation of what is wanted."""
        self._wish(Wish(self.wish.desired, self.wish.restarts + 1))

    @property
    def idle_seconds(self) -> float | None:
        """For how long there has been nothing to do: infinite while it rests or is FAILED, None while it is busy."""
        if self._running is not None:
            return math.inf if self._running.supervisor.is_failed else self._running.supervisor.idle_seconds
        return math.inf if self.is_at_rest else None

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing runs and nothing is wanted to: paused, or stopped."""
        return self._running is None and resting_state(self.instance, self.wish) is self.state

    async def run(self) -> None:
        """Until the wish is that it ends; a wish that comes after the return needs a new life."""
        while self.wish.desired is not None:
            self._changed.clear()
            begun = self.wish
            rest = resting_state(self.instance, begun)
            if rest is None:
                await self._run_incarnation(begun)
                continue
            async with Background() as beside:
                if rest is not State.UNASSIGNED:
                    beside.start(self._learn_version(begun, rest), name=f"version of {self.instance}")
                    await beside.wait(seconds_max=VERSION_SECONDS_MAX)
                if self.wish == begun:
                    self._enter(rest)
                    await self._rest(begun)
        self._enter(State.UNASSIGNED)

    async def _run_incarnation(self, begun: Wish) -> None:
        assert begun.desired is not None  # noqa: S101 - the loop's condition
        running = Incarnation(self.make_supervisor(begun.desired, self.state), begun)
        self._running = running
        try:
            await running.run(self.clock)
            self.state = running.supervisor.state
            await self._wait_while(lambda: not self._is_over(running))
        finally:
            self._running = None
        following = state_between(self.instance, running.begun, self.wish)
        if self.state is State.FAILED and following is State.PAUSED:
            self._enter(State.UNASSIGNED)
        self._enter(following)

    async def _rest(self, begun: Wish) -> None:
        await self._wait_while(lambda: self.wish == begun)
        if self.state is State.PAUSED and self.wish.restarts != begun.restarts:
            self._enter(State.RESTARTING)

    async def _learn_version(self, begun: Wish, rest: State) -> None:
        """Connect tells that of what is PAUSED or STOPPED and never ran, too. Told again where the state is told."""
        known = self.listener.version
        try:
            self.listener.version = await self.version_of(begun.desired.config if begun.desired else {})
        except Exception:  # noqa: BLE001 - a class that cannot be loaded now: what is wrong is told when it is to run
            return
        if self.listener.version != known and self.state is rest and self.wish == begun:
            self._enter(rest, is_told_again=True)

    async def _wait_while(self, holds: Callable[[], bool]) -> None:
        while holds():
            await self._changed.wait()
            self._changed.clear()

    def _is_over(self, running: Incarnation) -> bool:
        """Whether what has ended is to be left behind; a FAILED one stays until it is no longer what is wanted."""
        is_failed = self.state is State.FAILED
        is_asked = running.asked_at is not None and not is_failed
        return is_asked or must_end(self.instance, running.begun, self.wish, is_failed=is_failed)

    def _wish(self, wish: Wish) -> None:
        self.wish = wish
        self._changed.set()
        running = self._running
        if running is None:
            return
        supervisor = running.supervisor
        is_asked = running.asked_at is not None
        if not is_asked and self._takes_over(running, wish):
            running.begun = wish
            return
        if is_asked or must_end(self.instance, running.begun, wish, is_failed=supervisor.is_failed):
            supervisor.rests_as = state_between(self.instance, running.begun, wish)
            running.begin_stop(now=self.clock.monotonic(), seconds_max=self.stop_seconds_max)

    def _takes_over(self, running: Incarnation, wish: Wish) -> bool:
        """Whether what runs goes on as what is wanted now, its config but not its work being another."""
        begun = running.begun
        if begun.desired is None or wish.desired is None or begun.restarts != wish.restarts:
            return False
        keys = changed_keys(begun.desired, wish.desired)
        if not keys or resting_state(self.instance, wish) is not None:
            return False
        return running.supervisor.take_over(keys, self.make_supervisor(wish.desired, self.state).make_task)

    def _enter(self, state: State, *, is_told_again: bool = False) -> None:
        if state is not self.state or is_told_again:
            self.state = transition(self.state, state)
            self.listener.on_state(state)


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


def changed_keys(before: Desired, after: Desired) -> frozenset[str]:
    """Keys with another value, or only on one side, in what a task is made of."""
    old, new = ({**desired.config, **(desired.task or {})} for desired in (before, after))
    return frozenset(key for key in {*old, *new} if old.get(key) != new.get(key))


def state_between(instance: InstanceId, begun: Wish, wish: Wish) -> State:
    """The state after an incarnation has ended, before whatever is wanted then begins."""
    rest = resting_state(instance, wish)
    if begun.restarts != wish.restarts and rest in {None, State.PAUSED}:
        return State.RESTARTING
    return rest or State.UNASSIGNED
