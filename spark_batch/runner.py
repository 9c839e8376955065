"""The asynchronous face of Spark: conversions in threads, fair slots, a time limit, and a new session after a loss."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JNetworkError

from spark_batch.compiled import CompiledPlan, compile_plan
from spark_batch.convert import convert_table
from spark_batch.errors import (
    ConversionError,
    ConversionFatal,
    ConversionRetriable,
    SparkUnavailable,
    chain,
    is_disk_full,
)
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, Finding, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.rule_check import rule_findings
from spark_batch.session import (
    SessionChange,
    SparkSettings,
    close_remote,
    interrupt_remote,
    is_jvm_alive,
    is_session_answering,
    is_session_lost,
    jvm_pid,
    kill_jvm,
    kill_starting_jvm,
    start_session,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PLANS_MAX = 64
"""Compiled plans kept; the least recently used one goes first."""
START_SECONDS_MAX = 180.0
"""Generous, for a start that is only slow would be as slow again: a minute and more where workers share few cores."""
START_ENDS_SECONDS_MAX = 10.0
"""For a start to end once its JVM is killed, which takes a fraction of a second."""
ANSWER_SECONDS_MAX = 10.0
"""For the question whether the JVM is still there, after something unexpected, and for a server's last word."""
_LOOK_SECONDS = 0.1
_Result = TypeVar("_Result")
Launch: TypeAlias = "Callable[[SparkSettings], SparkSession]"
"""Makes a session that has shown that it works; blocks for seconds, and raises whatever Spark raises."""


@dataclass
class RunnerStatistics:
    """Counts since the start of the runner."""

    conversions: int = 0
    records: int = 0
    retriable_errors: int = 0
    fatal_errors: int = 0
    restarts: int = 0
    start_seconds: float = 0.0
    """How long the newest session took to start."""
    running: int = 0
    waiting: int = 0


