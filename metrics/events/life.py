"""Facts of errors and life cycles: retries, tasks, connectors, the worker and its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metrics.events.event import ConnectorEvent, Event, Level, TaskEvent

# --- errors and tasks -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled(TaskEvent):
    """A retriable error: try number ``attempt`` + 1 follows after ``wait_seconds``.

    ``stage``: fetch | convert | put; a failed delivery is not tried again in place, its task restarts.
    ``part``: which of the puts or conversions that the task has at once; ``RetriesEnded`` names it again.
    ``message`` is one line written for people, which names what is away; no secret, never a label.
    """

    logger: ClassVar[str] = "headrace.errors"
    level: ClassVar[Level] = Level.WARNING
    stage: str
    error_class: str
    attempt: int
    wait_seconds: float
    message: str = ""
    part: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRepeated(RetryScheduled):
    """The same, of an outage that the log has been told of and that may last for hours: no line for each try."""

    level: ClassVar[Level] = Level.DEBUG


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriesEnded(TaskEvent):
    """A put or a conversion that was tried again is done, or is not this task's to try any more."""

    logger: ClassVar[str] = "headrace.errors"
    stage: str
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted(TaskEvent):
    """A task start ended; ``is_success`` when the task is ready to fetch. ``kind``: source | sink."""

    logger: ClassVar[str] = "headrace.task"
    level: ClassVar[Level] = Level.INFO
    is_success: bool
    seconds: float
    kind: str = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDescribed(TaskEvent):
    """What the next incarnation of a task is made of; classes by the names they are shown under.

    ``transforms``, ``predicates``: pairs of name and class. ``worker_version``: of all that comes with the worker.
    """

    logger: ClassVar[str] = "headrace.task"
    level: ClassVar[Level] = Level.DEBUG
    kind: str
    connector_class: str
    task_class: str
    version: str
    key_converter: str
    value_converter: str
    header_converter: str
    worker_version: str
    transforms: tuple[tuple[str, str], ...] = ()
    predicates: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStateChanged(TaskEvent):
    """``state`` is one of Connect's: UNASSIGNED RUNNING PAUSED STOPPED FAILED RESTARTING."""

    logger: ClassVar[str] = "headrace.task"
    level: ClassVar[Level] = Level.INFO
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRestarted(TaskEvent):
    """A task starts again, by itself or by request; ``attempt`` counts failures in a row from 1."""

    logger: ClassVar[str] = "headrace.task"
    level: ClassVar[Level] = Level.WARNING
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed(TaskEvent):
    """A task gave up; ``trace`` is for the log and REST, never for a label."""

    logger: ClassVar[str] = "headrace.task"
    level: ClassVar[Level] = Level.ERROR
    error_class: str
    message: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRemoved(TaskEvent):
    """The task no longer belongs to this worker: its series end."""

    logger: ClassVar[str] = "headrace.task"
    level: ClassVar[Level] = Level.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshotMoved(TaskEvent):
    """Rows of a database's table are read beside its log of changes: the table waits for it, begins, or is read."""

    logger: ClassVar[str] = "headrace.fetch"
    level: ClassVar[Level] = Level.INFO
    table: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReported(TaskEvent):
    """What a stopped task left undelivered, to be fetched again at the next start."""

    logger: ClassVar[str] = "headrace.task"
    level: ClassVar[Level] = Level.INFO
    left_records: int
    seconds: float
    is_complete: bool = True


