"""A sink's converters and transformations with `Sql` among them, and an engine in the place of a worker's Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from fetchers.sdk import SystemClock
from metrics.events import Event, TaskEvents
from service.sinks.converters import ColumnReader, TextReader
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoded, Decoding, SideReader
from service.sinks.transforms.selecting import Selecting
from spark_batch.errors import ConversionRetriable
from spark_batch.plan import ConversionPlan, PlanFinding
from spark_batch.plan_findings import plan_findings
from spark_batch.transforms.catalog import Step
from tests.spark.engines import Engine


@dataclass
class EngineSpark:
    """The worker's conversion service, by an engine of the tests; loses Spark as often as it is told."""

    engine: Engine
    lost: int = 0
    plans: list[ConversionPlan] = field(default_factory=list)
    asked: list[ConversionPlan] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)

    async def convert(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """Convert, or be lost."""
        self.alone.append(is_alone)
        if self.lost:
            self.lost -= 1
            message = "Spark was lost"
            raise ConversionRetriable(message)
        self.plans.append(plan)
        return self.engine.convert(plan, batch)

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """As `ConversionRunner.check`."""
        self.asked.append(plan)
        return plan_findings(plan) or self.engine.check(plan)


@dataclass
class At:
    """A sink's converters and transformations."""

    engine: Engine
    steps: tuple[Step, ...]
    values: ColumnReader
    keys: ColumnReader = field(default_factory=TextReader)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        """One task."""
        self.spark = EngineSpark(self.engine)
        events = TaskEvents(self.events.append, "sink", 0)
        self.decoding = Decoding(
            SideReader(self.keys, "K", KEY_STAGE),
            SideReader(self.values, "V", VALUE_STAGE),
            "Sink",
            self.steps,
            selecting=Selecting(self.spark, events, SystemClock()),
        )

    async def decode(self, records: pa.Table) -> Decoded:
        """What the sink is handed of a poll."""
        return await self.decoding.decode(records, refuse=lambda _: None)
