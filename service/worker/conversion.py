"""The worker's conversion service: Spark starts in the background, conversions wait for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import pyarrow as pa

from fetchers.sdk import BackOff, Clock
from metrics.events import ComponentStateChanged, ConversionSlotsChanged, Emit, SparkStarted
from service.config.worker import WorkerConfig
from service.worker.turns import Turns
from spark_batch.errors import ConversionRetriable
from spark_batch.plan import ConversionPlan, Finding
from spark_batch.runner import ConversionRunner
from spark_batch.session import SparkSettings


class ConversionService:
    """One Spark session for all tasks of a worker."""

    def __init__(self, settings: SparkSettings, config: WorkerConfig, *, clock: Clock, emit: Emit) -> None:
        """Nothing is started yet."""
        self._slots = config.conversion_slots or (os.cpu_count() or 1) + 1
        self.runner = ConversionRunner(settings, slots=self._slots, job_seconds_max=config.conversion_seconds_max)
        self._clock = clock
        self._emit = emit
        self._is_started = asyncio.Event()
        self._restarts_told = 0
        self._turns = Turns()

    async def run(self) -> None:
        """Start Spark, however often it takes; run it beside everything else that starts."""
        self._emit(ComponentStateChanged(component="spark", is_ready=False, detail="starting"))
        attempt = 0
        while not self._is_started.is_set():
            started_at = self._clock.monotonic()
            try:
                await self.runner.start()
            except ConversionRetriable as error:
                attempt += 1
                self._emit(ComponentStateChanged(component="spark", is_ready=False, detail=str(error)))
                await self._clock.sleep(BackOff(first_seconds=1.0).wait_seconds(attempt))
            else:
                self._is_started.set()
                self._emit(SparkStarted(seconds=self._clock.monotonic() - started_at, is_restart=False))
                self._emit(ComponentStateChanged(component="spark", is_ready=True))

    async def stop(self) -> None:
        """Stop Spark."""
        await self.runner.stop()

    async def convert(self, plan: ConversionPlan, batch: pa.Table, *, is_alone: bool = False) -> pa.Table:
        """Verdicts on a micro-batch; raises ``ConversionRetriable``, ``ConversionFatal``.

        ``is_alone``: beside no other, for one that may be what kills Spark.
        """
        await self._is_started.wait()
        async with self._turns.alone() if is_alone else self._turns.together():
            return await self._convert(plan, batch)

    async def _convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        self._tell_slots()
        try:
            return await self.runner.convert(plan, batch)
        except ConversionRetriable as error:
            self._tell_lost(error)
            raise
        finally:
            self._tell_slots()

    async def check(self, plan: ConversionPlan) -> Sequence[Finding]:
        """What only Spark can find wrong with a plan; nothing to ask where there are no rules."""
        if plan.contract is None or not plan.contract.rules:
            return ()
        await self._is_started.wait()
        return await self.runner.check(plan)

    def _tell_lost(self, error: ConversionRetriable) -> None:
        """Once for each loss, by the first conversion that hears of it; by then Spark may run again."""
        if self.runner.statistics.restarts == self._restarts_told:
            return
        self._restarts_told = self.runner.statistics.restarts
        self._emit(ComponentStateChanged(component="spark", is_ready=False, detail=str(error)))
        if self.runner.is_started:
            self._emit(SparkStarted(seconds=self.runner.statistics.start_seconds, is_restart=True))
            self._emit(ComponentStateChanged(component="spark", is_ready=True))

    def _tell_slots(self) -> None:
        now = self.runner.statistics
        self._emit(ConversionSlotsChanged(running=now.running, waiting=now.waiting, slots=self._slots))