class ConversionRunner:
    """Owns the Spark session of a worker. One event loop; `start` before anything else, `stop` at the end.

    `slots` conversions run at once, waiting callers are served in the order they came. A conversion that takes longer
    than `job_seconds_max` is given up: the session is started anew and every conversion then running gets
    ConversionRetriable. `tell` hears of every change of the session as it happens, on the event loop.
    """

    def __init__(
        self,
        settings: SparkSettings,
        *,
        slots: int = 3,
        job_seconds_max: float = 120.0,
        tell: Callable[[SessionChange], None] = lambda _: None,
        launch: Launch | None = None,
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._launch = warm_session if launch is None else launch
        self._slots = asyncio.Semaphore(slots)
        self._job_seconds_max = job_seconds_max
        self._threads = ThreadPoolExecutor(max_workers=slots + 1, thread_name_prefix="conversion")
        self._session: SparkSession | None = None
        self._generation = 0
        self._restart_lock = asyncio.Lock()
        self._starting: asyncio.Future[SparkSession] | None = None
        """The newest start in its thread, which goes on when nobody waits for it any more."""
        self._is_stopping = False
        self._compiled: OrderedDict[tuple[int, ConversionPlan], CompiledPlan] = OrderedDict()
        self.statistics = RunnerStatistics()

    @property
    def jvm_pid(self) -> int | None:
        """Process id of the Spark JVM launched here; None for Spark Connect and before the start."""
        return None if self._session is None or self._settings.remote is not None else jvm_pid()

    @property
    def is_started(self) -> bool:
        """Whether there is a session; a lost one counts until a conversion has noticed."""
        return self._session is not None

    async def start(self) -> None:
        """Start the session and warm it up with a tiny job; raises ConversionRetriable where Spark cannot start."""
        async with self._restart_lock:
            if self._session is None:
                await self._start_session()

    async def check(self, plan: ConversionPlan) -> list[Finding]:
        """Findings of the plan that only Spark can tell (rules), after those of `plan_findings`."""
        findings = plan_findings(plan)
        if findings or plan.contract is None or not plan.contract.rules:
            return findings
        return await self._in_slot(lambda: self._check(plan))

    async def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome (OUTCOME_SCHEMA) of a micro-batch (INPUT_SCHEMA).

        Raises ConversionRetriable (Spark lost, or too slow) and ConversionFatal (a wrong plan), never for a bad record.
        Cancelling leaves the job to end by itself, its slot taken until then.
        """
        if batch.schema.names != INPUT_SCHEMA.names:
            message = f"expected the columns {INPUT_SCHEMA.names}"
            raise ConversionFatal(message)
        outcome = await self._in_slot(lambda: self._convert(plan, batch))
        self.statistics.conversions += 1
        self.statistics.records += batch.num_rows
        return outcome

    async def stop(self) -> None:
        """End the session, or its start; conversions still running fail. May be called twice."""
        self._is_stopping = True
        await self._end_start()
        async with self._restart_lock:
            session, self._session = self._session, None
            starting, self._starting = self._starting, None
            if self._settings.remote is not None:
                if session is not None:
                    await self._outside(session.stop)
            elif starting is not None:
                await asyncio.get_running_loop().run_in_executor(None, kill_jvm, session)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_slot(self, work: Callable[[], _Result]) -> _Result:
        """Run blocking work on a session, in a slot that stays taken until the work has really ended."""
        self.statistics.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.statistics.waiting -= 1
        try:
            await self.start()
            generation = self._generation
            future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            # Also when cancelled: nothing was handed to a thread, so nobody else gives the slot back.
            self._slots.release()
            raise
        self.statistics.running += 1
        future.add_done_callback(self._end_of_work)
        return await self._watched(future, generation)

    def _end_of_work(self, future: asyncio.Future[_Result]) -> None:
        self.statistics.running -= 1
        self._slots.release()
        _seen(future)

    async def _watched(self, future: asyncio.Future[_Result], generation: int) -> _Result:
        try:
            return await self._believed(future, generation)
        except ConversionRetriable:
            self.statistics.retriable_errors += 1
            raise
        except ConversionError:
            self.statistics.fatal_errors += 1
            raise

    async def _believed(self, future: asyncio.Future[_Result], generation: int) -> _Result:
        """What the work gives in time, on a session that is still there at its end; or its error, by recovery."""
        try:
            async with asyncio.timeout(self._job_seconds_max):
                result = await asyncio.shield(future)
        except TimeoutError:
            slow = f"a conversion took longer than {self._job_seconds_max} s"
            await self._restart(generation, slow)
            message = f"{slow}; Spark was started anew"
            raise ConversionRetriable(message) from None
        except ConversionError:
            raise
        except Exception as error:
            # PySpark and py4j have many ways to say that a JVM is gone.
            raise await self._judged(error, generation) from error
        if generation != self._generation:
            message = "Spark was lost during the conversion: what a session says while it is taken away is not believed"
            raise ConversionRetriable(message)
        return result

    async def _judged(self, error: Exception, generation: int) -> ConversionError:
        """An error by recovery; what neither the disk nor the session is to blame for is fatal, with its cause."""
        if is_disk_full(error):
            return SparkUnavailable(f"a disk that Spark works on is full: {_first_line(error)}")
        if not _is_of_lost_jvm(error) and await self._is_working(generation, error):
            return ConversionFatal(f"the conversion failed: {_first_line(error)}")
        await self._restart(generation, f"lost during a conversion: {_first_line(error)}")
        return ConversionRetriable("Spark was lost during the conversion; it was started anew")

    async def _is_working(self, generation: int, error: Exception) -> bool:
        """Whether the session of that generation still is one; a JVM that is being killed counts as running a while."""
        session = self._session
        if generation != self._generation or session is None:
            return False
        if self._settings.remote is None and not is_jvm_alive():
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                is_lost = await asyncio.get_running_loop().run_in_executor(None, is_session_lost, session, error)
        except TimeoutError:
            return False
        return not is_lost and generation == self._generation

    async def _restart(self, generation: int, reason: str) -> None:
        """Start anew, once for all who saw the session of that generation fail."""
        async with self._restart_lock:
            if generation != self._generation:
                return
            session, self._session = self._session, None
            self._generation += 1
            self._compiled.clear()
            self.statistics.restarts += 1
            self._tell(SessionChange(is_ready=False, detail=reason))
            if self._settings.remote is None:
                await asyncio.get_running_loop().run_in_executor(None, kill_jvm, session)
            elif session is not None:
                await _abandon(session)
            await self._start_session()

    async def _start_session(self) -> None:
        await self._end_start()
        if self._is_stopping:
            message = "Spark is not started any more: the worker stops"
            raise SparkUnavailable(message)
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        self._starting = loop.run_in_executor(None, self._launch, self._settings)
        self._starting.add_done_callback(_seen)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                session = await asyncio.shield(self._starting)
        except Exception as error:
            # Whatever it is: PySpark and py4j have many ways to say that a JVM ended while it started.
            await self._end_start()
            if self._settings.remote is None:
                await loop.run_in_executor(None, kill_jvm, None)
            message = f"Spark cannot be started: {_first_line(error)}"
            self._tell(SessionChange(is_ready=False, detail=message))
            raise SparkUnavailable(message) from error
        self._session = session
        seconds = self.statistics.start_seconds = loop.time() - started_at
        self._tell(SessionChange(is_ready=True, start_seconds=seconds, is_restart=self._generation > 0))

    async def _end_start(self) -> None:
        """Cut a start short. Its JVM may be about to be launched, so it is looked for until the start has ended."""
        starting = self._starting
        if starting is None or self._settings.remote is not None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(START_ENDS_SECONDS_MAX):
                while not starting.done():
                    await asyncio.get_running_loop().run_in_executor(None, kill_starting_jvm)
                    await asyncio.wait([starting], timeout=_LOOK_SECONDS)

    def _convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        return convert_table(self._present_session(), self._compiled_for(plan), batch)

    def _check(self, plan: ConversionPlan) -> list[Finding]:
        session = self._present_session()
        findings = rule_findings(session, plan)
        if findings and not is_session_answering(session):
            message = "the session was lost while it was asked for rules"
            raise ConnectionResetError(message)
        return findings

    def _present_session(self) -> SparkSession:
        session = self._session
        if session is None:
            message = "Spark is being started anew"
            raise SparkUnavailable(message)
        return session

    def _compiled_for(self, plan: ConversionPlan) -> CompiledPlan:
        slot = (self._generation, plan)
        compiled = self._compiled.get(slot)
        if compiled is None:
            try:
                compiled = compile_plan(plan)
            except ValueError as error:
                raise ConversionFatal(str(error)) from error
            self._compiled[slot] = compiled
            while len(self._compiled) > PLANS_MAX:
                self._compiled.popitem(last=False)
        return compiled

    async def _outside(self, work: Callable[[], object]) -> None:
        async with asyncio.timeout(START_SECONDS_MAX):
            await asyncio.get_running_loop().run_in_executor(None, work)


def warm_session(settings: SparkSettings) -> SparkSession:
    """Warm from a tiny job."""
    session = start_session(settings)
    plan = ConversionPlan(
        PayloadFormat.JSON,
        value_converter=ConverterSpec(ConverterKind.JSON),
        dedupe_fields=("warm",),
    )
    batch = pa.table({"key": [None], "value": [b"{}"], "timestamp": [None]}, schema=INPUT_SCHEMA)
    convert_table(session, compile_plan(plan), batch)
    return session


async def _abandon(session: SparkSession) -> None:
    """Leave a session of Spark Connect, so that threads waiting for its server end and give their slots back."""
    for end in (interrupt_remote, close_remote):
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await asyncio.get_running_loop().run_in_executor(None, end, session)


def _seen(future: asyncio.Future[_Result]) -> None:
    """Its error is taken note of, so that a caller that has left does not make asyncio warn."""
    if not future.cancelled():
        future.exception()


def _is_of_lost_jvm(error: BaseException) -> bool:
    """Whether a connection broke."""
    return any(isinstance(seen, (Py4JNetworkError, OSError, EOFError)) for seen in chain(error))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
