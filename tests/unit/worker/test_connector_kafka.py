"""What the control plane asks of Kafka on behalf of a connector."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from metrics.events import discard
from service.config.providers import Resolved
from service.domain.cluster import Properties
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.stores.connector_offsets import OffsetTopics
from service.stores.dedupe_store import DedupeStore
from service.worker.connector_kafka import ConnectorKafka
from service.worker.lending import ClientSettings


async def test_a_connectors_tasks_are_fenced_with_its_own_client_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the worker's may not, its ``admin.override.*`` do; variables of config providers are resolved."""
    asked: list[tuple[str, str, list[str]]] = []

    class Admin:
        def __init__(self, settings: KafkaSettings) -> None:
            self.settings = settings

        async def fence_producers(self, ids: Iterable[str]) -> None:
            asked.append((self.settings.bootstrap, self.settings.client_id, list(ids)))

    @asynccontextmanager
    async def opened(settings: KafkaSettings) -> AsyncIterator[Admin]:
        yield Admin(settings)

    def resolution(properties: Properties) -> Resolved:
        return Resolved({key: value.replace("${env:ID}", "resolved") for key, value in properties.items()})

    monkeypatch.setattr(KafkaAdmin, "opened", opened)
    clients = ClientSettings({"admin.client.id": "worker"}, "broker:9092")
    offsets = OffsetTopics(clients.of("consumer"), "offsets", partitions=1, replication=1, emit=discard)
    dedupe = DedupeStore(clients.of("consumer"), "dedupe", discard)
    kafka = ConnectorKafka(clients, offsets, dedupe, None, resolution)
    await kafka.fence_producers({"admin.override.client.id": "${env:ID}"}, ["g-c-0"])
    await kafka.fence_producers({}, ["g-c-1"])
    assert asked == [("broker:9092", "resolved", ["g-c-0"]), ("broker:9092", "worker", ["g-c-1"])]
