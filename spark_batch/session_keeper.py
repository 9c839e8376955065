"""Keeps one session for all conversions: started when it is wanted, replaced when it is lost, ended at the end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from spark_batch.errors import SparkUnavailable
from spark_batch.recovery import first_words
from spark_batch.session import (
    Begun,
    SessionChange,
    SparkSettings,
    close_remote,
    interrupt_remote,
    jvm_pid,
    kill_jvm,
    kill_starting_jvm,
    release_remote,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

START_SECONDS_MAX = 180.0
"""Generous, for a start that is only slow would be as slow again: a minute and more where workers share few cores."""
START_ENDS_SECONDS_MAX = 10.0
"""For a start to end once its JVM is killed, or its channel closed, which takes a fraction of a second."""
ANSWER_SECONDS_MAX = 10.0
"""For the question whether the JVM is still there, after something unexpected, and for a server's last word."""
CANNOT_START = "Spark cannot be started"
"""How the detail of a change begins that tells so."""
_LOOK_SECONDS = 0.1
Launch: TypeAlias = "Callable[[SparkSettings, Begun], SparkSession]"
"""Makes a session that has shown that it works; blocks for seconds, and raises whatever Spark raises."""


class SessionKeeper:
    """Owns the Spark session of a worker. One event loop; `tell` hears on it of every change as it happens.

    Each loss begins another generation. Who sees a session fail names its generation, so that one loss, seen by all
    conversions that ran, is one restart.
    """

    def __init__(self, settings: SparkSettings, *, launch: Launch, tell: Callable[[SessionChange], None]) -> None:
        self._settings = settings
        self._launch = launch
        self._tell = tell
        self._session: SparkSession | None = None
        self._generation = 0
        self._lock = asyncio.Lock()
        self._starting: asyncio.Future[SparkSession] | None = None
        """The newest start in its thread, which goes on when nobody waits for it any more."""
        self._begun: list[SparkSession] = []
        """That it has made; none or one."""
        self._is_stopping = False

    @property
    def session(self) -> SparkSession | None:
        """The one there is; a lost one counts until a conversion has noticed."""
        return self._session

    @property
    def generation(self) -> int:
        """How many sessions were lost."""
        return self._generation

    @property
    def jvm_pid(self) -> int | None:
        """Process id of the Spark JVM launched here; None for Spark Connect and before the start."""
        return None if self._session is None or self._settings.remote is not None else jvm_pid()

    def present(self) -> SparkSession:
        """The session; raises SparkUnavailable where there is none. For the threads of conversions too."""
        session = self._session
        if session is None:
            message = "Spark is being started anew"
            raise SparkUnavailable(message)
        return session

    async def ready(self) -> None:
        """Start the session if there is none; raises SparkUnavailable where Spark cannot start."""
        async with self._lock:
            if self._session is None:
                await self._start()

    async def restart(self, generation: int, reason: str) -> None:
        """Start anew, once for all who saw the session of that generation fail."""
        async with self._lock:
            if generation != self._generation:
                return
            session, self._session = self._session, None
            self._generation += 1
            self._tell(SessionChange(is_ready=False, detail=reason))
            if self._settings.remote is None:
                await _in_thread(lambda: kill_jvm(session))
            elif session is not None:
                await _leave(session, interrupt_remote)
            await self._start()

    async def stop(self) -> None:
        """End the session, or its start; none is started any more. May be called twice."""
        self._is_stopping = True
        await self._end_start()
        async with self._lock:
            session, self._session = self._session, None
            starting, self._starting = self._starting, None
            if self._settings.remote is not None:
                if session is not None:
                    await _leave(session, release_remote)
            elif starting is not None:
                await _in_thread(lambda: kill_jvm(session))

    async def _start(self) -> None:
        await self._end_start()
        if self._is_stopping:
            message = "Spark is not started any more: the worker stops"
            raise SparkUnavailable(message)
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        self._begun = []
        self._starting = loop.run_in_executor(None, self._launch, self._settings, self._begun.append)
        self._starting.add_done_callback(_seen)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                session = await asyncio.shield(self._starting)
        except Exception as error:
            # Whatever it is: PySpark and py4j have many ways to say that a JVM ended while it started.
            message = f"{CANNOT_START}: {await _told(error)}"
            await self._end_start()
            if self._settings.remote is None:
                await _in_thread(lambda: kill_jvm(None))
            self._tell(SessionChange(is_ready=False, detail=message))
            raise SparkUnavailable(message) from error
        self._session = session
        seconds = loop.time() - started_at
        self._tell(SessionChange(is_ready=True, start_seconds=seconds, is_restart=self._generation > 0))

    async def _end_start(self) -> None:
        """Cut a start short. Its JVM may be about to be launched, so it is looked for until the start has ended."""
        starting = self._starting
        if starting is None:
            return
        end = kill_starting_jvm if self._settings.remote is None else partial(_close_all, self._begun)
        with suppress(TimeoutError):
            async with asyncio.timeout(START_ENDS_SECONDS_MAX):
                while not starting.done():
                    await _in_thread(end)
                    await asyncio.wait([starting], timeout=_LOOK_SECONDS)


async def _told(error: Exception) -> str:
    """While the JVM that it may be of can still be asked."""
    found: list[str] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await _in_thread(lambda: found.append(first_words(error)))
    return found[0] if found else type(error).__name__


async def _in_thread(work: Callable[[], object]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)


async def _leave(session: SparkSession, last_word: Callable[[SparkSession], None]) -> None:
    """Close a session of Spark Connect, so that threads waiting for its server end and give their slots back."""
    for end in (last_word, close_remote):
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await asyncio.get_running_loop().run_in_executor(None, end, session)


def _close_all(sessions: Sequence[SparkSession]) -> None:
    for session in sessions:
        close_remote(session)


def _seen(future: asyncio.Future[SparkSession]) -> None:
    """Its error is taken note of, so that a start that nobody waits for does not make asyncio warn."""
    if not future.cancelled():
        future.exception()
