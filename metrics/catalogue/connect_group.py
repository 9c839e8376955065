"""Kafka Connect's metrics of the group of workers, one to one.

Its worker-rebalance-metrics, and its connect-coordinator-metrics: the worker's place in its group, request by request.
"""

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


COORDINATOR = "kafka_connect_coordinator"


def _coordinator(attribute: str, kind: Kind, text: str) -> Metric:
    return Metric(f"{COORDINATOR}_{attribute}", kind, text, ("client_id",))


ASSIGNED_CONNECTORS = _coordinator("assigned_connectors", Kind.GAUGE, "Connectors that are this worker's.")
ASSIGNED_TASKS = _coordinator("assigned_tasks", Kind.GAUGE, "Tasks that are this worker's.")
JOIN_RATE = _coordinator("join_rate", Kind.GAUGE, "Joins a second.")
JOINS = _coordinator("join_total", Kind.COUNTER, "Joins of the group.")
SYNC_RATE = _coordinator("sync_rate", Kind.GAUGE, "Syncs a second.")
SYNCS = _coordinator("sync_total", Kind.COUNTER, "Syncs of the group, by which work is handed out.")
HEARTBEAT_RATE = _coordinator("heartbeat_rate", Kind.GAUGE, "Answered heartbeats a second.")
HEARTBEATS = _coordinator("heartbeat_total", Kind.COUNTER, "Answered heartbeats.")
HEARTBEAT_LONGEST_MS = _coordinator("heartbeat_response_time_max", Kind.GAUGE, "Longest wait for an answer, in ms.")
HEARTBEAT_SINCE = _coordinator("last_heartbeat_seconds_ago", Kind.GAUGE, "Since the last answered heartbeat.")
ROUND_AVERAGE_MS = _coordinator("rebalance_latency_avg", Kind.GAUGE, "Average time of a round, in ms.")
ROUND_LONGEST_MS = _coordinator("rebalance_latency_max", Kind.GAUGE, "Longest time of a round, in ms.")
ROUND_MS = _coordinator("rebalance_latency_total", Kind.COUNTER, "Time of all rounds, in ms.")
FAILED_ROUND_RATE = _coordinator("failed_rebalance_rate_per_hour", Kind.GAUGE, "Joins and syncs that fail an hour.")
FAILED_ROUNDS = _coordinator("failed_rebalance_total", Kind.COUNTER, "Joins and syncs that failed.")
ROUND_SINCE = _coordinator("last_rebalance_seconds_ago", Kind.GAUGE, "Since the last round ended.")
