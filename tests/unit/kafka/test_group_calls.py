"""Opening connections to the group's coordinator."""

from __future__ import annotations

import pytest
from aiokafka.client import AIOKafkaClient

from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryRetriable
from service.kafka.group_calls import GroupCalls, GroupSettings


@pytest.mark.looptime
async def test_a_cluster_that_names_no_broker_is_given_up_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just been started serves before it counts itself; one that never does is none."""

    async def bootstrap(_client: AIOKafkaClient) -> None:
        """Answered, without a broker."""

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", bootstrap)
    group = GroupSettings(group_id="g", protocol_type="connect", protocol="p")
    with pytest.raises(DeliveryRetriable, match=r"TimeoutError.*looking for the coordinator"):
        async with GroupCalls.opened(KafkaSettings(bootstrap="127.0.0.1:1"), group):
            pytest.fail("there is nobody to ask")
