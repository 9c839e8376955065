"""headrace's own metrics, and those of the process, which the client library measures on Linux."""

from __future__ import annotations

from metrics.catalogue.declaration import TASK, Kind, Metric

SECONDS_SHORT = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SECONDS_LONG = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
RECORDS = (1, 10, 100, 1_000, 5_000, 10_000, 25_000, 50_000, 100_000)
BYTES = (1_024, 16_384, 131_072, 1_048_576, 4_194_304, 16_777_216, 33_554_432, 67_108_864)

FETCH_OUTCOMES = ("outcome", ("ok", "retriable", "rate_limited", "fatal"))
CLOSE_REASONS = ("reason", ("count", "bytes", "age", "idle", "stop", "transaction"))
RETRY_STAGES = ("stage", ("fetch", "convert", "put"))
COMPONENTS = ("component", ("group", "kafka", "registry", "spark"))
METHODS = ("method", ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

BUILD_INFO = Metric("headrace_build_info", Kind.INFO, "The running version of headrace.", ("version",))
COMPONENT_READY = Metric(
    "headrace_component_ready",
    Kind.GAUGE,
    "1 while a part the worker depends on is usable, 0 while it is not.",
    ("component",),
    words=(COMPONENTS,),
)
CONFIG_WARNINGS = Metric(
    "headrace_config_warnings_total",
    Kind.COUNTER,
    "Configuration keys accepted with a warning.",
)
STATE_RECORDS_SKIPPED = Metric(
    "headrace_state_records_skipped_total",
    Kind.COUNTER,
    "Records in the topics of configs, states and offsets that could not be understood and were passed over.",
)
LABEL_VALUES_FOLDED = Metric(
    "headrace_label_values_folded_total",
    Kind.COUNTER,
    "Samples whose label value was outside its bounds and is shown as other.",
)

# --- fetch

FETCH_REQUESTS = Metric(
    "headrace_fetch_requests_total",
    Kind.COUNTER,
    "Requests to the source, by how they ended.",
    (*TASK, "outcome"),
    words=(FETCH_OUTCOMES,),
)
FETCH_BYTES = Metric(
    "headrace_fetch_bytes_total",
    Kind.COUNTER,
    "Bytes received from the source, by how the request ended.",
    (*TASK, "outcome"),
    words=(FETCH_OUTCOMES,),
)
FETCH_SECONDS = Metric(
    "headrace_fetch_seconds",
    Kind.HISTOGRAM,
    "From asking the source to the end of its answer: with waits for a rate limit, log-ins and redirects, and with the "
    "time in which a fetcher that reads the answer in parts hands over what it has.",
    TASK,
    SECONDS_LONG,
)
PAGES = Metric("headrace_pages_total", Kind.COUNTER, "Pages handed over by the fetcher.", TASK)
RECORDS_FETCHED = Metric(
    "headrace_records_fetched_total",
    Kind.COUNTER,
    "Records handed over by the fetcher.",
    TASK,
)
PAGE_BYTES = Metric(
    "headrace_page_bytes_total",
    Kind.COUNTER,
    "Bytes of the payloads handed over by the fetcher, without their keys.",
    TASK,
)
PAGES_MOVED = Metric(
    "headrace_pages_moved_total",
    Kind.COUNTER,
    "Times that a list moved over a page border while it was paged, and pages were read again for it.",
    TASK,
)
LISTENER_CONNECTS = Metric(
    "headrace_listener_connects_total",
    Kind.COUNTER,
    "Connections that the source of a listener has accepted.",
    TASK,
)
SOURCE_GAPS = Metric(
    "headrace_source_gaps_total",
    Kind.COUNTER,
    "Times that something of the source was lost, or may be, because nobody could listen and it cannot be asked again.",
    TASK,
)
SOURCE_GAP_SECONDS = Metric(
    "headrace_source_gap_seconds_total",
    Kind.COUNTER,
    "Time that these gaps lasted, where it is known.",
    TASK,
)
SOURCE_GAP_MESSAGES = Metric(
    "headrace_source_gap_messages_total",
    Kind.COUNTER,
    "Messages that are missing in these gaps, where their number is known.",
    TASK,
)
MESSAGES_PASSED_OVER = Metric(
    "headrace_messages_passed_over_total",
    Kind.COUNTER,
    "Messages of a listener's source that are none for the topic, by the reason for which they were left out.",
    (*TASK, "reason"),
)
RECONNECT_CEILINGS = Metric(
    "headrace_reconnect_ceilings_total",
    Kind.COUNTER,
    "Times that the source of a listener was away for so long that the waits between two tries reached their ceiling.",
    TASK,
)
INBOX_RECORDS = Metric(
    "headrace_inbox_records",
    Kind.GAUGE,
    "Records that a listener has received and not yet handed over, as last told with a page.",
    TASK,
)
INBOX_BYTES = Metric(
    "headrace_inbox_bytes",
    Kind.GAUGE,
    "Bytes of these records.",
    TASK,
)
INBOX_WAITING = Metric(
    "headrace_inbox_waiting",
    Kind.GAUGE,
    "1 while a listener does not read its source because its inbox is full, else 0.",
    TASK,
)
INBOX_WAIT = Metric(
    "headrace_inbox_wait_seconds",
    Kind.HISTOGRAM,
    "How long a listener did not read its source because its inbox was full; waits only, each when it ends.",
    TASK,
    SECONDS_LONG,
)
RATE_LIMIT_WAIT = Metric(
    "headrace_rate_limit_wait_seconds_total",
    Kind.COUNTER,
    "Time the fetcher stood still to respect a limit of the source.",
    TASK,
)
SOURCE_LAG = Metric(
    "headrace_source_lag_seconds",
    Kind.GAUGE,
    "How far the fetcher is behind its source, by its own reckoning and as last told; 0 when it has read all there is. "
    "Grows while the source is away, or a full queue or a want of memory holds the fetcher up.",
    TASK,
)
SOURCE_BACKLOG = Metric(
    "headrace_source_backlog_bytes",
    Kind.GAUGE,
    "Bytes that the source keeps because they are not confirmed to it yet, as last told while the task runs: the log "
    "that a replication slot holds back.",
    TASK,
)

# --- queue and micro-batches

QUEUE_RECORDS = Metric("headrace_queue_records", Kind.GAUGE, "Records in the queue.", TASK)
QUEUE_RECORDS_LIMIT = Metric("headrace_queue_records_limit", Kind.GAUGE, "Records the queue may hold.", TASK)
QUEUE_BYTES = Metric(
    "headrace_queue_bytes",
    Kind.GAUGE,
    "Memory of the payloads in the queue, as queue.bytes.max counts it: their bytes and about four more each.",
    TASK,
)
QUEUE_BYTES_LIMIT = Metric(
    "headrace_queue_bytes_limit",
    Kind.GAUGE,
    "Memory of payloads the queue may hold, queue.bytes.max; a single page may be larger.",
    TASK,
)
QUEUE_PAGES_WAITING = Metric(
    "headrace_queue_pages_waiting",
    Kind.GAUGE,
    "1 while the fetcher waits for room in the queue with a page in its hand, else 0.",
    TASK,
)
QUEUE_WAIT = Metric(
    "headrace_queue_wait_seconds",
    Kind.HISTOGRAM,
    "How long the fetcher waited for room in the queue; waits only, each when it ends.",
    TASK,
    SECONDS_LONG,
)
TASK_MEMORY = Metric(
    "headrace_task_memory_bytes",
    Kind.GAUGE,
    "Memory that the task holds: pages, micro-batches in conversion, and outcomes that are not yet committed.",
    TASK,
)
MEMORY = Metric(
    "headrace_memory_bytes",
    Kind.GAUGE,
    "The same of all tasks of the worker together.",
)
MEMORY_LIMIT = Metric(
    "headrace_memory_bytes_limit",
    Kind.GAUGE,
    "Memory that all tasks together may hold, memory.bytes.max; each may hold one page more.",
)
MEMORY_WAITING = Metric(
    "headrace_memory_waiting",
    Kind.GAUGE,
    "1 while the fetcher is asked for no page until the worker has memory for it, else 0.",
    TASK,
)
MEMORY_WAIT = Metric(
    "headrace_memory_wait_seconds",
    Kind.HISTOGRAM,
    "How long the fetcher was asked for no page for want of memory; waits only, each when it ends.",
    TASK,
    SECONDS_LONG,
)
BATCH_RECORDS = Metric(
    "headrace_batch_records",
    Kind.HISTOGRAM,
    "Records in a micro-batch, by what closed it.",
    (*TASK, "reason"),
    RECORDS,
    (CLOSE_REASONS,),
)
BATCH_BYTES = Metric(
    "headrace_batch_bytes",
    Kind.HISTOGRAM,
    "Memory of the payloads of a micro-batch, as batch.bytes.max counts it: their bytes and about four more each.",
    (*TASK, "reason"),
    BYTES,
    (CLOSE_REASONS,),
)
BATCH_AGE = Metric(
    "headrace_batch_age_seconds",
    Kind.HISTOGRAM,
    "Age of a micro-batch when it was closed, by what closed it.",
    (*TASK, "reason"),
    SECONDS_SHORT,
    (CLOSE_REASONS,),
)

# --- convert

SPARK_JOB = Metric(
    "headrace_spark_job_seconds",
    Kind.HISTOGRAM,
    "Duration of the conversion of a micro-batch.",
    TASK,
    SECONDS_SHORT,
)
RECORDS_CONVERTED = Metric(
    "headrace_records_converted_total",
    Kind.COUNTER,
    "Records that went through the conversion, valid or rejected.",
    TASK,
)
RECORDS_REJECTED = Metric(
    "headrace_records_rejected_total",
    Kind.COUNTER,
    "Records that failed validation or conversion.",
    (*TASK, "stage", "reason"),
)
RECORDS_COERCED = Metric(
    "headrace_records_coerced_total",
    Kind.COUNTER,
    "Delivered records in which a text was taken for the value of a field.",
    (*TASK, "field"),
)
CONVERSIONS = Metric(
    "headrace_conversions_total",
    Kind.COUNTER,
    "Conversions by Spark or Arrow, of small micro-batches without either, and by these where the small way failed.",
    ("way",),
    words=(("way", ("small", "spark", "spark_after_small")),),
)
CONVERSIONS_RUNNING = Metric("headrace_conversions_running", Kind.GAUGE, "Conversions running on this worker.")
CONVERSIONS_WAITING = Metric("headrace_conversions_waiting", Kind.GAUGE, "Conversions waiting for a slot.")
CONVERSION_SLOTS = Metric("headrace_conversion_slots", Kind.GAUGE, "Conversions that may run at once.")
SPARK_STARTS = Metric("headrace_spark_starts_total", Kind.COUNTER, "Spark sessions started by this worker.")
SPARK_START_SECONDS = Metric("headrace_spark_start_seconds", Kind.GAUGE, "How long the last start of Spark took.")

# --- deliver

RECORDS_DELIVERED = Metric(
    "headrace_records_delivered_total",
    Kind.COUNTER,
    "Records readable in their topics.",
    TASK,
)
BYTES_DELIVERED = Metric(
    "headrace_delivered_bytes_total",
    Kind.COUNTER,
    "Key and value bytes of delivered records.",
    TASK,
)
RECORDS_DEDUPLICATED = Metric(
    "headrace_records_deduplicated_total",
    Kind.COUNTER,
    "Records dropped because equal ones had been delivered.",
    TASK,
)
RECORDS_FILTERED = Metric(
    "headrace_records_filtered_total",
    Kind.COUNTER,
    "Records that a transformation has dropped.",
    TASK,
)
DEAD_LETTERS = Metric(
    "headrace_dead_letters_total",
    Kind.COUNTER,
    "Dead letters readable in their topic.",
    TASK,
)
TRANSACTION_SECONDS = Metric(
    "headrace_produce_transaction_seconds",
    Kind.HISTOGRAM,
    "From the beginning of a transaction to its commit.",
    TASK,
    SECONDS_SHORT,
)
TRANSACTIONS_ABORTED = Metric(
    "headrace_transactions_aborted_total",
    Kind.COUNTER,
    "Transactions given up.",
    (*TASK, "error_class"),
)
END_TO_END = Metric(
    "headrace_end_to_end_seconds",
    Kind.HISTOGRAM,
    "From fetch to readable by a read_committed consumer, per record.",
    TASK,
    SECONDS_LONG,
)

# --- errors, tasks, REST

RETRIES = Metric(
    "headrace_retries_total",
    Kind.COUNTER,
    "Tries repeated in place after a retriable error; a failed delivery restarts the task instead.",
    (*TASK, "stage", "error_class"),
    words=(RETRY_STAGES,),
)
RETRY_WAIT = Metric(
    "headrace_retry_wait_seconds_total",
    Kind.COUNTER,
    "Time set aside between tries.",
    (*TASK, "stage"),
    words=(RETRY_STAGES,),
)
CONNECTOR_HAS_FAILED_TASK = Metric(
    "headrace_connector_has_failed_task",
    Kind.GAUGE,
    "1 where a task of the connector on this worker is FAILED.",
    ("connector",),
)
TASK_RESTARTS = Metric("headrace_task_restarts_total", Kind.COUNTER, "Restarts of a task.", TASK)
TASK_FAILURES = Metric(
    "headrace_task_failures_total",
    Kind.COUNTER,
    "Failures of a task.",
    (*TASK, "error_class"),
)
LEFT_RECORDS = Metric(
    "headrace_stop_left_records",
    Kind.GAUGE,
    "Records undelivered when the task last stopped; they are fetched again.",
    TASK,
)
HTTP_REQUESTS = Metric(
    "headrace_http_requests_total",
    Kind.COUNTER,
    "Answers given by the REST interface.",
    ("method", "route", "status"),
    words=(METHODS,),
)
HTTP_SECONDS = Metric(
    "headrace_http_request_seconds",
    Kind.HISTOGRAM,
    "Duration of REST requests.",
    ("method", "route", "status"),
    SECONDS_SHORT,
    (METHODS,),
)


RESIDENT_MEMORY = Metric("process_resident_memory_bytes", Kind.GAUGE, "Memory of the Python process; not of Spark.")
VIRTUAL_MEMORY = Metric("process_virtual_memory_bytes", Kind.GAUGE, "Address space reserved.")
CPU = Metric("process_cpu_seconds_total", Kind.COUNTER, "CPU time used.")
START_TIME = Metric("process_start_time_seconds", Kind.GAUGE, "Start, seconds since the epoch.")
OPEN_FILES = Metric("process_open_fds", Kind.GAUGE, "Files and sockets open.")
OPEN_FILES_MAX = Metric("process_max_fds", Kind.GAUGE, "Files and sockets that may be open.")
