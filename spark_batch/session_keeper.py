"""Keeps one session for all conversions: started when it is wanted, replaced when it is lost, ended at the end."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
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
    jvm_pid,
    kill_jvm,
    kill_starting_jvm,
    release_remote,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

START_SECONDS_MAX = 180.0
"""Generous, for a start that is only slow would be as slow again: a minute and more where workers share few cores."""
START_ENDS_SECONDS_MAX = 10.0
"""For a start to end once its JVM is killed, or its channel closed, which takes a fraction of a second."""
ANSWER_SECONDS_MAX = 10.0
"""For the question whether the JVM is still there, after something unexpected, and for a server's last word."""
STOP_SECONDS_MAX = 15.0
"""For a whole stop with Spark Connect: a start to end, a lost session to be left, and the last one. Enough for a last
word; what is begun by then ends by itself."""
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
        self._starting: _Start | None = None
        """The newest, which goes on when nobody waits for it any more."""
        self._ends = ThreadPoolExecutor(1, "spark-end")
        """For what ends calls, so that it does not wait behind those that it ends in the loop's own few threads."""
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
                await self._end(kill_jvm, session)
            elif session is not None:
                await self._leave(session)
            await self._start()

    async def stop(self) -> None:
        """End the session, or its start; none is started any more. May be called twice."""
        self._is_stopping = True
        if self._settings.remote is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS_MAX):
                    await self._stop_remote()
            return
        await self._end_start()
        async with self._lock:
            session, self._session = self._session, None
            starting, self._starting = self._starting, None
            if starting is not None:
                await self._end(kill_jvm, session)

    async def _stop_remote(self) -> None:
        """Cut short, it has begun to close whatever session there is: who waits for the lock has none to leave."""
        await self._end_start()
        async with self._lock:
            session, self._session, self._starting = self._session, None, None
            if session is not None:
                await self._leave(session)

    async def _start(self) -> None:
        await self._end_start()
        if self._is_stopping:
            message = "Spark is not started any more: the worker stops"
            raise SparkUnavailable(message)
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        starting = self._starting = _Start(self._settings, self._launch)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                session = await asyncio.shield(starting.future)
        except Exception as error:
            # Whatever it is: PySpark and py4j have many ways to say that a JVM ended while it started.
            message = f"{CANNOT_START}: {await _told(error)}"
            await self._end_start()
            if self._settings.remote is None:
                await self._end(kill_jvm, None)
            self._tell(SessionChange(is_ready=False, detail=message))
            raise SparkUnavailable(message) from error
        self._session = session
        starting.begun.clear()
        seconds = loop.time() - started_at
        self._tell(SessionChange(is_ready=True, start_seconds=seconds, is_restart=self._generation > 0))

    async def _end_start(self) -> None:
        """Cut a start short, and close what it has begun and nobody has taken."""
        starting = self._starting
        if starting is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(START_ENDS_SECONDS_MAX):
                # Its JVM may be about to be launched, so it is looked for until the start has ended.
                while not starting.future.done():
                    await self._end(starting.cut)
                    await asyncio.wait([starting.future], timeout=_LOOK_SECONDS)
        if self._settings.remote is not None:
            for session in starting.begun:
                await self._leave(session)

    async def _leave(self, session: SparkSession) -> None:
        """Close a session of Spark Connect, so that threads waiting for its server end and give their slots back."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await _in_thread(partial(release_remote, session))
        finally:  # also where a conversion is cancelled that has seen it lost
            closing = self._end(close_remote, session)
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await closing

    def _end(self, work: Callable[..., object], *of: object) -> asyncio.Future[object]:
        """Begun at once, whoever waits for it."""
        return asyncio.shield(asyncio.get_running_loop().run_in_executor(self._ends, work, *of))


class _Start:
    """One start of a session, in a thread; for the event loop, but for what says otherwise."""

    def __init__(self, settings: SparkSettings, launch: Launch) -> None:
        self._settings = settings
        self._launch = launch
        self._is_cut = False
        self.begun: list[SparkSession] = []
        """That it has made; none or one."""
        self.future = asyncio.get_running_loop().run_in_executor(None, self._run)
        self.future.add_done_callback(_seen)

    def cut(self) -> None:
        """Have it end soon, also one that has no thread yet; in any thread."""
        self._is_cut = True
        if self._settings.remote is None:
            kill_starting_jvm()
        for session in self.begun:
            self._close(session)

    def _run(self) -> SparkSession:
        if self._is_cut:
            message = "nobody waits for Spark any more"
            raise SparkUnavailable(message)
        return self._launch(self._settings, self._take)

    def _take(self, session: SparkSession) -> None:
        self.begun.append(session)
        if self._is_cut:  # meanwhile, and nobody may look any more
            self._close(session)

    def _close(self, session: SparkSession) -> None:
        if self._settings.remote is not None:
            close_remote(session)


async def _told(error: Exception) -> str:
    """While the JVM that it may be of can still be asked."""
    found: list[str] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await _in_thread(lambda: found.append(first_words(error)))
    return found[0] if found else type(error).__name__


async def _in_thread(work: Callable[[], object]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)


def _seen(future: asyncio.Future[SparkSession]) -> None:
    """Its error is taken note of, so that a start that nobody waits for does not make asyncio warn."""
    if not future.cancelled():
        future.exception()
