"""The broker dies under a running sink: the task waits it out, and every record stands in the file once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.sinks.sink_runs import Sinks, lines_of, produce, sink_properties, wait_until
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]


async def knocked_at(port: int, *, times: int = 3) -> None:
    """Return when somebody has asked for the broker that is gone, again and again, and was turned away."""
    is_enough, knocks = asyncio.Event(), 0

    def turn_away(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1
        writer.transport.abort()
        if knocks >= times:
            is_enough.set()

    async with await asyncio.start_server(turn_away, "127.0.0.1", port):
        await is_enough.wait()


@pytest.mark.timeout(600)
async def test_a_sink_outlives_its_broker(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Commits fail meanwhile and are made up for; the task neither fails nor repeats a line."""
    file = tmp_path / "out.txt"
    values: list[bytes | None] = [b"%d" % number for number in range(3_000)]
    properties = sink_properties(topic_name, topic_name, file, consumer__override__max__poll__records="200")
    sinks = Sinks(kafka.bootstrap, properties, flush_seconds=0.2)
    await produce(kafka.bootstrap, topic_name, values[:1_500])
    async with sinks.running():
        await wait_until(lambda: len(lines_of(file)) >= 400)
        await asyncio.to_thread(kafka.kill)
        await knocked_at(int(kafka.bootstrap.rpartition(":")[2]))
        await asyncio.to_thread(kafka.restart)
        await produce(kafka.bootstrap, topic_name, values[1_500:])
        await wait_until(lambda: len(lines_of(file)) >= len(values), seconds_max=300)
    assert lines_of(file) == values
