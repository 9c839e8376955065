"""Whether brokers can be reached, against real sockets."""

from __future__ import annotations

import asyncio

from fetchers.sdk import SystemClock
from metrics.events import ComponentStateChanged, Event
from service.embedded.ports import free_ports
from service.kafka.reach import trouble_reaching
from service.surroundings import watch_brokers


def closed_port() -> int:
    """A port of the loopback that nobody listens on, and that no connection of other tests is given meanwhile."""
    return free_ports(1)[0]


async def listen(port: int = 0) -> asyncio.Server:
    """Take connections, and nothing else."""
    return await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)


async def test_one_of_several_is_enough() -> None:
    """A cluster is there when one of its bootstrap servers is; otherwise each of them is told, with its reason."""
    closed = f"127.0.0.1:{closed_port()}"
    async with await listen() as server:
        there = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await trouble_reaching(f"{closed}, {there}") is None
    trouble = await trouble_reaching(f"{closed},127.0.0.1:x,127.0.0.1:99999")
    assert trouble is not None
    assert closed in trouble
    assert "127.0.0.1:x cannot be reached" in trouble
    assert "127.0.0.1:99999 cannot be reached" in trouble


async def test_only_changes_are_told() -> None:
    """Away, still away, back: two events."""
    port, events = closed_port(), list[Event]()
    looks: asyncio.Queue[None] = asyncio.Queue()

    class OneLookAtATime(SystemClock):
        async def sleep(self, seconds: float) -> None:
            assert seconds > 0
            looks.task_done()
            await looks.get()

    looks.put_nowait(None)
    await looks.get()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        watching = group.create_task(watch_brokers(f"127.0.0.1:{port}", clock=OneLookAtATime(), emit=events.append))
        await looks.join()
        looks.put_nowait(None)
        await looks.join()
        async with await listen(port):
            looks.put_nowait(None)
            await looks.join()
        watching.cancel()
    assert [(event.component, event.is_ready) for event in events if isinstance(event, ComponentStateChanged)] == [
        ("kafka", False),
        ("kafka", True),
    ]
