"""Listeners: fetchers of sources that talk by themselves.

An author writes one coroutine that connects, says so, and puts what comes into the inbox; ``listen`` makes a fetcher
of it: it hands over pages, connects again when the connection ends, and says when that has become rare::

    class Meters(SourceConnector[MetersConfig]):
        def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
            return listen(context, self._receive)

        async def _receive(self, inbox: Inbox) -> None: ...

Idleness (``--until-idle``): a connection that is accepted is a finished round, so a listener is idle when it is
connected and no message has come for so long; keep-alives are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from fetchers.sdk.ahead import Ahead
from fetchers.sdk.context import FetchContext
from fetchers.sdk.errors import Disconnected, Retriable
from fetchers.sdk.inbox import Inbox, InboxLimits
from fetchers.sdk.page import Page
from fetchers.sdk.retry import Failures, Reconnect
from metrics.events import ReconnectCeilingReached

Receive = Callable[[Inbox], Awaitable[None]]
"""Connects from ``inbox.offset`` on, calls ``inbox.connected``, puts what comes, and returns when the source ends it.

It is cancelled when the task stops, and lets go of its connection in ``finally``. Raises ``Disconnected``, another
``Retriable`` or a ConnectionError to be called again, ``SourceEnded`` when nothing will ever come, and ``Fatal``.
"""


class SourceEnded(Exception):
    """The source says that it has no more and need not be asked again."""


async def listen(
    context: FetchContext,
    receive: Receive,
    *,
    reconnect: Reconnect | None = None,
    silence_seconds: float | None = None,
    limits: InboxLimits | None = None,
) -> AsyncGenerator[Page]:
    """Pages of everything that ``receive`` puts into its inbox, until the source has ended.

    ``reconnect``: when to connect again. ``silence_seconds``: a connection on which nothing at all comes for so long is
    dead, whether it was accepted or not; the time in which the inbox is full does not count. What ``receive`` raises
    that is not retriable is raised once everything that came before it is handed over.
    """
    inbox = context.inbox(limits)
    try:
        async with Ahead[None]() as receiving:
            failures = Failures(reconnect or Reconnect())
            work = _receive_for_ever(context, receive, inbox, failures, silence_seconds=silence_seconds)
            receiving.start(work, name=f"{context.connector}-{context.task} receive")
            while (page := await inbox.take()) is not None:
                yield page
            await receiving.take()
    finally:
        inbox.abandon()


async def _receive_for_ever(
    context: FetchContext, receive: Receive, inbox: Inbox, failures: Failures, *, silence_seconds: float | None
) -> None:
    inbox.health.on_message = failures.forget
    try:
        with suppress(SourceEnded):
            while True:
                error = await _receive_once(receive, inbox, silence_seconds)
                wait_seconds, is_new_ceiling = failures.note(error)
                if is_new_ceiling:
                    context.emit(
                        ReconnectCeilingReached(
                            context.connector,
                            context.task,
                            attempt=failures.total,
                            wait_seconds=wait_seconds,
                            message=str(error),
                        )
                    )
                await context.wait_to_retry(error, attempt=failures.total, wait_seconds=wait_seconds)
    finally:
        inbox.close()


async def _receive_once(receive: Receive, inbox: Inbox, silence_seconds: float | None) -> Retriable:
    """Listen as long as one connection lasts; gives what ended it."""
    health = inbox.health
    health.connected_at, health.silence_seconds = None, silence_seconds
    watch = asyncio.timeout(silence_seconds)
    try:
        async with watch:
            health.watch = watch
            await receive(inbox)
    except TimeoutError as error:
        if not watch.expired():
            raise
        silence = Disconnected(f"the source said nothing for {silence_seconds:g} s")
        silence.__cause__ = error
        return silence
    except Retriable as error:
        return error
    except ConnectionError as error:
        lost = Disconnected(f"the connection was refused or broke ({error.strerror or type(error).__name__})")
        lost.__cause__ = error
        return lost
    finally:
        health.watch = None
    return Disconnected("the source ended the connection")
