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
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from fetchers.sdk.ahead import Ahead
from fetchers.sdk.context import FetchContext
from fetchers.sdk.errors import Disconnected, Fatal, Retriable
from fetchers.sdk.inbox import Inbox, InboxLimits
from fetchers.sdk.page import Page
from fetchers.sdk.retry import Failures, Reconnect
from metrics.events import ReconnectCeilingReached

Receive = Callable[[Inbox], Awaitable[None]]
"""Connects from ``inbox.offset`` on, calls ``inbox.connected``, puts what comes, and returns when the source ends it.

It is cancelled when the task stops, and lets go of its connection in ``finally``. Raises ``Disconnected`` or another
``Retriable`` to be called again, ``SourceEnded`` when nothing will ever come, and ``Fatal``. An OSError that names no
file (a refused or broken connection, no route, no such host, a time-out, TLS) and an IncompleteReadError count as
``Disconnected``; a certificate that is not trusted counts as ``Fatal``.
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
    try:
        with suppress(SourceEnded):
            while True:
                error, was_healthy = await _receive_once(receive, inbox, silence_seconds)
                if was_healthy:
                    failures.forget()
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


async def _receive_once(receive: Receive, inbox: Inbox, silence_seconds: float | None) -> tuple[Retriable, bool]:
    """Listen as long as one connection lasts; gives what ended it, and whether it was a healthy one."""
    watch = asyncio.timeout(silence_seconds)
    inbox.health.begin(watch, silence_seconds)
    ended: Retriable = Disconnected("the source ended the connection")
    try:
        async with watch:
            await receive(inbox)
            # The source has ended it, so that it was there until now.
            inbox.heard()
    except Retriable as error:
        ended = error
    except ssl.SSLCertVerificationError as error:
        message = f"the certificate of the source is not trusted ({error.strerror or type(error).__name__})"
        raise Fatal(message) from error
    except (OSError, asyncio.IncompleteReadError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        ended = Disconnected(_words(error, silence_seconds if watch.expired() else None))
        ended.__cause__ = error
    finally:
        was_healthy = inbox.health.end()
    return ended, was_healthy


def _words(error: OSError | asyncio.IncompleteReadError, silence_seconds: float | None) -> str:
    """Say it without the library's text; ``silence_seconds``: what the source was silent for, if that is the reason."""
    if isinstance(error, TimeoutError):
        return "no answer in time" if silence_seconds is None else f"the source said nothing for {silence_seconds:g} s"
    if isinstance(error, OSError):
        return f"the connection was refused or broke ({error.strerror or type(error).__name__})"
    return "the connection broke in the middle of a message"
