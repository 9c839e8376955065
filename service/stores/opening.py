"""The stores of a worker: in topics for a worker of a cluster, in memory for a standalone one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fetchers.sdk.clock import Clock
from metrics.events import Emit
from service.config.worker import WorkerConfig
from service.stores.config_log import ConfigLog
from service.stores.kafka_log import KafkaStateLog, LogClients
from service.stores.state_log import MemoryStateLog
from service.stores.state_topic import StateKind, StateTopic
from service.stores.statuses import Statuses


@dataclass(frozen=True, slots=True)
class StateStores:
    """What is known of connectors; each is started and stopped by who uses it."""

    configs: ConfigLog
    statuses: Statuses


def stores_in_kafka(
    config: WorkerConfig, properties: Mapping[str, str], clients: LogClients, *, clock: Clock, emit: Emit
) -> StateStores:
    """In the topics that the worker's properties name; leaders fence each other as Kafka Connect's do (KIP-618)."""
    configs = StateTopic.of(
        StateKind.CONFIG,
        config.config_storage_topic,
        replication=config.config_storage_replication_factor,
        worker_properties=properties,
    )
    statuses = StateTopic.of(
        StateKind.STATUS,
        config.status_storage_topic,
        partitions=config.status_storage_partitions,
        replication=config.status_storage_replication_factor,
        worker_properties=properties,
    )
    leader_id = f"connect-cluster-{config.group_id}"
    return StateStores(
        ConfigLog(KafkaStateLog(configs, clients, emit=emit, leader_id=leader_id), emit=emit),
        Statuses(KafkaStateLog(statuses, clients, emit=emit), clock=clock, emit=emit),
    )


def stores_in_memory(config: WorkerConfig, *, clock: Clock, emit: Emit) -> StateStores:
    """In memory, for a standalone worker: what is known of connectors ends with the process."""
    return StateStores(
        ConfigLog(MemoryStateLog(config.config_storage_topic), emit=emit),
        Statuses(MemoryStateLog(config.status_storage_topic), clock=clock, emit=emit),
    )
