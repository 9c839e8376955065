"""Kafka Connect's metrics under the names the usual JMX exporter rules give them, one to one.

Source: ConnectMetricsRegistry of Kafka 4.1 (groups connect-worker-metrics, connector-metrics,
connector-task-metrics, source-task-metrics, task-error-metrics). Units stay Connect's (``_ms``, and
fractions 0…1 under ``_percentage`` and ``_ratio``) so that existing dashboards read them right.
Averages, maxima and rates look back 30 to 60 seconds, as Connect's two samples of 30 s do; without
a measurement in that time averages and extremes are NaN, rates 0.
"""

from __future__ import annotations

from metrics.catalogue.declaration import TASK, Kind, Metric

STATES = ("unassigned", "running", "paused", "stopped", "failed", "restarting")

WORKER = "kafka_connect_worker"
CONNECTOR = "kafka_connect_connector"
CONNECTOR_TASK = "kafka_connect_connector_task"
SOURCE_TASK = "kafka_connect_source_task"
TASK_ERROR = "kafka_connect_task_error"


def _worker(attribute: str, kind: Kind, text: str, *labels: str) -> Metric:
    return Metric(f"{WORKER}_{attribute}", kind, text, labels)


def _task(group: str, attribute: str, kind: Kind, text: str) -> Metric:
    return Metric(f"{group}_{attribute}", kind, text, TASK)


CONNECTOR_COUNT = _worker("connector_count", Kind.GAUGE, "Connectors on this worker.")
TASK_COUNT = _worker("task_count", Kind.GAUGE, "Tasks on this worker.")
CONNECTOR_START_ATTEMPTS = _worker("connector_startup_attempts_total", Kind.COUNTER, "Connector starts tried.")
CONNECTOR_START_SUCCESSES = _worker("connector_startup_success_total", Kind.COUNTER, "Connector starts that succeeded.")
CONNECTOR_START_SUCCESS_SHARE = _worker(
    "connector_startup_success_percentage", Kind.GAUGE, "Share of connector starts that succeeded."
)
CONNECTOR_START_FAILURES = _worker("connector_startup_failure_total", Kind.COUNTER, "Connector starts that failed.")
CONNECTOR_START_FAILURE_SHARE = _worker(
    "connector_startup_failure_percentage", Kind.GAUGE, "Share of connector starts that failed."
)
TASK_START_ATTEMPTS = _worker("task_startup_attempts_total", Kind.COUNTER, "Task starts tried.")
TASK_START_SUCCESSES = _worker("task_startup_success_total", Kind.COUNTER, "Task starts that succeeded.")
TASK_START_SUCCESS_SHARE = _worker(
    "task_startup_success_percentage", Kind.GAUGE, "Share of task starts that succeeded."
)
TASK_START_FAILURES = _worker("task_startup_failure_total", Kind.COUNTER, "Task starts that failed.")
TASK_START_FAILURE_SHARE = _worker("task_startup_failure_percentage", Kind.GAUGE, "Share of task starts that failed.")
CONNECTOR_TASKS = _worker(
    "connector_total_task_count", Kind.GAUGE, "Tasks of the connector on this worker.", "connector"
)
CONNECTOR_TASKS_RUNNING = _worker("connector_running_task_count", Kind.GAUGE, "Its tasks that run.", "connector")
CONNECTOR_TASKS_PAUSED = _worker("connector_paused_task_count", Kind.GAUGE, "Its tasks that are paused.", "connector")
CONNECTOR_TASKS_FAILED = _worker("connector_failed_task_count", Kind.GAUGE, "Its tasks that failed.", "connector")
CONNECTOR_TASKS_UNASSIGNED = _worker(
    "connector_unassigned_task_count", Kind.GAUGE, "Its tasks without a worker.", "connector"
)
CONNECTOR_TASKS_DESTROYED = _worker(
    "connector_destroyed_task_count", Kind.GAUGE, "Its tasks that were removed.", "connector"
)
CONNECTOR_TASKS_RESTARTING = _worker(
    "connector_restarting_task_count", Kind.GAUGE, "Its tasks that restart.", "connector"
)

CONNECTOR_STATUS = Metric(
    f"{CONNECTOR}_status",
    Kind.ONE_HOT,
    "State of the connector.",
    ("connector", "status"),
    words=(("status", STATES),),
)
CONNECTOR_TYPE = Metric(f"{CONNECTOR}_connector_type", Kind.INFO, "Source or sink.", ("connector", "type"))
CONNECTOR_CLASS = Metric(f"{CONNECTOR}_connector_class", Kind.INFO, "Class of the connector.", ("connector", "class"))
CONNECTOR_VERSION = Metric(f"{CONNECTOR}_connector_version", Kind.INFO, "Its version.", ("connector", "version"))

