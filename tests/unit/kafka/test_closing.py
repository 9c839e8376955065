"""Ends by force take what belongs to the client that is closed, and nothing else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from aiokafka import AIOKafkaConsumer

from service.kafka.closing import close_consumer


async def waiting(until: asyncio.Event) -> None:
    """Somebody else's task."""
    await until.wait()


async def test_a_consumer_without_parts_takes_nobody_along() -> None:
    """One that never got as far as having a coordinator and a fetcher has no tasks; those of others go on."""

    async def stop() -> None:
        raise ConnectionResetError

    parts: Any = SimpleNamespace(stop=stop, _client=SimpleNamespace(_conns={}), _coordinator=None, _fetcher=None)
    until = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        other = group.create_task(waiting(until))
        await asyncio.sleep(0)
        await close_consumer(cast("AIOKafkaConsumer", parts), seconds_max=1)
        assert not other.cancelling()
        until.set()
