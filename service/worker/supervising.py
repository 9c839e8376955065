"""One task through all its incarnations: start, restart with back-off while the failure is retriable, stop."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from fetchers.sdk import BackOff, Clock, Retriable
from service.config.connector import SourceConnectorConfig
from service.domain.cluster import Properties
from service.domain.errors import Recovery, described, recovery_of, root_of
from service.domain.ids import InstanceId
from service.domain.states import State, transition
from service.pipeline.activity import Signal
from service.worker.reporting import InstanceReporter
from service.worker.turnstile import Turnstile

_FIELDS = SourceConnectorConfig.model_fields
HEALTHY_AFTER_SECONDS = 60.0
"""A run this long counts as healthy: the next failure begins the back-off anew."""


class TaskActivity(Protocol):
    """What a task is busy with."""

    @property
    def idle_seconds(self) -> float | None:
        """For how long there has been nothing to do; None while there is."""

    @property
    def records_in_hand(self) -> int:
        """Taken and not yet committed."""


class RunnableTask(Protocol):
    """One incarnation of a task, of a source or of a sink."""

    on_running: Signal
    """Called once the task does what it is for; set by its supervisor."""

    @property
    def activity(self) -> TaskActivity:
        """What it is busy with."""

    async def run(self) -> None:
        """Until stopped and drained; raises what ended it otherwise. Cancelling it is the last stage of a stop."""

    def request_stop(self) -> None:
        """Stage one: take no more, deliver what is there."""

    def take_over(self, keys: Collection[str], make: Callable[[], Awaitable[RunnableTask]]) -> bool:
        """Whether this goes on under a config that differs in these keys; it is that of the task that ``make`` makes.

        The made one never runs. What fails while the config is taken over ends ``run`` with that error.
        """


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Whether and how soon a task that failed on something retriable starts again."""

    restarts_max: int = 1_000_000
    """In a row; 0 = never."""
    back_off: BackOff = BackOff(first_seconds=1.0)


def restart_policy(properties: Properties) -> RestartPolicy:
    """By a connector's own keys: ``errors.restart.*``, and the longest wait of its retries.

    A value that is no number means the default: the config that holds it is refused elsewhere, with every finding.
    """
    cap_seconds = _number(properties, "errors.retry.delay.max.ms") / 1000
    first_seconds = _number(properties, "errors.restart.backoff.ms") / 1000
    return RestartPolicy(
        _number(properties, "errors.restart.max"),
        BackOff(first_seconds=first_seconds, cap_seconds=max(cap_seconds, first_seconds)),
    )


def _number(properties: Properties, key: str) -> int:
    default: int = _FIELDS[key.replace(".", "_")].default
    try:
        return max(0, int(properties.get(key, default)))
    except ValueError:
        return default


