"""The asynchronous face of Spark: conversions in threads, fair slots, a time limit, and a new session after a loss."""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JNetworkError

from spark_batch.compiled import CompiledPlan, compile_plan
from spark_batch.convert import convert_table
from spark_batch.errors import ConversionError, ConversionFatal, ConversionRetriable, SparkUnavailable
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, Finding, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.rule_check import rule_findings
from spark_batch.session import (
    SparkSettings,
    close_remote,
    interrupt_remote,
    is_jvm_alive,
    is_jvm_answering,
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
    ConversionRetriable.
    """

    def __init__(self, settings: SparkSettings, *, slots: int = 3, job_seconds_max: float = 120.0) -> None:
        self._settings = settings
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
        session, _ = await self._ready()
        return await self._in_slot(functools.partial(rule_findings, session, plan))

    async def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome (OUTCOME_SCHEMA) of a micro-batch (INPUT_SCHEMA).

        Raises ConversionRetriable (Spark lost, or too slow) and ConversionFatal (a wrong plan), never for a bad record.
        Cancelling leaves the job to end by itself, its slot taken until then.
        """
        if batch.schema.names != INPUT_SCHEMA.names:
            message = f"expected the columns {INPUT_SCHEMA.names}"
            raise ConversionFatal(message)
        outcome = await self._in_slot(lambda: self._convert(plan, batch), needs_session=True)
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

    async def _ready(self) -> tuple[SparkSession, int]:
        if self._session is None:
            await self.start()
        session = self._session
        if session is None:
            message = "Spark did not start"
            raise SparkUnavailable(message)
        return session, self._generation

    async def _in_slot(self, work: Callable[[], _Result], *, needs_session: bool = False) -> _Result:
        """Run blocking work in a slot that stays taken until the work has really ended."""
        self.statistics.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.statistics.waiting -= 1
        try:
            if needs_session:
                await self._ready()
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
            async with asyncio.timeout(self._job_seconds_max):
                return await asyncio.shield(future)
        except TimeoutError:
            self.statistics.retriable_errors += 1
            await self._restart(generation)
            message = f"a conversion took longer than {self._job_seconds_max} s; Spark was started anew"
            raise ConversionRetriable(message) from None
        except ConversionError:
            self.statistics.fatal_errors += 1
            raise
        except Exception as error:
            # PySpark and py4j have many ways to say that a JVM is gone; what is no loss of it is fatal, with its cause.
            if not _is_of_lost_jvm(error) and await self._is_working(generation):
                self.statistics.fatal_errors += 1
                message = f"the conversion failed: {_first_line(error)}"
                raise ConversionFatal(message) from error
            self.statistics.retriable_errors += 1
            await self._restart(generation)
            message = "Spark was lost during the conversion; it was started anew"
            raise ConversionRetriable(message) from error

    async def _is_working(self, generation: int) -> bool:
        """Whether the session of that generation still is one; a JVM that is being killed counts as running a while."""
        session = self._session
        if generation != self._generation or session is None:
            return False
        if self._settings.remote is not None:
            return True
        if not is_jvm_alive():
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                is_answering = await asyncio.get_running_loop().run_in_executor(None, is_jvm_answering, session)
        except TimeoutError:
            return False
        return is_answering and generation == self._generation

    async def _restart(self, generation: int) -> None:
        """Start anew, once for all who saw the session of that generation fail."""
        async with self._restart_lock:
            if generation != self._generation:
                return
            session, self._session = self._session, None
            self._generation += 1
            self._compiled.clear()
            self.statistics.restarts += 1
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
        self._starting = loop.run_in_executor(None, self._launched)
        self._starting.add_done_callback(_seen)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                self._session = await asyncio.shield(self._starting)
            self.statistics.start_seconds = loop.time() - started_at
        except Exception as error:
            # Whatever it is: PySpark and py4j have many ways to say that a JVM ended while it started.
            await self._end_start()
            if self._settings.remote is None:
                await loop.run_in_executor(None, kill_jvm, None)
            message = f"Spark cannot be started: {_first_line(error)}"
            raise SparkUnavailable(message) from error

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

    def _launched(self) -> SparkSession:
        session = start_session(self._settings)
        plan = ConversionPlan(
            PayloadFormat.JSON,
            value_converter=ConverterSpec(ConverterKind.JSON),
            dedupe_fields=("warm",),
        )
        batch = pa.table({"key": [None], "value": [b"{}"], "timestamp": [None]}, schema=INPUT_SCHEMA)
        convert_table(session, compile_plan(plan), batch)
        return session

    def _convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        session = self._session
        if session is None:
            message = "Spark is being started anew"
            raise SparkUnavailable(message)
        return convert_table(session, self._compiled_for(plan), batch)

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
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (Py4JNetworkError, OSError, EOFError)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
