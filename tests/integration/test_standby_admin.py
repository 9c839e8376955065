"""The administrator that stays connected between the starts of tasks."""

from __future__ import annotations

import pytest

from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryRetriable
from service.kafka.sharing import StandbyAdmin
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


async def test_a_connection_is_kept_and_replaced_once_it_has_died(kafka: KafkaStack) -> None:
    """Two uses share one; one that fails with it is tried again with another; a new one's failure is the caller's."""
    standby = StandbyAdmin(KafkaSettings(bootstrap=kafka.bootstrap))
    used: list[KafkaAdmin] = []
    failing: set[int] = set()

    async def ask(admin: KafkaAdmin) -> KafkaAdmin:
        used.append(admin)
        if len(used) in failing:
            raise DeliveryRetriable("the broker has gone")
        await admin.brokers()
        return admin

    assert [await standby.use(ask), await standby.use(ask)] == used
    failing |= {3, 5, 6}
    assert await standby.use(ask) is used[-1]
    with pytest.raises(DeliveryRetriable):
        await standby.use(ask)
    assert await standby.use(ask) is used[-1]
    numbers = {admin: number for number, admin in enumerate(dict.fromkeys(used))}
    assert [numbers[admin] for admin in used] == [0, 0, 0, 1, 1, 2, 3]
    await standby.stop()
    await standby.stop()