TASK_STATUS = Metric(
    f"{CONNECTOR_TASK}_status",
    Kind.ONE_HOT,
    "State of the task.",
    (*TASK, "status"),
    words=(("status", STATES),),
)
RUNNING_RATIO = _task(CONNECTOR_TASK, "running_ratio", Kind.GAUGE, "Share of its time the task ran.")
PAUSE_RATIO = _task(CONNECTOR_TASK, "pause_ratio", Kind.GAUGE, "Share of its time the task was paused.")
OFFSET_COMMIT_MAX = _task(CONNECTOR_TASK, "offset_commit_max_time_ms", Kind.GAUGE, "Longest offset commit.")
OFFSET_COMMIT_AVG = _task(CONNECTOR_TASK, "offset_commit_avg_time_ms", Kind.GAUGE, "Average offset commit.")
OFFSET_COMMIT_FAILURE_SHARE = _task(
    CONNECTOR_TASK, "offset_commit_failure_percentage", Kind.GAUGE, "Share of commits that failed."
)
OFFSET_COMMIT_SUCCESS_SHARE = _task(
    CONNECTOR_TASK, "offset_commit_success_percentage", Kind.GAUGE, "Share that succeeded."
)
BATCH_SIZE_MAX = _task(CONNECTOR_TASK, "batch_size_max", Kind.GAUGE, "Records in the largest micro-batch.")
BATCH_SIZE_AVG = _task(CONNECTOR_TASK, "batch_size_avg", Kind.GAUGE, "Records in the average micro-batch.")

POLL_RATE = _task(SOURCE_TASK, "source_record_poll_rate", Kind.GAUGE, "Records fetched per second.")
POLL_TOTAL = _task(SOURCE_TASK, "source_record_poll_total", Kind.COUNTER, "Records fetched.")
WRITE_RATE = _task(SOURCE_TASK, "source_record_write_rate", Kind.GAUGE, "Records delivered per second.")
WRITE_TOTAL = _task(SOURCE_TASK, "source_record_write_total", Kind.COUNTER, "Records delivered.")
POLL_TIME_MAX = _task(SOURCE_TASK, "poll_batch_max_time_ms", Kind.GAUGE, "Longest wait for a page.")
POLL_TIME_AVG = _task(SOURCE_TASK, "poll_batch_avg_time_ms", Kind.GAUGE, "Average wait for a page.")
ACTIVE = _task(SOURCE_TASK, "source_record_active_count", Kind.GAUGE, "Records fetched and not yet settled.")
ACTIVE_MAX = _task(SOURCE_TASK, "source_record_active_count_max", Kind.GAUGE, "Their maximum.")
ACTIVE_AVG = _task(SOURCE_TASK, "source_record_active_count_avg", Kind.GAUGE, "Their average.")
TRANSACTION_SIZE_MIN = _task(SOURCE_TASK, "transaction_size_min", Kind.GAUGE, "Records in the smallest transaction.")
TRANSACTION_SIZE_MAX = _task(SOURCE_TASK, "transaction_size_max", Kind.GAUGE, "Records in the largest transaction.")
TRANSACTION_SIZE_AVG = _task(SOURCE_TASK, "transaction_size_avg", Kind.GAUGE, "Records in the average transaction.")

RECORD_FAILURES = _task(TASK_ERROR, "total_record_failures", Kind.UNTYPED, "Failed operations, each attempt.")
RECORD_ERRORS = _task(TASK_ERROR, "total_record_errors", Kind.UNTYPED, "Records whose processing ended in an error.")
RECORDS_SKIPPED = _task(TASK_ERROR, "total_records_skipped", Kind.UNTYPED, "Records tolerated and left out.")
RETRIES_TOTAL = _task(TASK_ERROR, "total_retries", Kind.UNTYPED, "Operations retried.")
ERRORS_LOGGED = _task(TASK_ERROR, "total_errors_logged", Kind.UNTYPED, "Errors logged.")
DEAD_LETTER_REQUESTS = _task(TASK_ERROR, "deadletterqueue_produce_requests", Kind.UNTYPED, "Dead letters tried.")
DEAD_LETTER_FAILURES = _task(TASK_ERROR, "deadletterqueue_produce_failures", Kind.UNTYPED, "Dead letters that failed.")
LAST_ERROR = _task(TASK_ERROR, "last_error_timestamp", Kind.GAUGE, "Milliseconds since the epoch; 0: none yet.")
