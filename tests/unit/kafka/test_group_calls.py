"""Opening connections to the group's coordinator."""

from __future__ import annotations

import pytest
from aiokafka.client import AIOKafkaClient

from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryRetriable
from service.kafka.group_calls import GroupCalls, GroupSettings


async def test_a_cluster_that_names_no_broker_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just been started serves before it counts itself; the client library asserts one."""

    async def bootstrap(_client: AIOKafkaClient) -> None:
        """Answered, without a broker."""

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", bootstrap)
    group = GroupSettings(group_id="g", protocol_type="connect", protocol="p")
    with pytest.raises(DeliveryRetriable, match=r"AssertionError.*looking for the coordinator"):
        async with GroupCalls.opened(KafkaSettings(bootstrap="127.0.0.1:1"), group):
            pytest.fail("there is nobody to ask")
