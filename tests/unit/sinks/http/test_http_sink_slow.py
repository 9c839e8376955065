"""``HttpSink`` and an address that takes its time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from fetchers.sdk import Retriable, SystemClock
from metrics.events import discard
from service.sinks.contract import Form, SinkBatch, SinkContext, ValueType
from service.sinks.http.config import HttpSinkConfig
from service.sinks.http.sink import PUT_SECONDS, HttpSink


@dataclass
class SlowDoor:
    """Answers each request after the seconds that it was given."""

    seconds: list[float]
    bodies: list[bytes] = field(default_factory=list)
    status = 200

    def for_task(self, _asker: Any) -> Any:
        """Itself."""
        return self

    async def request(self, _method: str, _url: str, **options: Any) -> Any:
        """One request; its answer is this object, which has a status."""
        self.bodies.append(options["body"])
        await asyncio.sleep(self.seconds[len(self.bodies) - 1])
        return self


@pytest.mark.looptime
async def test_a_put_ends_before_its_time_is_over_and_knows_what_was_taken() -> None:
    """Else all of its records would be sent again, whenever a rate limit or the address is slow."""
    door = SlowDoor([PUT_SECONDS / 2, PUT_SECONDS, 0, 0])
    config = HttpSinkConfig.parse({"http.api.url": "http://hooks.example.com/"}).config
    assert config is not None
    sink = HttpSink(config)
    await sink.start(SinkContext("hook", 0, SystemClock(), discard, door))
    topics = pa.array(["t"] * 3)
    columns = {
        "topic": topics,
        "original_topic": topics,
        "partition": pa.array([0] * 3, pa.int32()),
        "offset": pa.array(range(3), pa.int64()),
        "key": pa.nulls(3, pa.string()),
        "value": pa.array(["a", "b", "c"]),
    }
    batch = SinkBatch(pa.table(columns), ValueType(Form.TEXT), ValueType(Form.TEXT), lambda *_: None)
    with pytest.raises(Retriable) as told:
        await sink.put(batch)
    assert told.value.rows == [1, 2]
    assert asyncio.get_running_loop().time() <= PUT_SECONDS + 1 < sink.put_limits.seconds_max
    assert door.bodies == [b"a", b"b"]
