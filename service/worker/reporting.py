"""What becomes of one instance (a connector or a task), told as events for metrics and logs, and to the herder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from metrics.events import (
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStateChanged,
    Emit,
    StopReported,
    TaskEvents,
    TaskFailed,
    TaskRestarted,
    TaskStateChanged,
)
from service.domain.errors import Recovery, is_on_purpose
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State
from service.herder.ports import InstanceObserver


class InstanceReporter(Protocol):
    """Hears what becomes of one instance, from its supervisor."""

    version: str | None
    """Version of the instance's class, once it is known; told with every state."""

    def on_state(
        self, state: State, *, reason: str = "", trace: str | None = None, failure: Recovery | None = None
    ) -> None:
        """The instance has entered a state; ``failure`` is the recovery of the error that made it FAILED."""

    def on_failure(self, error: BaseException, *, trace: str) -> None:
        """The instance has failed for good; the state FAILED follows."""

    def on_restart(self, attempt: int) -> None:
        """The instance starts again by itself, for the ``attempt``-th time in a row."""

    def on_stop(self, *, left_records: int, seconds: float, is_complete: bool) -> None:
        """The instance has stopped; tells how much it left undelivered."""


@dataclass(slots=True)
class TaskReporter:
    """Tells of a task: by events for metrics and logs, and to the herder, where there is one."""

    events: TaskEvents
    observer: InstanceObserver | None = None
    version: str | None = None
    """Version of the task's class, once it is known."""
    is_every_failure_traced: bool = True
    """Otherwise only bugs are: what was raised on purpose says in its message what is wrong."""

    def on_state(
        self, state: State, *, reason: str = "", trace: str | None = None, failure: Recovery | None = None
    ) -> None:
        """See ``InstanceReporter``."""
        self.events(TaskStateChanged, state=state.value, reason=reason)
        if self.observer is not None:
            instance = TaskId(self.events.connector, self.events.task)
            self.observer.on_state(instance, state, trace=trace, version=self.version, failure=failure)

    def on_failure(self, error: BaseException, *, trace: str) -> None:
        """See ``InstanceReporter``."""
        is_traced = self.is_every_failure_traced or not is_on_purpose(error)
        told = trace if is_traced else ""
        self.events(TaskFailed, error_class=type(error).__name__, message=str(error), trace=told)

    def on_restart(self, attempt: int) -> None:
        """See ``InstanceReporter``."""
        self.events(TaskRestarted, attempt=attempt)

    def on_stop(self, *, left_records: int, seconds: float, is_complete: bool) -> None:
        """See ``InstanceReporter``."""
        self.events(StopReported, left_records=left_records, seconds=seconds, is_complete=is_complete)


@dataclass(slots=True)
class ConnectorReporter:
    """Tells of the instance of a connector itself, which splits the work."""

    name: str
    emit: Emit
    observer: InstanceObserver
    connector_class: str = ""
    """Class as the config names it, until the class itself is known."""
    kind: str = "source"
    version: str | None = None

    def on_state(
        self, state: State, *, reason: str = "", trace: str | None = None, failure: Recovery | None = None
    ) -> None:
        """See ``InstanceReporter``."""
        del reason
        if state is State.RUNNING:
            self._tell_start(is_success=True)
        self.emit(ConnectorStateChanged(self.name, state=state.value))
        self.observer.on_state(ConnectorId(self.name), state, trace=trace, version=self.version, failure=failure)

    def on_failure(self, error: BaseException, *, trace: str) -> None:
        """See ``InstanceReporter``."""
        self._tell_start(is_success=False)
        self.emit(ConnectorFailed(self.name, error_class=type(error).__name__, message=str(error), trace=trace))

    def on_restart(self, attempt: int) -> None:
        """A start that has not worked; another follows."""
        del attempt
        self._tell_start(is_success=False)

    def on_stop(self, *, left_records: int, seconds: float, is_complete: bool) -> None:
        """A connector holds no records."""

    def _tell_start(self, *, is_success: bool) -> None:
        self.emit(
            ConnectorStarted(
                self.name,
                is_success=is_success,
                connector_class=self.connector_class,
                version=self.version or "",
                kind=self.kind,
            )
        )
