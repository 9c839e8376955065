"""Kafka Connect's sink-task-metrics, one to one."""

from __future__ import annotations

from metrics.catalogue.declaration import TASK, Kind, Metric

SINK_TASK = "kafka_connect_sink_task"


def _sink(attribute: str, kind: Kind, text: str) -> Metric:
    return Metric(f"{SINK_TASK}_{attribute}", kind, text, TASK)


READ_RATE = _sink("sink_record_read_rate", Kind.GAUGE, "Records read from Kafka per second.")
READ_TOTAL = _sink("sink_record_read_total", Kind.COUNTER, "Records read from Kafka.")
SEND_RATE = _sink("sink_record_send_rate", Kind.GAUGE, "Records taken by the sink per second.")
SEND_TOTAL = _sink("sink_record_send_total", Kind.COUNTER, "Records taken by the sink.")
LAG_MAX = _sink("sink_record_lag_max", Kind.GAUGE, "Records not read yet, in the partition where they are most.")
PARTITIONS = _sink("partition_count", Kind.GAUGE, "Partitions the task has.")
COMMIT_NUMBER = _sink("offset_commit_seq_no", Kind.GAUGE, "Number of the task's last offset commit.")
COMMIT_RATE = _sink("offset_commit_completion_rate", Kind.GAUGE, "Offset commits per second.")
COMMIT_TOTAL = _sink("offset_commit_completion_total", Kind.COUNTER, "Offset commits.")
SKIP_RATE = _sink("offset_commit_skip_rate", Kind.GAUGE, "Offset commits that came too late, per second.")
SKIP_TOTAL = _sink(
    "offset_commit_skip_total", Kind.COUNTER, "Offset commits that came too late: the group had moved on."
)
PUT_TIME_MAX = _sink("put_batch_max_time_ms", Kind.GAUGE, "Longest time the sink took for a batch.")
PUT_TIME_AVG = _sink("put_batch_avg_time_ms", Kind.GAUGE, "Average time the sink took for a batch.")
ACTIVE = _sink("sink_record_active_count", Kind.GAUGE, "Records read and not yet committed.")
ACTIVE_MAX = _sink("sink_record_active_count_max", Kind.GAUGE, "Their maximum.")
ACTIVE_AVG = _sink("sink_record_active_count_avg", Kind.GAUGE, "Their average.")
