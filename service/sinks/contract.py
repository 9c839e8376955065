"""The contract between a sink and the worker, and everything an author of a sink imports.

A sink is a config class and a connector class::

    class PrinterConfig(SinkConfig):
        \"\"\"Prints values.\"\"\"


    class Printer(SinkConnector[PrinterConfig]):
        async def put(self, batch: SinkBatch) -> None:
            print(batch.records.column("value").to_pylist())

One instance serves one run of a task. The worker calls, never two at a time (but for puts, see ``PutLimits``):
``start``, then at each assignment
``open``, ``put`` for each batch, ``flush`` before offsets are committed, ``committed`` after, ``close`` before
partitions go, at last ``stop``. Waiting, retrying, dead letters and the consumer group are the worker's. What an error
makes the worker do is its class:

- ``Retriable``, and a call that takes too long: ``put`` gets the records again after a wait, those of ``rows`` where
  the error names some, ``flush`` is called again when the next commit is due, and after any other call the task starts
  anew, with a new instance. ``TargetFull`` is one that ``PutLimits.retries_max`` does not count.
- ``StartAnew``: the task starts anew, with a new instance, at what ``open`` then says.
- ``Fatal``, and anything unknown: the task fails.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from fetchers.sdk import (
    Clock,
    ConfigModel,
    ConnectorSettingsError,
    Fatal,
    Finding,
    HttpAccess,
    HttpDoor,
    Importance,
    Key,
    RateLimited,
    Retriable,
)
from fetchers.sdk.reach import AllowedAddresses, AllowedPaths
from metrics.events import Emit
from service.domain.errors import StartAnew, TargetFull
from service.sinks.batch import Form, Offsets, Partition, PutLimits, SinkBatch, ValueType

__all__ = [
    "Fatal",
    "Finding",
    "Form",
    "Importance",
    "Key",
    "Offsets",
    "Partition",
    "PutLimits",
    "RateLimited",
    "Retriable",
    "SinkBatch",
    "SinkConfig",
    "SinkConnector",
    "SinkContext",
    "StartAnew",
    "TargetFull",
    "ValueType",
    "unknown_names",
]


class SinkConfig(ConfigModel):
    """Base of sinks' config classes. What every sink has (``topics``, ``errors.*``) is the worker's to read."""


_TEMPLATE = re.compile(r"\$\{([^}]*)\}")


def unknown_names(text: str) -> str | None:
    """What is wrong with a text in which ``${topic}`` stands for the topic's name.

    Any other such name would stay as it is, in the name of a table or an index.
    """
    found = [name for name in _TEMPLATE.findall(text) if name != "topic"]
    return f"Unknown ${{{found[0]}}}: there is ${{topic}}" if found else None


C = TypeVar("C", bound=SinkConfig)


async def nowhere(_partitions: Collection[Partition]) -> Mapping[Partition, int]:
    """Where there is no Kafka to ask, no partition is known to end."""
    return {}


@dataclass(slots=True)
class SinkContext:
    """What the worker gives a task, when the task starts. The http client asks in its name."""

    connector: str
    task: int
    clock: Clock
    emit: Emit
    door: InitVar[HttpDoor]
    request_flush: Callable[..., None] = lambda _after_seconds=0.0: None
    """Have what was put flushed and committed now, or so many seconds from now (``request_flush(2.5)``), where
    ``flush_interval_seconds`` are not over before. With seconds for the event loop alone."""
    generation: Callable[[], int] = lambda: -1
    """Number of the group's last assignment: greater with each rebalance of the consumer group, -1 outside of it. A
    target that remembers the greatest it has seen can refuse a member that the group has given up (a zombie)."""
    ends: Callable[[Collection[Partition]], Awaitable[Mapping[Partition, int]]] = nowhere
    """Ask Kafka now for the next offset of each partition: what a target holds of it and is greater is of another
    topic, such as one of the same name that was deleted."""
    note_progress: Callable[[], None] = lambda: None
    """Say that ``put``, ``flush`` or ``open`` goes on, after each step of one that has many; from any thread. Its time
    limit begins anew, except while a rebalance or a stop waits for it."""
    http: HttpAccess = field(init=False)
    """The worker's http client, with this task's limits; the same that sources have."""

    def __post_init__(self, door: HttpDoor) -> None:
        """Take a share of the worker's http client."""
        self.http = door.for_task(self)

    def finish_round(self) -> None:
        """Part of ``Asker``: a sink asks for nothing, so it has no rounds."""

    def waiting_for_limit(self) -> AbstractContextManager[None]:
        """Part of ``Asker``: a put that waits is not idle anyway."""
        return nullcontext()


