"""headrace's own metrics, as they follow from events: one rule an event, nothing remembered."""

from __future__ import annotations

from functools import singledispatch

from metrics import events
from metrics.catalogue import CATALOGUE, Kind, own
from metrics.catalogue.declaration import TASK
from metrics.instruments import Instruments

TASK_COUNTERS = tuple(
    metric
    for metric in CATALOGUE
    if metric.kind is Kind.COUNTER and metric.labels == TASK and metric.name.startswith("headrace_")
)


@singledispatch
def measure(event: events.Event, into: Instruments) -> None:
    """Update headrace's metrics by one event; events without a rule are for the log alone."""


@measure.register
def _(event: events.TaskStarted, into: Instruments) -> None:
    # From 0 on, so that the first dead letter is an increase that an alert can see.
    for metric in TASK_COUNTERS:
        into.add(metric, 0, event.connector, event.task)
    if event.kind == "source":
        into.set(own.QUEUE_PAGES_WAITING, 0, event.connector, event.task)
        into.set(own.MEMORY_WAITING, 0, event.connector, event.task)


@measure.register
def _(event: events.FetchCompleted, into: Instruments) -> None:
    task = (event.connector, event.task)
    into.add(own.FETCH_REQUESTS, 1, *task, event.outcome)
    into.add(own.FETCH_BYTES, event.bytes, *task, event.outcome)
    into.observe(own.FETCH_SECONDS, event.seconds, *task)


@measure.register
def _(event: events.PageFetched, into: Instruments) -> None:
    task = (event.connector, event.task)
    into.add(own.PAGES, 1, *task)
    into.add(own.RECORDS_FETCHED, event.records, *task)
    into.add(own.PAGE_BYTES, event.bytes, *task)


@measure.register
def _(event: events.SourceBacklogMeasured, into: Instruments) -> None:
    into.set(own.SOURCE_BACKLOG, event.bytes, event.connector, event.task)


@measure.register
def _(event: events.PagesMoved, into: Instruments) -> None:
    into.add(own.PAGES_MOVED, 1, event.connector, event.task)


@measure.register
def _(event: events.ListenerConnected, into: Instruments) -> None:
    into.add(own.LISTENER_CONNECTS, 1, event.connector, event.task)


@measure.register
def _(event: events.SourceGap, into: Instruments) -> None:
    task = (event.connector, event.task)
    into.add(own.SOURCE_GAPS, 1, *task)
    into.add(own.SOURCE_GAP_SECONDS, event.seconds or 0.0, *task)
    into.add(own.SOURCE_GAP_MESSAGES, event.messages or 0, *task)


@measure.register
def _(event: events.MessagesPassedOver, into: Instruments) -> None:
    into.add(own.MESSAGES_PASSED_OVER, event.messages, event.connector, event.task, event.reason)


@measure.register
def _(event: events.ReconnectCeilingReached, into: Instruments) -> None:
    into.add(own.RECONNECT_CEILINGS, 1, event.connector, event.task)


@measure.register
def _(event: events.InboxChanged, into: Instruments) -> None:
    into.set(own.INBOX_RECORDS, event.records, event.connector, event.task)
    into.set(own.INBOX_BYTES, event.bytes, event.connector, event.task)


@measure.register
def _(event: events.InboxWaitBegan, into: Instruments) -> None:
    into.set(own.INBOX_WAITING, 1, event.connector, event.task)


@measure.register
def _(event: events.InboxWaited, into: Instruments) -> None:
    into.set(own.INBOX_WAITING, 0, event.connector, event.task)
    into.observe(own.INBOX_WAIT, event.seconds, event.connector, event.task)


@measure.register
def _(event: events.RateLimitWaited, into: Instruments) -> None:
    into.add(own.RATE_LIMIT_WAIT, event.seconds, event.connector, event.task)


@measure.register
def _(event: events.QueueChanged, into: Instruments) -> None:
    task = (event.connector, event.task)
    into.set(own.QUEUE_RECORDS, event.records, *task)
    into.set(own.QUEUE_RECORDS_LIMIT, event.records_max, *task)
    into.set(own.QUEUE_BYTES, event.bytes, *task)
    into.set(own.QUEUE_BYTES_LIMIT, event.bytes_max, *task)


@measure.register
def _(event: events.QueueWaitBegan, into: Instruments) -> None:
    into.set(own.QUEUE_PAGES_WAITING, 1, event.connector, event.task)


@measure.register
def _(event: events.QueueStalled, into: Instruments) -> None:
    into.set(own.QUEUE_PAGES_WAITING, 0, event.connector, event.task)
    into.observe(own.QUEUE_WAIT, event.seconds, event.connector, event.task)


@measure.register
def _(event: events.MemoryHeldChanged, into: Instruments) -> None:
    into.set(own.TASK_MEMORY, event.bytes, event.connector, event.task)
    into.set(own.MEMORY, event.worker_bytes)
    into.set(own.MEMORY_LIMIT, event.worker_bytes_max)


