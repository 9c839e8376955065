"""The worker's conversion service: Spark starts in the background, conversions wait for it.

Small micro-batches of plans whose outcome is known to be the same go by the exact path instead (ADR 88).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pyarrow as pa

from fetchers.sdk import BackOff, Clock
from metrics.events import ComponentStateChanged, ConversionEnded, ConversionSlotsChanged, Emit, SparkStarted
from service.config.worker import WorkerConfig
from spark_batch.driver_run import ALWAYS, JOBS_KEY
from spark_batch.errors import ConversionRetriable
from spark_batch.plan import ConversionPlan, PlanFinding
from spark_batch.plan_findings import is_judged_by_spark
from spark_batch.runner import ConversionRunner, Launch
from spark_batch.session import SessionChange, SparkSettings
from spark_batch.small import SmallBatches, SmallFailedError


class ConversionService:
    """One Spark session for all tasks of a worker."""

    def __init__(
        self,
        settings: SparkSettings,
        config: WorkerConfig,
        *,
        clock: Clock,
        emit: Emit,
        launch: Launch | None = None,
    ) -> None:
        """Nothing is started yet; ``launch``: another way to make a session."""
        self._slots = config.conversion_slots or (os.cpu_count() or 1) + 1
        self.runner = ConversionRunner(
            settings,
            slots=self._slots,
            job_seconds_max=config.conversion_seconds_max,
            tell=self._take,
            launch=launch,
        )
        is_always_spark = dict(settings.options).get(JOBS_KEY) == ALWAYS
        self._small = SmallBatches(records_max=0 if is_always_spark else config.conversion_small_records_max)
        self._clock = clock
        self._emit = emit
        self._is_started = asyncio.Event()
        """Once is enough: after a loss, conversions are told to come again."""
        self._is_missed = asyncio.Event()
        self._use = SparkUse()

    @property
    def is_ready(self) -> bool:
        """Whether there is a session, as far as anybody has noticed."""
        return self._is_started.is_set() and not self._is_missed.is_set()

    async def run(self) -> None:
        """Start Spark, however often it takes, and whenever it is missed; run it beside everything else."""
        self._take(SessionChange(is_ready=False, detail="starting"))
        attempt = 0
        while True:
            await self._is_missed.wait()
            try:
                await self.runner.start()
            except ConversionRetriable:
                attempt += 1
                await self._clock.sleep(BackOff(first_seconds=1.0).wait_seconds(attempt))
            else:
                attempt = 0

    async def stop(self) -> None:
        """End the Spark session; conversions that still run fail."""
        self._small.stop()
        await self.runner.stop()

    async def convert(self, plan: ConversionPlan, batch: pa.Table, *, is_alone: bool = False) -> pa.Table:
        """Verdicts on a micro-batch; raises ``ConversionRetriable``, ``ConversionFatal``.

        ``is_alone``: beside no other, for one that may be what kills Spark.
        """
        await self._is_started.wait()
        way = "spark"
        if self._small.takes(plan, batch):
            try:
                outcome = await self._small.convert(plan, batch)
            except SmallFailedError:
                way = "spark_after_small"
            else:
                self._emit(ConversionEnded(records=batch.num_rows, way="small"))
                return outcome
        async with self._use.alone() if is_alone else self._use.beside_others():
            outcome = await self._by_spark(plan, batch)
        self._emit(ConversionEnded(records=batch.num_rows, way=way))
        return outcome

    async def _by_spark(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        self._tell_slots()
        try:
            return await self.runner.convert(plan, batch)
        finally:
            self._tell_slots()

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """What only Spark can find wrong with a plan; nothing to ask where there are neither rules nor Sql."""
        if not is_judged_by_spark(plan):
            return ()
        await self._is_started.wait()
        return await self.runner.check(plan)

    def _take(self, change: SessionChange) -> None:
        """Told by the runner at the moment it happens, whoever made it happen."""
        if change.is_ready:
            self._emit(SparkStarted(seconds=change.start_seconds, is_restart=change.is_restart))
            self._is_started.set()
            self._is_missed.clear()
        else:
            self._is_missed.set()
        self._emit(ComponentStateChanged(component="spark", is_ready=change.is_ready, detail=change.detail))

    def _tell_slots(self) -> None:
        now = self.runner.statistics
        self._emit(ConversionSlotsChanged(running=now.running, waiting=now.waiting, slots=self._slots))


class SparkUse:
    """Who converts beside whom: many at once, or one alone, who goes before those who come later.

    A micro-batch that was lost with Spark may be the one that kills it. Tried alone, it takes no innocent one with it.
    """

    def __init__(self) -> None:
        """Nobody converts yet."""
        self._changed = asyncio.Condition()
        self._running = 0
        self._waiting_alone = 0
        self._is_one_alone = False

    @asynccontextmanager
    async def beside_others(self) -> AsyncIterator[None]:
        """Convert in the block, while others may too; waits for one that is, or wants to be, alone."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_one_alone and not self._waiting_alone)
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            await self._tell()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Convert in the block, while nobody else does; waits for those who do."""
        async with self._changed:
            self._waiting_alone += 1
            try:
                await self._changed.wait_for(lambda: not self._is_one_alone and not self._running)
                self._is_one_alone = True
            finally:
                self._waiting_alone -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            self._is_one_alone = False
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