# --- connectors and the worker -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStarted(ConnectorEvent):
    """A connector start ended; ``kind``: source | sink."""

    logger: ClassVar[str] = "headrace.connector"
    level: ClassVar[Level] = Level.INFO
    is_success: bool
    connector_class: str
    version: str
    kind: str = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStateChanged(ConnectorEvent):
    """``state`` is one of Connect's, as for tasks."""

    logger: ClassVar[str] = "headrace.connector"
    level: ClassVar[Level] = Level.INFO
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorFailed(ConnectorEvent):
    """A connector could not be started or split; its tasks are not touched. ``trace``: as for tasks."""

    logger: ClassVar[str] = "headrace.connector"
    level: ClassVar[Level] = Level.ERROR
    error_class: str
    message: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorRemoved(ConnectorEvent):
    """The connector was deleted or moved to another worker: its and its tasks' series end."""

    logger: ClassVar[str] = "headrace.connector"
    level: ClassVar[Level] = Level.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(ConnectorEvent):
    """What a connector has done on this worker; told once a minute while anything moves, and no terminal shows it.

    Records since the worker has the connector; ``records_per_second`` is of the last half minute. ``state``: of its
    tasks here the one that most wants looking at.
    """

    logger: ClassVar[str] = "headrace.progress"
    level: ClassVar[Level] = Level.INFO
    state: str
    fetched_records: int
    delivered_records: int
    rejected_records: int
    deduplicated_records: int
    records_per_second: float
    lag_seconds: float | None = None
    lag_records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigWarning(Event):
    """A key is accepted but probably not what was meant; ``message`` never has its value."""

    logger: ClassVar[str] = "headrace.config"
    level: ClassVar[Level] = Level.WARNING
    key: str
    message: str
    connector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecordSkipped(Event):
    """A record in a topic of state says nothing that is understood; ``reason`` never has its value."""

    logger: ClassVar[str] = "headrace.state"
    level: ClassVar[Level] = Level.WARNING
    topic: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLogInterrupted(Event):
    """A topic of state cannot be read or written for now; what it says may be old until it can."""

    logger: ClassVar[str] = "headrace.state"
    level: ClassVar[Level] = Level.WARNING
    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLogResumed(Event):
    """A topic of state is read and written again; nothing was left out."""

    logger: ClassVar[str] = "headrace.state"
    level: ClassVar[Level] = Level.INFO
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """The worker accepts work; ``seconds`` since its process began."""

    logger: ClassVar[str] = "headrace.worker"
    level: ClassVar[Level] = Level.INFO
    version: str
    group_id: str = ""
    rest_url: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopping(Event):
    """The staged stop of the worker has begun; ``reason`` says who or what has asked for it."""

    logger: ClassVar[str] = "headrace.worker"
    level: ClassVar[Level] = Level.INFO
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentStateChanged(Event):
    """A part became usable or unusable. ``component``: group | kafka | registry | spark."""

    logger: ClassVar[str] = "headrace.worker"
    level: ClassVar[Level] = Level.INFO
    component: str
    is_ready: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStarted(Event):
    """A Spark session is usable after ``seconds``; ``is_restart`` when it replaces a lost one."""

    logger: ClassVar[str] = "headrace.convert"
    level: ClassVar[Level] = Level.INFO
    seconds: float
    is_restart: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswered(Event):
    """A REST request was answered; ``route`` is its pattern, such as ``/connectors/{name}``."""

    logger: ClassVar[str] = "headrace.rest"
    method: str
    route: str
    status: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed(Event):
    """A REST request ended in a bug or a broken part, not in a refusal; ``trace`` is for the log alone."""

    logger: ClassVar[str] = "headrace.rest"
    level: ClassVar[Level] = Level.ERROR
    method: str
    route: str
    error_class: str
    message: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAudited(Event):
    """Someone asked for a change, or was turned away: who, from where, what, and how it was answered; never a body.

    ``outcome``: done | refused | denied | failed.
    """

    logger: ClassVar[str] = "headrace.audit"
    level: ClassVar[Level] = Level.INFO
    is_verbatim: ClassVar[bool] = True
    principal: str
    remote: str
    method: str
    path: str
    query: str
    status: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBacklogMeasured(TaskEvent):
    """Bytes that the source keeps because the task has not confirmed them yet: log behind a replication slot."""

    logger: ClassVar[str] = "headrace.fetch"
    bytes: int
