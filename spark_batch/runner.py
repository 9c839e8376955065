"""The asynchronous face of Spark: conversions in threads, in fair slots, each with a time limit."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from spark_batch.compiled import CompiledPlans, compile_plan
from spark_batch.convert import convert_table
from spark_batch.draft import unfit_outcome
from spark_batch.errors import ConversionError, ConversionFatal, ConversionRetriable, SparkUnavailable
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, PlanFinding
from spark_batch.plan_findings import is_judged_by_spark, plan_findings
from spark_batch.plan_selections import selection_findings
from spark_batch.recovery import Judgement, Remedy, judged
from spark_batch.rules.columns import rule_findings
from spark_batch.session import (
    Begun,
    SessionChange,
    SparkSettings,
    go_by_settings_of,
    is_session_answering,
    start_session,
)
from spark_batch.session_keeper import ANSWER_SECONDS_MAX, Launch, SessionKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

__all__ = ["ConversionRunner", "Launch", "RunnerStatistics", "warm_session"]

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
    """Converts on the Spark session of a worker. One event loop; `start` before anything else, `stop` at the end.

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
        self._tell = tell
        self._sessions = SessionKeeper(settings, launch=launch or warm_session, tell=self._take)
        self._slots = asyncio.Semaphore(slots)
        self._job_seconds_max = job_seconds_max
        self._threads = ThreadPoolExecutor(max_workers=slots + 1, thread_name_prefix="conversion")
        self._compiled = CompiledPlans()
        self.statistics = RunnerStatistics()

    @property
    def jvm_pid(self) -> int | None:
        """Process id of the Spark JVM launched here; None for Spark Connect and before the start."""
        return self._sessions.jvm_pid

    @property
    def is_started(self) -> bool:
        """Whether there is a session; a lost one counts until a conversion has noticed."""
        return self._sessions.session is not None

    async def start(self) -> None:
        """Start the session and warm it up with a tiny job; raises ConversionRetriable where Spark cannot start."""
        await self._sessions.ready()

    async def check(self, plan: ConversionPlan) -> list[PlanFinding]:
        """Findings of the plan that only Spark can tell (rules, Sql), after those of `plan_findings`."""
        findings = plan_findings(plan)
        if findings or not is_judged_by_spark(plan):
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

    async def query(self, *statements: str) -> pa.Table:
        """The answer to the last of some statements of SQL: our own ones, never a config's. Raises as ``convert``."""
        return await self._in_slot(lambda: self._query(statements))

    async def stop(self) -> None:
        """End the session, or its start; conversions still running fail. May be called twice."""
        await self._sessions.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, change: SessionChange) -> None:
        self.statistics.restarts = self._sessions.generation
        if change.is_ready:
            self.statistics.start_seconds = change.start_seconds
        self._tell(change)

    async def _in_slot(self, work: Callable[[], _Result]) -> _Result:
        """Run blocking work on a session, in a slot that stays taken until the work has really ended."""
        self.statistics.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.statistics.waiting -= 1
        try:
            await self.start()
            generation = self._sessions.generation
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
        if not future.cancelled():
            future.exception()  # taken note of, so that a caller that has left does not make asyncio warn

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
            await self._sessions.restart(generation, slow)
            message = f"{slow}; Spark was started anew"
            raise ConversionRetriable(message) from None
        except ConversionError:
            raise
        except Exception as error:
            # PySpark and py4j have many ways to say that a JVM is gone.
            raise await self._by_recovery(error, generation) from error
        if generation != self._sessions.generation:
            message = "Spark was lost during the conversion: what a session says while it is taken away is not believed"
            raise ConversionRetriable(message)
        return result

    async def _by_recovery(self, error: Exception, generation: int) -> ConversionError:
        """An error of the session of that generation; what nothing helps against is fatal, with its cause."""
        judgement = await self._judged(error, generation)
        words = judgement.words
        match judgement.remedy:
            case Remedy.WAIT:
                return SparkUnavailable(f"a disk that Spark works on is full: {words}")
            case Remedy.REPEAT:
                return ConversionRetriable(f"executors were lost during the conversion: {words}")
            case Remedy.RESTART:
                await self._sessions.restart(generation, f"lost during a conversion: {words}")
                return ConversionRetriable("Spark was lost during the conversion; it was started anew")
            case Remedy.NONE:
                return ConversionFatal(f"the conversion failed: {words}")

    async def _judged(self, error: Exception, generation: int) -> Judgement:
        """In a thread, for the session is asked; one that does not answer, or is replaced meanwhile, is lost."""
        sessions = self._sessions
        session = sessions.session if generation == sessions.generation else None
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                judgement = await asyncio.get_running_loop().run_in_executor(None, judged, error, session)
        except TimeoutError:
            return Judgement(Remedy.RESTART, type(error).__name__)
        if judgement.remedy is not Remedy.WAIT and generation != sessions.generation:
            return Judgement(Remedy.RESTART, judgement.words)
        return judgement

    def _convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        unfit = unfit_outcome(plan, batch)
        if unfit is not None:
            return unfit
        # Asked for before the session: what a session compiles that is replaced meanwhile is kept for its generation.
        generation = self._sessions.generation
        session = self._sessions.present()
        go_by_settings_of(session)
        try:
            compiled = self._compiled.of(session, plan, generation=generation)
        except ValueError as error:
            if generation != self._sessions.generation:
                raise  # gRPC's own, for a call on a channel that is closed
            raise ConversionFatal(str(error)) from error
        return convert_table(session, compiled, batch)

    def _check(self, plan: ConversionPlan) -> list[PlanFinding]:
        session = self._sessions.present()
        go_by_settings_of(session)
        findings = rule_findings(session, plan) or selection_findings(session, plan)
        if findings and not is_session_answering(session):
            message = "the session was lost while it was asked for rules"
            raise ConnectionResetError(message)
        return findings

    def _query(self, statements: Sequence[str]) -> pa.Table:
        session = self._sessions.present()
        go_by_settings_of(session)
        *before, last = statements
        for statement in before:
            session.sql(statement)
        return session.sql(last).toArrow()


def warm_session(settings: SparkSettings, begun: Begun) -> SparkSession:
    """Warm from a tiny job."""
    session = start_session(settings, begun)
    plan = ConversionPlan(
        PayloadFormat.JSON,
        value_converter=ConverterSpec(ConverterKind.JSON),
        dedupe_fields=("warm",),
    )
    batch = pa.table({"key": [None], "value": [b"{}"], "timestamp": [None]}, schema=INPUT_SCHEMA)
    convert_table(session, compile_plan(session, plan), batch)
    return session
