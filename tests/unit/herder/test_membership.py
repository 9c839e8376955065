"""A place in the group, where something goes wrong that nobody foresaw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.domain.cluster import ClusterConfig
from service.herder import membership
from service.herder.assignment import AssignmentTracker
from service.herder.membership import GroupMembership, group_settings
from service.kafka.client import KafkaSettings
from tests.unit.herder.world import ME

pytestmark = pytest.mark.looptime


async def test_a_bug_is_told_and_the_place_sought_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends neither the membership nor whoever started it."""
    attempts: list[float] = []

    @asynccontextmanager
    async def opened(*_given: object, **_named: object) -> AsyncIterator[None]:
        attempts.append(asyncio.get_running_loop().time())
        raise RuntimeError("a bug")
        yield

    async def catch_up() -> None:
        """Nothing to read."""

    monkeypatch.setattr(membership, "opened_timed", opened)
    settings = KafkaSettings(bootstrap="127.0.0.1:1")
    place = GroupMembership(ME, settings, group_settings("g"), AssignmentTracker(ClusterConfig()), catch_up=catch_up)
    await place.start()
    await asyncio.sleep(3.5)
    await place.stop()
    assert len(attempts) == 4
    assert place.failure is None
    assert (place.trouble or "").startswith("RuntimeError: a bug (")
