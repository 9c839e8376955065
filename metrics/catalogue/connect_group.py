"""Kafka Connect's worker-rebalance-metrics, one to one."""

from __future__ import annotations

from metrics.catalogue.declaration import Kind, Metric

REBALANCE = "kafka_connect_worker_rebalance"


def _rebalance(attribute: str, kind: Kind, text: str, *labels: str) -> Metric:
    return Metric(f"{REBALANCE}_{attribute}", kind, text, labels)


PROTOCOL = _rebalance("connect_protocol", Kind.INFO, "Protocol of the group.", "protocol")
LEADER = _rebalance("leader_name", Kind.INFO, "URL of the group's leader.", "leader")
EPOCH = _rebalance("epoch", Kind.GAUGE, "Generation of the group.")
COMPLETED = _rebalance("completed_rebalances_total", Kind.COUNTER, "Rounds of the group that this worker was in.")
REBALANCING = _rebalance("rebalancing", Kind.GAUGE, "1 while a round goes on.")
AVERAGE_MS = _rebalance("rebalance_avg_time_ms", Kind.GAUGE, "Average time of a round.")
LONGEST_MS = _rebalance("rebalance_max_time_ms", Kind.GAUGE, "Longest time of a round.")
SINCE_MS = _rebalance("time_since_last_rebalance_ms", Kind.GAUGE, "Time since the last round ended.")
