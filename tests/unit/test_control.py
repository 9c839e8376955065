"""What the control plane asks of Kafka on behalf of a connector."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from service.control import ControlPlane
from service.domain.cluster import Properties
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
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

    def resolve(properties: Properties) -> Properties:
        return {key: value.replace("${env:ID}", "resolved") for key, value in properties.items()}

    monkeypatch.setattr(KafkaAdmin, "opened", opened)
    control = object.__new__(ControlPlane)
    object.__setattr__(control, "clients", ClientSettings({"admin.client.id": "worker"}, "broker:9092"))
    object.__setattr__(control, "resolve", resolve)
    await control._fence_producers({"admin.override.client.id": "${env:ID}"}, ["g-c-0"])
    await control._fence_producers({}, ["g-c-1"])
    assert asked == [("broker:9092", "resolved", ["g-c-0"]), ("broker:9092", "worker", ["g-c-1"])]