@measure.register
def _(event: events.MemoryWaitBegan, into: Instruments) -> None:
    into.set(own.MEMORY_WAITING, 1, event.connector, event.task)


@measure.register
def _(event: events.MemoryWaited, into: Instruments) -> None:
    into.set(own.MEMORY_WAITING, 0, event.connector, event.task)
    into.observe(own.MEMORY_WAIT, event.seconds, event.connector, event.task)


@measure.register
def _(event: events.BatchClosed, into: Instruments) -> None:
    labels = (event.connector, event.task, event.reason)
    into.observe(own.BATCH_RECORDS, event.records, *labels)
    into.observe(own.BATCH_BYTES, event.bytes, *labels)
    into.observe(own.BATCH_AGE, event.age_seconds, *labels)


@measure.register
def _(event: events.BatchConverted, into: Instruments) -> None:
    into.observe(own.SPARK_JOB, event.seconds, event.connector, event.task)
    into.add(own.RECORDS_CONVERTED, event.records, event.connector, event.task)


@measure.register
def _(event: events.ConversionEnded, into: Instruments) -> None:
    into.add(own.CONVERSIONS, 1, event.way)


@measure.register
def _(event: events.ConversionSlotsChanged, into: Instruments) -> None:
    into.set(own.CONVERSIONS_RUNNING, event.running)
    into.set(own.CONVERSIONS_WAITING, event.waiting)
    into.set(own.CONVERSION_SLOTS, event.slots)


@measure.register
def _(event: events.SparkStarted, into: Instruments) -> None:
    into.add(own.SPARK_STARTS, 1)
    into.set(own.SPARK_START_SECONDS, event.seconds)


@measure.register
def _(event: events.RecordsRejected, into: Instruments) -> None:
    labels = (event.connector, event.task, event.stage, event.reason)
    into.add(own.RECORDS_REJECTED, event.count, *labels)


@measure.register
def _(event: events.RecordsCoerced, into: Instruments) -> None:
    into.add(own.RECORDS_COERCED, event.count, event.connector, event.task, event.field)


@measure.register
def _(event: events.RecordsDeduplicated, into: Instruments) -> None:
    into.add(own.RECORDS_DEDUPLICATED, event.count, event.connector, event.task)


@measure.register
def _(event: events.RecordsFiltered, into: Instruments) -> None:
    into.add(own.RECORDS_FILTERED, event.count, event.connector, event.task)


@measure.register
def _(event: events.RecordsDelivered, into: Instruments) -> None:
    into.add(own.RECORDS_DELIVERED, event.records, event.connector, event.task)
    into.add(own.BYTES_DELIVERED, event.bytes, event.connector, event.task)


@measure.register
def _(event: events.DeadLettersWritten, into: Instruments) -> None:
    into.add(own.DEAD_LETTERS, event.count, event.connector, event.task)


@measure.register
def _(event: events.TransactionCommitted, into: Instruments) -> None:
    into.observe(own.TRANSACTION_SECONDS, event.seconds, event.connector, event.task)


@measure.register
def _(event: events.TransactionAborted, into: Instruments) -> None:
    into.add(own.TRANSACTIONS_ABORTED, 1, event.connector, event.task, event.error_class)


@measure.register
def _(event: events.EndToEndMeasured, into: Instruments) -> None:
    task = (event.connector, event.task)
    into.observe(own.END_TO_END, event.seconds, *task, count=event.count)


@measure.register
def _(event: events.RetryScheduled, into: Instruments) -> None:
    task = (event.connector, event.task)
    into.add(own.RETRIES, 1, *task, event.stage, event.error_class)
    into.add(own.RETRY_WAIT, event.wait_seconds, *task, event.stage)


@measure.register
def _(event: events.TaskRestarted, into: Instruments) -> None:
    into.add(own.TASK_RESTARTS, 1, event.connector, event.task)


@measure.register
def _(event: events.TaskFailed, into: Instruments) -> None:
    into.add(own.TASK_FAILURES, 1, event.connector, event.task, event.error_class)


@measure.register
def _(event: events.StopReported, into: Instruments) -> None:
    into.set(own.LEFT_RECORDS, event.left_records, event.connector, event.task)


@measure.register
def _(event: events.WorkerStarted, into: Instruments) -> None:
    into.tell(own.BUILD_INFO, event.version)


@measure.register
def _(event: events.ComponentStateChanged, into: Instruments) -> None:
    into.set(own.COMPONENT_READY, 1.0 if event.is_ready else 0.0, event.component)


@measure.register
def _(_event: events.StateRecordSkipped, into: Instruments) -> None:
    into.add(own.STATE_RECORDS_SKIPPED, 1)


@measure.register
def _(_event: events.ConfigWarning, into: Instruments) -> None:
    into.add(own.CONFIG_WARNINGS, 1)


@measure.register
def _(event: events.RequestAnswered, into: Instruments) -> None:
    labels = (event.method, event.route, event.status)
    into.add(own.HTTP_REQUESTS, 1, *labels)
    into.observe(own.HTTP_SECONDS, event.seconds, *labels)