class SinkConnector(ABC, Generic[C]):
    """A sink. Declare it as ``class Mine(SinkConnector[MyConfig])`` and write ``put``.

    At least once is the worker's promise: after a crash, what was put and not committed is put again. A sink that
    knows by itself what it has written makes it exactly once: by what ``open`` returns, by passing over what it knows.
    What it has refused it must know too: a record that failed the task comes again, perhaps to a config that takes it.
    """

    config_class: ClassVar[type[SinkConfig]]
    version: ClassVar[str] = "0.1.0"
    accepts: ClassVar[frozenset[Form]] = frozenset(Form)
    """Forms of values that it takes; a config whose converter makes another is refused."""
    put_limits: PutLimits = PutLimits()
    """How much it takes at once; of the class, or set in ``__init__`` from the config."""
    flush_interval_seconds: float | None = None
    """How long what was put waits for its flush and commit; None: ``offset.flush.interval.ms`` of the worker."""
    connector_name: str = ""
    """Set by the worker on each instance; of those that run, the context says it too."""
    allowed_paths: AllowedPaths = AllowedPaths()
    """Files that configs may name, set by the worker on each instance. Keys with ``Key(is_path=True)`` were checked;
    whoever opens a file checks it once more, since links may have changed."""
    allowed_addresses: AllowedAddresses = AllowedAddresses()
    """Addresses that connections may be made to, set likewise, for sinks with a client of their own; the http client
    obeys by itself."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Find the config class in ``SinkConnector[Config]``; who refines another sink has its own, or names one."""
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            arguments = get_args(base) if get_origin(base) is not None else ()
            if arguments and isinstance(arguments[0], type) and issubclass(arguments[0], SinkConfig):
                cls.config_class = arguments[0]
        if not hasattr(cls, "config_class"):
            message = f"{cls.__name__} must be declared as SinkConnector[ItsConfig]"
            raise ConnectorSettingsError(message)

    def __init__(self, config: C) -> None:
        """``config``: validated; the instance may keep state of its own besides."""
        self.config = config

    @abstractmethod
    async def put(self, batch: SinkBatch) -> None:
        """Take the records, at once or by the next ``flush``; never block the event loop.

        After ``Retriable`` the same records come again; after a put that took longer than ``put_limits`` allow, in
        smaller batches. ``Retriable(rows=…)``: only those rows of the batch come again, the others are done. Single
        records that will never be taken: ``batch.refuse``, and never for a target that is away. When a put has
        returned, its records may be flushed and committed, also in the middle of what one poll has brought.
        """

    async def flush(self, offsets: Offsets) -> Offsets:
        """Make durable what was put; return how far it is, never further than ``offsets``. Less is committed later."""
        return offsets

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """For each task the keys it has besides the connector's own; the consumer group splits the partitions."""
        return ({},) * tasks_max

    def findings(self) -> Sequence[Finding]:
        """What is wrong with values that are each right by themselves; no I/O here."""
        return ()

    def check_offsets(self, offsets: Mapping[Partition, int | None]) -> None:
        """Look at offsets that a person wants the group to begin at; ValueError refuses them, with a text for it.

        Called in a thread, on an instance that runs nothing, while the connector is stopped (KIP-875): with the
        partitions of the request whose offsets change, or with all that the group has when it is reset; None is to
        forget. Refuse what would have no effect, as where the target itself says how far it is. After 60 s the request
        is refused, and the thread is left to end by itself.
        """
        del offsets

    async def start(self, context: SinkContext) -> None:
        """Connect to the target. Called once, before the first ``open``."""

    async def open(self, partitions: Mapping[Partition, int | None]) -> Offsets:
        """Take over partitions. Called with the group's committed offsets, None where it has none.

        Return the offsets to begin at where they should be others. No record of the partitions is polled before this
        has returned.
        """
        del partitions
        return {}

    async def committed(self, offsets: Offsets) -> None:
        """Hear that ``offsets`` have been committed; failing here does not undo it."""

    async def close(self, partitions: Collection[Partition]) -> None:
        """Give up partitions: what was put of them has been flushed and, if that was possible, committed."""

    async def stop(self) -> None:
        """Disconnect from the target. Called once, also after an error and after a ``start`` that failed."""
