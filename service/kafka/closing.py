"""Ends the client library's clients within a time limit, whatever state their broker left them in.

The library's `stop()` first waits until every batch is delivered; an idempotent producer never gives
a batch up, so without its broker it would wait for ever. What it leaves behind is ended here by force.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from service.kafka import library
from service.kafka.errors import CLIENT_ERRORS

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient


async def close_producer(producer: AIOKafkaProducer, *, seconds_max: float) -> None:
    """Close politely within the limit, else by force; never raises a Kafka error, never waits longer.

    By force means: nothing further is sent, so an open transaction stays open until a newer
    producer with its id, or its time limit, ends it. Committing is impossible from there.
    """
    try:
        async with asyncio.timeout(seconds_max):
            await producer.stop()
    except CLIENT_ERRORS:
        await library.end_producer(producer)
    except asyncio.CancelledError:
        await library.end_producer(producer)
        raise
    finally:
        library.look_at_outcomes(producer)


async def close_consumer(consumer: AIOKafkaConsumer, *, seconds_max: float) -> None:
    """Leave and disconnect politely within the limit, else disconnect by force; never raises a Kafka error.

    The library cancels fetches that are under way and awaits them: their cancellation comes out of its `stop()` as if
    it were the caller's, and cuts the rest of it off. It is told from the caller's own here, and the rest is done.
    """
    try:
        async with asyncio.timeout(seconds_max):
            await consumer.stop()
    except CLIENT_ERRORS:
        await library.end_consumer(consumer)
    except asyncio.CancelledError:
        await library.end_consumer(consumer)
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise


async def close_admin(client: AIOKafkaAdminClient, *, seconds_max: float) -> None:
    """Disconnect politely within the limit, else by force; never raises a Kafka error."""
    try:
        async with asyncio.timeout(seconds_max):
            await client.close()
    except CLIENT_ERRORS:
        await library.end_admin(client)
