"""Facts of the flow: fetch, queue, micro-batch, convert, deliver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metrics.events.event import Event, Level, TaskEvent

# --- fetch ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCompleted(TaskEvent):
    """A request to the source ended; ``bytes`` came in, whatever the outcome.

    ``outcome``: ok | retriable | rate_limited | fatal. ``seconds``: from asking to the end of its answer, waits for a
    rate limit, log-ins and redirects included, and the time in which the fetcher was busy with what it had read.
    """

    logger: ClassVar[str] = "headrace.fetch"
    outcome: str
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFetched(TaskEvent):
    """The fetcher handed over a page of ``bytes`` payload bytes.

    ``seconds`` is how long it was waited for, from asking the fetcher for its next page; None where that is not known.
    """

    logger: ClassVar[str] = "headrace.fetch"
    records: int
    bytes: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCommitsAwaited(TaskEvent):
    """Rows of a database's table wait, for so long by now, until transactions end that may still write before them.

    ``holders``: a few of those transactions, as the database's administrator can find them.
    """

    logger: ClassVar[str] = "headrace.fetch"
    level: ClassVar[Level] = Level.WARNING
    table: str
    holders: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitWaited(TaskEvent):
    """The fetcher stood still on purpose, to respect a limit of the source."""

    logger: ClassVar[str] = "headrace.fetch"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLagMeasured(TaskEvent):
    """How far the fetcher is behind its source, by its own reckoning; 0 when it has read all there is."""

    logger: ClassVar[str] = "headrace.fetch"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCaughtUp(TaskEvent):
    """For the first time since its start a task has asked its source (a sink: its topics) for everything there is."""

    logger: ClassVar[str] = "headrace.fetch"


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesMoved(TaskEvent):
    """Records crossed a page border while a list was paged, and pages are read again so that none is passed over.

    ``is_repeating``: they are in no order, and those that this round has handed over come again, unless they are so few
    that each is known, and the task does not restart before the end of the round.
    """

    logger: ClassVar[str] = "headrace.fetch"
    level: ClassVar[Level] = Level.WARNING
    is_repeating: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConnected(TaskEvent):
    """The source of a listener has accepted a connection; ``is_resumed``: it goes on where the last one ended."""

    logger: ClassVar[str] = "headrace.fetch"
    level: ClassVar[Level] = Level.INFO
    is_resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGap(TaskEvent):
    """Something that the source had is lost, or may be: it was sent, or would have been, while nobody listened.

    ``reason``: disconnected | restarted | stopped | dropped | unrecovered. ``seconds`` is the time for which nothing
    was heard, and ``messages`` how many are missing; each is None where it is not known. ``message``: what the source
    says.
    """

    logger: ClassVar[str] = "headrace.fetch"
    level: ClassVar[Level] = Level.WARNING
    reason: str
    seconds: float | None = None
    messages: int | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesPassedOver(TaskEvent):
    """A listener has left out messages of its source that are none for the topic.

    ``reason``: unknown (of a kind that nobody knows) | foreign (nobody here has asked for it) | deleted (the source has
    said before to delete it) | warning (about the connection). ``message``: what the source says, where it does.
    """

    logger: ClassVar[str] = "headrace.fetch"
    level: ClassVar[Level] = Level.WARNING
    reason: str
    messages: int
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectCeilingReached(TaskEvent):
    """A listener's source has been away for so long that the wait between two tries grows no more."""

    logger: ClassVar[str] = "headrace.fetch"
    level: ClassVar[Level] = Level.WARNING
    attempt: int
    wait_seconds: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxChanged(TaskEvent):
    """What a listener has received and not yet handed over: ``bytes`` of payloads."""

    logger: ClassVar[str] = "headrace.fetch"
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxWaitBegan(TaskEvent):
    """The inbox is full, and the source is not read until there is room; ``InboxWaited`` follows."""

    logger: ClassVar[str] = "headrace.fetch"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxWaited(TaskEvent):
    """The source is read again, or the wait was ended by a stop; ``seconds`` is how long it was not read."""

    logger: ClassVar[str] = "headrace.fetch"
    seconds: float


