"""Tells when Kafka goes away and when it is back: tasks wait out short outages without failing."""

from __future__ import annotations

from fetchers.sdk import Clock
from metrics.events import ComponentStateChanged, Emit
from service.kafka.reach import trouble_reaching

LOOK_SECONDS = 2.0


async def watch_brokers(bootstrap: str, *, clock: Clock, emit: Emit) -> None:
    """Look every ``LOOK_SECONDS`` for ever; tell what has changed."""
    was_ready: bool | None = None
    while True:
        trouble = await trouble_reaching(bootstrap)
        is_ready = trouble is None
        if is_ready is not was_ready:
            emit(ComponentStateChanged(component="kafka", is_ready=is_ready, detail=trouble or bootstrap))
            was_ready = is_ready
        await clock.sleep(LOOK_SECONDS)
