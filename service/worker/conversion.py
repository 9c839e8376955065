"""The worker's conversion service: Spark starts in the background, conversions wait for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from metrics.events import ComponentStateChanged, Emit, SparkStarted
from service.config.worker import WorkerConfig
from spark_batch.errors import ConversionError, ConversionFatal
from spark_batch.plan import ConversionPlan, Finding
from spark_batch.runner import ConversionRunner
from spark_batch.session import SparkSettings


class ConversionService:
    """One Spark session for all tasks of a worker; use as an async context manager."""

    def __init__(self, settings: SparkSettings, config: WorkerConfig, emit: Emit) -> None:
        """Nothing is started yet."""
        slots = config.conversion_slots or (os.cpu_count() or 1) + 1
        self.runner = ConversionRunner(settings, slots=slots, job_seconds_max=config.conversion_seconds_max)
        self._emit = emit
        self._starting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin to start Spark; others start meanwhile."""
        self._emit(ComponentStateChanged(component="spark", is_ready=False, detail="starting"))
        self._starting = asyncio.ensure_future(self._start())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop Spark."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        await self.runner.stop()

    async def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """Verdicts on a micro-batch; raises ``ConversionRetriable``, ``ConversionFatal``."""
        await self._wait_started()
        return await self.runner.convert(plan, batch)

    async def check(self, plan: ConversionPlan) -> Sequence[Finding]:
        """What only Spark can find wrong with a plan; nothing to ask where there are no rules."""
        if plan.contract is None or not plan.contract.rules:
            return ()
        await self._wait_started()
        return await self.runner.check(plan)

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        try:
            await self.runner.start()
        except ConversionError as error:
            self._emit(ComponentStateChanged(component="spark", is_ready=False, detail=str(error)))
            raise
        self._emit(SparkStarted(seconds=loop.time() - started_at, is_restart=False))
        self._emit(ComponentStateChanged(component="spark", is_ready=True))

    async def _wait_started(self) -> None:
        if self._starting is None:
            message = "the conversion service is not open"
            raise ConversionFatal(message)
        await asyncio.shield(self._starting)
