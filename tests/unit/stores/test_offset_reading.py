"""What the offset store knows while it reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from service.kafka.client import KafkaSettings
from service.kafka.log import CompactedLog
from service.stores.offsets import OffsetStore

JAVAS = b'["c",{"b":1,"a":2}]'
PARTITION = {"a": 2, "b": 1}


class Log:
    """A topic with one offset that Connect wrote; from the second reading on a step waits for `goes_on`."""

    is_at_beginning = True

    def __init__(self) -> None:
        """Nothing is read yet."""
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.error: Exception | None = None

    async def read_to_end(self) -> AsyncIterator[list[Any]]:
        """As CompactedLog's."""
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        yield [SimpleNamespace(key=JAVAS, value=b'{"p":10}', timestamp=3_600_000, offset=0)]


async def test_a_commit_during_a_reading_from_the_beginning_keeps_the_key_that_is_there() -> None:
    """Under another key the older offset would win after a take-over: its host's clock may be ahead."""
    store, log = OffsetStore(KafkaSettings(bootstrap="nowhere:1"), "offsets"), Log()
    store._log = cast("CompactedLog", cast("Any", log))
    await store.read("c")
    log.goes_on.clear()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(store.read("c"))
        await asyncio.sleep(0)
        assert store.encode("c", [(PARTITION, {"p": 20})]).keys == pa.array([JAVAS], pa.binary())
        log.goes_on.set()
    assert reading.result() == {'{"a":2,"b":1}': {"p": 10}}


async def test_a_reading_that_fails_leaves_what_was_known() -> None:
    """The next one begins at the beginning; until it is whole commits need the keys."""
    store, log = OffsetStore(KafkaSettings(bootstrap="nowhere:1"), "offsets"), Log()
    store._log = cast("CompactedLog", cast("Any", log))
    await store.read("c")
    log.error = OSError("the broker has gone")
    with pytest.raises(OSError, match="gone"):
        await store.read("c")
    assert store.encode("c", [(PARTITION, None)]).keys == pa.array([JAVAS], pa.binary())