@dataclass(slots=True)
class TaskSupervisor:
    """Owner of one task's state, from its start until it is stopped or FAILED for good."""

    task_id: InstanceId
    make_task: Callable[[], Awaitable[RunnableTask]]
    """A new incarnation; may ask the outside (schema registry) and raise what ``recovery_of`` knows."""
    policy: RestartPolicy
    listener: InstanceReporter
    clock: Clock
    starts: Turnstile | None = None
    """Narrows how many start at once."""
    fenced_grace_seconds: float = 0.0
    """So long a task that a newer incarnation has fenced waits to be told that it is not wanted here any more."""
    state: State = State.UNASSIGNED
    rests_as: State = State.UNASSIGNED
    """The state after a stop."""
    trace: str | None = None
    """Why the state is FAILED, for people."""
    _current: RunnableTask | None = None
    _patience: asyncio.Timeout | None = None
    """Limits the wait for a place among the tasks that start; None when nobody waits."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until stopped, or FAILED for good. Never raises for a failing task: one connector harms no other."""
        try:
            await self._run_until_over()
        except asyncio.CancelledError:
            self._enter(self.rests_as, reason="cancelled")
            raise

    async def _run_until_over(self) -> None:
        restarts = 0
        while not self._stop.is_set():
            started_at = self.clock.monotonic()
            try:
                await self._run_once()
            except Exception as error:  # noqa: BLE001 - the border of a task: any bug in it is a FAILED task, no more
                if self.clock.monotonic() - started_at > HEALTHY_AFTER_SECONDS:
                    restarts = 0
                restarts += 1
                if await self._is_superseded(error):
                    break
                if not self._may_restart(error, restarts):
                    self._fail(error)
                    return
                await self._wait_to_restart(error, restarts)
            else:
                break
        self._enter(self.rests_as, reason="stopped")

    def request_stop(self) -> None:
        """Stage one: stop fetching, deliver what is there."""
        self._stop.set()
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())
        if self._current is not None:
            self._current.request_stop()

    def take_over(self, keys: Collection[str], make_task: Callable[[], Awaitable[RunnableTask]]) -> bool:
        """Whether what runs goes on under a config that differs in these keys; ``make_task`` makes later ones of it."""
        if self.state is not State.RUNNING or self._current is None or not self._current.take_over(keys, make_task):
            return False
        self.make_task = make_task
        return True

    def report_stop(self, *, seconds: float, is_complete: bool) -> None:
        """Tell how long the stop took and how many records it left undelivered."""
        left = 0 if self._current is None else self._current.activity.records_in_hand
        self.listener.on_stop(left_records=left, seconds=seconds, is_complete=is_complete)

    @property
    def idle_seconds(self) -> float | None:
        """For how long there has been nothing to do; None while there is, or while the task is not running."""
        if self.state is not State.RUNNING or self._current is None:
            return None
        return self._current.activity.idle_seconds

    @property
    def is_failed(self) -> bool:
        """Whether a person must act."""
        return self.state is State.FAILED

    async def _run_once(self) -> None:
        leave = await self._enter_start()
        try:
            if self._stop.is_set():
                return
            task = await self.make_task()
            task.on_running = lambda: self._begin(leave)
            self._current = task
            if not self._stop.is_set():
                await task.run()
        finally:
            leave()

    async def _enter_start(self) -> Signal:
        """Wait for a place among those who start; returns what leaves it. A stop ends the wait."""
        if self.starts is None:
            return _leave_nothing
        try:
            async with asyncio.timeout(None) as self._patience:
                return (await self.starts.enter()).leave
        except TimeoutError:
            return _leave_nothing
        finally:
            self._patience = None

    def _begin(self, leave: Signal) -> None:
        leave()
        self._enter(State.RUNNING)

    async def _is_superseded(self, error: BaseException) -> bool:
        """Whether the newer incarnation that fenced this one was wanted; the word of it may be still on its way."""
        return recovery_of(error) in {Recovery.FENCED, Recovery.SUPERSEDED} and await self._stops_within(
            self.fenced_grace_seconds
        )

    def _may_restart(self, error: BaseException, restarts: int) -> bool:
        is_retriable = recovery_of(error) in {Recovery.RETRY, Recovery.RESTART}
        return is_retriable and restarts <= self.policy.restarts_max

    async def _wait_to_restart(self, error: BaseException, restarts: int) -> None:
        cause = root_of(error)
        asked_seconds = cause.wait_seconds if isinstance(cause, Retriable) else None
        self._enter(State.RESTARTING, reason=described(cause))
        self.listener.on_restart(restarts)
        await self._stops_within(self.policy.back_off.wait_seconds(restarts, asked_seconds=asked_seconds))

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    def _fail(self, error: BaseException) -> None:
        cause = root_of(error)
        self.trace = "".join(traceback.format_exception(cause))
        self.listener.on_failure(cause, trace=self.trace)
        self._enter(State.FAILED, reason=described(cause), trace=self.trace, failure=recovery_of(cause))

    def _enter(
        self, state: State, *, reason: str = "", trace: str | None = None, failure: Recovery | None = None
    ) -> None:
        self.state = transition(self.state, state)
        self.listener.on_state(state, reason=reason, trace=trace, failure=failure)


def _leave_nothing() -> None:
    """Nothing was entered."""
