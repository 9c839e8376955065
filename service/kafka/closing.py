"""Ends the client library's clients within a time limit, whatever state their broker left them in.

The library's `stop()` first waits until every batch is delivered; an idempotent producer never gives
a batch up, so without its broker it would wait for ever. What it leaves behind is ended here by hand.
This is one of the two places that reach into the library (0.14.0, pinned); `tests/unit/kafka` checks that
what they reach for is there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from service.kafka.errors import CLIENT_ERRORS

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.client import AIOKafkaClient

_FORCED_SECONDS_MAX = 2.0
_CANCELLATIONS_MAX = 5


async def close_producer(producer: AIOKafkaProducer, *, seconds_max: float) -> None:
    """Close politely within the limit, else by force; never raises a Kafka error, never waits longer.

    By force means: nothing further is sent, so an open transaction stays open until a newer
    producer with its id, or its time limit, ends it. Committing is impossible from there.
    """
    try:
        async with asyncio.timeout(seconds_max):
            await producer.stop()
    except CLIENT_ERRORS:
        await _end_producer(producer)
    except asyncio.CancelledError:
        await _end_producer(producer)
        raise
    finally:
        _look_at(producer._txn_manager.wait_for_transaction_end())  # noqa: SLF001
        for batches in producer._message_accumulator._batches.values():  # noqa: SLF001
            for batch in batches:
                _look_at(batch._drain_waiter)  # noqa: SLF001


async def close_consumer(consumer: AIOKafkaConsumer, *, seconds_max: float) -> None:
    """Leave and disconnect politely within the limit, else disconnect by force; never raises a Kafka error.

    The library cancels fetches that are under way and awaits them: their cancellation comes out of its `stop()` as if
    it were the caller's, and cuts the rest of it off. It is told from the caller's own here, and the rest is done.
    """
    try:
        async with asyncio.timeout(seconds_max):
            await consumer.stop()
    except CLIENT_ERRORS:
        await _end_consumer(consumer)
    except asyncio.CancelledError:
        await _end_consumer(consumer)
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise


async def close_admin(client: AIOKafkaAdminClient, *, seconds_max: float) -> None:
    """Disconnect politely within the limit, else by force; never raises a Kafka error."""
    try:
        async with asyncio.timeout(seconds_max):
            await client.close()
    except CLIENT_ERRORS:
        await _end_by_force(client._client, ())  # noqa: SLF001 - no public way


async def _end_producer(producer: AIOKafkaProducer) -> None:
    # Marks the producer closed for its destructor too, which otherwise warns.
    producer._closed = True  # noqa: SLF001 - no public way
    await _end_by_force(producer.client, (producer._sender, producer._message_accumulator))  # noqa: SLF001


async def _end_consumer(consumer: AIOKafkaConsumer) -> None:
    await _end_by_force(consumer._client, (consumer._coordinator, consumer._fetcher))  # noqa: SLF001 - no public way


async def _end_by_force(client: AIOKafkaClient, parts: tuple[object, ...]) -> None:
    """Cancel what runs for the client and these parts of its user, and close its connections."""
    # A consumer that was never connected lacks parts, as tasks of plain functions lack an owner.
    owned = tuple(owner for owner in (client, *parts) if owner is not None)
    for _ in range(_CANCELLATIONS_MAX):
        tasks = {task for task in asyncio.all_tasks() if _runs_for(task, owned)}
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_FORCED_SECONDS_MAX / _CANCELLATIONS_MAX)
        for task in tasks:
            _look_at(task)
    for connection in list(client._conns.values()):  # noqa: SLF001 - no public way
        connection.close()


def _look_at(future: asyncio.Future[object] | None) -> None:
    """Take note of an outcome that nobody waits for, so that asyncio does not report it as lost."""
    if future is not None and future.done() and not future.cancelled():
        future.exception()


def _runs_for(task: asyncio.Task[object], owners: tuple[object, ...]) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and any(frame.f_locals.get("self") is owner for owner in owners)