# --- queue and micro-batches ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChanged(TaskEvent):
    """What the bounded queue holds now, and what it may hold; ``bytes`` is memory, as for ``BatchClosed``."""

    logger: ClassVar[str] = "headrace.queue"
    records: int
    bytes: int
    records_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWaitBegan(TaskEvent):
    """The queue has no room for the fetcher's page; ``QueueStalled`` follows when the wait is over."""

    logger: ClassVar[str] = "headrace.queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStalled(TaskEvent):
    """The fetcher waited this long for room; emitted for waits only, at their end, whatever ended them."""

    logger: ClassVar[str] = "headrace.queue"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHeldChanged(TaskEvent):
    """Memory that a task, and all tasks of the worker together, hold: pages, micro-batches, undelivered outcomes.

    ``worker_bytes_max`` is the worker's budget, ``memory.bytes.max``.
    """

    logger: ClassVar[str] = "headrace.memory"
    bytes: int
    worker_bytes: int
    worker_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWaitBegan(TaskEvent):
    """The fetcher is asked for no page until the worker has memory for it; ``MemoryWaited`` follows."""

    logger: ClassVar[str] = "headrace.memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWaited(TaskEvent):
    """The wait for memory is over, whatever ended it; ``seconds`` is how long it was."""

    logger: ClassVar[str] = "headrace.memory"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchClosed(TaskEvent):
    """A micro-batch is complete. ``reason``: count | bytes | age | idle | stop.

    ``bytes`` is the memory of its payloads, four bytes each for finding them included, as its limit counts it.
    """

    logger: ClassVar[str] = "headrace.batch"
    records: int
    bytes: int
    age_seconds: float
    reason: str


# --- convert -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConverted(TaskEvent):
    """The conversion of one micro-batch of ``records`` ended well after ``seconds``."""

    logger: ClassVar[str] = "headrace.convert"
    records: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionSlotsChanged(Event):
    """How many conversions run on this worker, how many wait for a slot, and how many may run."""

    logger: ClassVar[str] = "headrace.convert"
    running: int
    waiting: int
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionEnded(Event):
    """A conversion of ``records`` ended well; ``way``: small (without Spark) | spark | spark_after_small."""

    logger: ClassVar[str] = "headrace.convert"
    records: int
    way: str


# --- deliver -------------------------------------------------------------------------------------
# Counts of records are emitted after the commit that carries them. Emitted earlier, a transaction
# that is aborted and fetched again would count them twice, and the accounts would not balance.


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsRejected(TaskEvent):
    """``count`` records failed for ``reason`` in ``stage``.

    ``stage`` is Connect's stage name (VALUE_CONVERTER …); ``is_tolerated`` is false where the
    rejection fails the task (``errors.tolerance=none``).
    """

    logger: ClassVar[str] = "headrace.convert"
    stage: str
    reason: str
    count: int
    is_tolerated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsCoerced(TaskEvent):
    """In ``count`` delivered records a text was taken for the value of ``field`` (``contract.coerce``).

    ``field`` is a dotted name of the contract; fields beyond the first 62 are ``(other)``.
    """

    logger: ClassVar[str] = "headrace.convert"
    field: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRejectedLogged(TaskEvent):
    """One rejected record, told because ``errors.log.enable`` asks for it; never its content.

    ``source_partition`` and ``source_offset`` are JSON texts.
    """

    logger: ClassVar[str] = "headrace.errors"
    level: ClassVar[Level] = Level.ERROR
    stage: str
    reason: str
    message: str
    source_partition: str
    source_offset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDeduplicated(TaskEvent):
    """``count`` records were dropped because equal ones had been delivered."""

    logger: ClassVar[str] = "headrace.deliver"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsFiltered(TaskEvent):
    """``count`` records were dropped by a transformation that filters; their offsets are done."""

    logger: ClassVar[str] = "headrace.deliver"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDelivered(TaskEvent):
    """Records are readable in their topics; ``bytes`` counts their keys and values."""

    logger: ClassVar[str] = "headrace.deliver"
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersWritten(TaskEvent):
    """``count`` dead letters are readable in their topic."""

    logger: ClassVar[str] = "headrace.deliver"
    level: ClassVar[Level] = Level.WARNING
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersReadAnew(TaskEvent):
    """A dead-letter topic ends before the last redrive of it did: it was made anew, and is read from its beginning."""

    level: ClassVar[Level] = Level.WARNING
    topic: str
    partition: int
    offset_redriven: int
    offset_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCommitted(TaskEvent):
    """One micro-batch is committed, ``seconds`` after its transaction began.

    ``records`` counts what was written, dead letters included. ``source_records`` counts the
    source's records whose fate it settles (delivered, dead-lettered, dropped); None: ``records``.
    """

    logger: ClassVar[str] = "headrace.deliver"
    records: int
    seconds: float
    source_records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionAborted(TaskEvent):
    """A transaction was given up; ``dead_letters`` in it are not written."""

    logger: ClassVar[str] = "headrace.deliver"
    level: ClassVar[Level] = Level.WARNING
    error_class: str
    dead_letters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted(TaskEvent):
    """Source offsets became durable, ``seconds`` after writing them began."""

    logger: ClassVar[str] = "headrace.deliver"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEndMeasured(TaskEvent):
    """``count`` records took about ``seconds`` from fetch to readable; once per page is enough."""

    logger: ClassVar[str] = "headrace.deliver"
    seconds: float
    count: int
