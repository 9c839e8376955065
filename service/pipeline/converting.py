"""The convert stage: micro-batch → Arrow table → Spark job → outcome, tried again when Spark was lost."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import BackOff, Clock, Page, RowSchema
from metrics.events import BatchConverted, TaskEvents
from service.pipeline.batching import MicroBatch
from service.pipeline.headers import Headers, edited, headers_of, headers_of_events, runs_of_headers
from service.pipeline.lost_conversions import ATTEMPTS_MAX, tried_again
from spark_batch.errors import ConversionFatal
from spark_batch.outcome import INPUT_SCHEMA, OUTCOME_SCHEMA
from spark_batch.plan import ConversionPlan
from spark_batch.transforms.applied import asked_headers
from spark_batch.transforms.catalog import TimestampRouter


class Convert(Protocol):
    """The worker's conversion service: one Spark session for all tasks."""

    async def __call__(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """The outcome of a micro-batch; ``is_alone``: with no other beside it."""


class Admit(Protocol):
    """Checks and registers the schemas of one connector's records for a topic that its pages name."""

    async def __call__(self, topic: str, *, is_tombstone: bool) -> None:
        """Return once records, or tombstones, of pages for ``topic`` may be written where they end.

        Raises ``RegistryRetriable`` where the registry cannot be asked, ``RegistryFatal`` where it refuses.
        """


async def admit_every_topic(topic: str, *, is_tombstone: bool) -> None:
    """Obey ``Admit`` where no schema registry is used."""
    del topic, is_tombstone


class PlanRows(Protocol):
    """Makes the plan of one connector's rows of a schema that come for a topic."""

    async def __call__(
        self, topic: str, schema: RowSchema, key_schema: RowSchema | None, /, *, has_tombstones: bool
    ) -> ConversionPlan:
        """The plan, once its schemas are registered, and the topics are there, in which such records end.

        Raises ``ConversionFatal`` for rows that cannot be converted, ``RegistryFatal`` where the registry refuses,
        ``RegistryRetriable``, ``KafkaFailure``.
        """


class MakeTopics(Protocol):
    """Makes topics of one connector that only its converted records tell."""

    async def __call__(self, topics: Collection[str], /) -> None:
        """Return once they are there; raises ``DeliveryRetriable``, ``DeliveryFatal``."""


async def make_no_topics(topics: Collection[str]) -> None:
    """Obey ``MakeTopics`` where somebody else makes them."""


async def refuse_rows(
    topic: str, schema: RowSchema, key_schema: RowSchema | None, /, *, has_tombstones: bool
) -> ConversionPlan:
    """Obey ``PlanRows`` where nobody plans rows."""
    del key_schema, has_tombstones
    raise ConversionFatal(f"rows of {schema.name} came for topic '{topic}', and nobody here plans rows")


TOPICS_MAX = 10_000
"""Topics made of times that a task remembers to have asked for."""
RUNS_MAX = 256
"""Runs of records of one plan that are cut out one by one; of more, the records are picked out at once."""
ROW_PLANS_MAX = 1_024
"""Plans of rows that a task remembers; of more, those that were not used for longest are asked for again."""


@dataclass(slots=True)
class RowPlans:
    """The plans of one task's rows, each asked for once, in the order in which their first pages came."""

    plan_rows: PlanRows = refuse_rows
    _kept: OrderedDict[tuple[Hashable, ...], ConversionPlan] = field(default_factory=OrderedDict)
    _failure: Exception | None = None

    async def of(self, page: Page, topic: str) -> ConversionPlan:
        """The plan of a page of rows; after one was refused no other is made, so that nothing later is registered."""
        assert page.schema is not None  # noqa: S101 - told to the type checker: only pages of rows come here
        has_tombstones = page.payload_column.null_count > 0
        key = (topic, page.schema, page.key_schema, has_tombstones)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._failure is not None:
            raise self._failure
        try:
            found = await self.plan_rows(topic, page.schema, page.key_schema, has_tombstones=has_tombstones)
        except Exception as error:
            # Whatever it was: no schema of a later page is registered behind one that was not.
            self._failure = error
            raise
        self._kept[key] = found
        while len(self._kept) > ROW_PLANS_MAX:
            self._kept.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class ConvertedBatch:
    """A micro-batch, its input columns and the verdict on each of its records."""

    batch: MicroBatch
    records: pa.Table
    outcome: pa.Table
    shares: tuple[Share, ...] = ()
    """Which plan has converted which records."""

    def headers(self) -> Sequence[Headers] | None:
        """The headers of every record after its transformations; None where none has any. Slow for many records."""
        before = headers_of(self.batch.pages)
        if not any(share.plan.transformations and share.plan.has_header_edits for share in self.shares):
            return before
        found: list[Headers] = [()] * self.records.num_rows if before is None else list(before)
        is_tombstone = np.concatenate([np.zeros(0, bool), *(_tombstones(item.page) for item in self.batch.pages)])
        for share in self.shares:
            for of_nulls in (False, True):
                applied = share.plan.applied_steps(is_tombstone=of_nulls)
                rows = share.numbers[is_tombstone[share.numbers] == of_nulls].tolist()
                if applied.edits and rows:
                    own = None if before is None else [before[row] for row in rows]
                    texts: Any = self.outcome["headers"].take(cast("Any", pa.array(rows)))
                    for row, after in zip(rows, edited(own, share.plan, texts, is_tombstone=of_nulls), strict=True):
                        found[row] = after
                if applied.header_events is not None and share.rows is not None and rows:
                    events = share.rows.filter(pa.array(is_tombstone[share.numbers] == of_nulls))["value"]
                    for row, news in zip(rows, headers_of_events(share.plan, events), strict=True):
                        found[row] = (*found[row], *news)
        return found


@dataclass(frozen=True, slots=True)
class ConvertStage:
    """One task's plan and the worker's conversion service."""

    convert: Convert
    plan: ConversionPlan
    events: TaskEvents
    clock: Clock
    back_off: BackOff = BackOff()
    attempts_max: int = ATTEMPTS_MAX
    """A conversion that is lost this often is the batch's own doing; not counted: that Spark does not start."""
    admit: Admit = admit_every_topic
    topic: str = ""
    """Of pages that name none; none where every page has to."""
    row_plans: RowPlans = field(default_factory=RowPlans)
    make_topics: MakeTopics = make_no_topics
    """For routers that ask for each record's time."""
    topics_made: set[str] = field(default_factory=set)
    admitted: set[tuple[str, bool]] = field(default_factory=set)
    """Topics that pages named, and whether for tombstones, which need no more asking."""
    admitting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Schemas are registered in the order of their pages, whichever micro-batch is converted first."""

    async def run(self, batch: MicroBatch) -> ConvertedBatch:
        """Convert, once the schemas are registered for every topic that a page names.

        Raises ``ConversionFatal``, ``PoisonedBatchError`` after ``attempts_max`` lost conversions, and before the first
        record is converted what ``admit`` raises.
        """
        records = input_table(batch)
        if not records.num_rows:
            # Pages that only move the offset do not wait for Spark.
            return ConvertedBatch(batch, records, OUTCOME_SCHEMA.empty_table())
        async with self.admitting:
            shares = await self._shares(batch)

        async def convert(*, is_alone: bool) -> pa.Table:
            started_at = self.clock.monotonic()
            outcome = await self._outcome(shares, records, is_alone=is_alone)
            _demand_verdicts(outcome, records.num_rows)
            await self._make_topics(outcome)
            self.events(BatchConverted, records=batch.records, seconds=self.clock.monotonic() - started_at)
            return outcome

        outcome = await tried_again(convert, batch.records, self.events, self.clock, self.back_off, self.attempts_max)
        return ConvertedBatch(batch, records, outcome, tuple(shares))

    async def _shares(self, batch: MicroBatch) -> list[Share]:
        """Schemas of the connector's own topic, where they are known from its config, were registered before."""
        plans: dict[int, ConversionPlan] = {}
        for page in (item.page for item in batch.pages if len(item.page)):
            topic = page.topic or self.topic or self.plan.topic
            if page.schema is not None:
                self._demand_topic(topic)
                plans[id(page)] = await self.row_plans.of(page, topic)
                continue
            if self.plan.is_of_rows:
                raise ConversionFatal("a page has no schema, and its connector says that its payloads are rows")
            if page.topic is None or page.topic == self.topic:
                continue
            nulls = page.payload_column.null_count
            for is_tombstone in [False] * (nulls < len(page)) + [True] * (nulls > 0):
                if (page.topic, is_tombstone) not in self.admitted:
                    await self.admit(page.topic, is_tombstone=is_tombstone)
                    self.admitted.add((page.topic, is_tombstone))

        return shares_of(batch, self.plan, lambda page: plans[id(page)])

    async def _make_topics(self, outcome: pa.Table) -> None:
        """Topics made of the times of records are known now."""
        if not any(isinstance(step.transformation, TimestampRouter) for step in self.plan.transformations):
            return
        written: Any = outcome.filter(
            pc.and_(outcome["reason"].is_null(), pc.invert(cast("Any", outcome["is_dropped"])))
        )
        news = {str(topic) for topic in written["topic"].unique().to_pylist() if topic is not None} - self.topics_made
        if news:
            await self.make_topics(sorted(news))
            if len(self.topics_made) > TOPICS_MAX:
                # Asking for a topic that is there does no harm.
                self.topics_made.clear()
            self.topics_made.update(news)

    def _demand_topic(self, topic: str) -> None:
        if not topic:
            raise ConversionFatal("a page names no topic, and neither does the config of its connector")

    async def _outcome(self, shares: list[Share], records: pa.Table, *, is_alone: bool) -> pa.Table:
        """The verdicts, those of each share by a plan of its own."""
        if len(shares) == 1:
            return await self.convert(shares[0].plan, shares[0].of(records), is_alone=is_alone)
        converted = [await self.convert(share.plan, share.of(records), is_alone=is_alone) for share in shares]
        if sum(len(share.runs) for share in shares) > RUNS_MAX:
            for share, own in zip(shares, converted, strict=True):
                _demand_verdicts(own, len(share.numbers))
            order = np.argsort(np.concatenate([share.numbers for share in shares]))
            return pa.concat_tables(converted).take(cast("Any", pa.array(order)))
        outcomes: dict[int, pa.Table] = {}
        for share, own in zip(shares, converted, strict=True):
            outcomes |= share.cut(own)
        return pa.concat_tables([outcomes[start] for start in sorted(outcomes)])


def input_table(batch: MicroBatch) -> pa.Table:
    """The pages' columns one after another, as the conversion takes them; no copy of a payload.

    Rows, and the keys that come with them, are null here: each share of them has columns of its own.
    """
    pages = [item.page for item in batch.pages]
    columns = {
        "key": [_column(None if page.key_schema else page.keys, pa.binary(), len(page)) for page in pages],
        "value": [_column(None if page.schema else page.payload_column, pa.binary(), len(page)) for page in pages],
        "timestamp": [_column(page.timestamps_ms, pa.int64(), len(page)) for page in pages],
    }
    arrays = [pa.chunked_array(chunks, type=INPUT_SCHEMA.field(name).type) for name, chunks in columns.items()]
    return pa.table(arrays, schema=INPUT_SCHEMA)


@dataclass(frozen=True, slots=True)
class Share:
    """The records of a micro-batch that one plan converts, wherever they stand in it.

    Nothing is copied but where headers make many short runs of them.
    """

    plan: ConversionPlan
    runs: tuple[tuple[int, int], ...]
    """First row and number of rows of each run of such records."""
    rows: pa.Table | None = None
    """Their columns where they are rows; None: they are bytes, and stand in the columns of the micro-batch."""

    def of(self, records: pa.Table) -> pa.Table:
        """The rows of this share, one run after another."""
        if self.rows is not None:
            return self.rows
        if self.runs == ((0, records.num_rows),):
            return records
        if len(self.runs) > RUNS_MAX:
            return records.take(cast("Any", pa.array(self.numbers)))
        return pa.concat_tables([records.slice(start, count) for start, count in self.runs])

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The rows of its records in the micro-batch."""
        return np.concatenate([np.arange(start, start + count) for start, count in self.runs])

    def cut(self, outcome: pa.Table) -> dict[int, pa.Table]:
        """Its verdicts, by the first row of each run."""
        _demand_verdicts(outcome, sum(count for _, count in self.runs))
        found, at = {}, 0
        for start, count in self.runs:
            found[start] = outcome.slice(at, count)
            at += count
        return found


def shares_of(batch: MicroBatch, plan: ConversionPlan, plan_of_rows: Callable[[Page], ConversionPlan]) -> list[Share]:
    """One for each plan: by topic, as far as the plan cares, and by the schema of rows; empty pages are left out.

    ``plan_of_rows``: of a page of rows.
    """
    pages = [item.page for item in batch.pages]
    if not plan.transformations and all(page.schema is None for page in pages):
        return [Share(plan, ((0, batch.records),))]
    asked = asked_headers(plan.transformations)
    members: dict[Hashable, list[tuple[Page, int, int]]] = {}
    runs: dict[Hashable, list[tuple[int, int]]] = {}
    start, last = 0, None
    for page in (page for page in pages if len(page)):
        own_key = _share_key(page, plan, plan_of_rows)
        for first, count, headers in runs_of_headers(page, asked):
            key = (own_key[0] if not headers else replace(own_key[0], headers=headers), *own_key[1:])
            members.setdefault(key, []).append((page, first, count))
            own = runs.setdefault(key, [])
            if key == last:
                own[-1] = (own[-1][0], own[-1][1] + count)
            else:
                own.append((start, count))
            start, last = start + count, key
    return [Share(key[0], tuple(runs[key]), _rows_table(members[key])) for key in cast("Any", members)]


def _tombstones(page: Page) -> npt.NDArray[np.bool_]:
    column: Any = page.payload_column
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)


def _share_key(
    page: Page, plan: ConversionPlan, plan_of_rows: Callable[[Page], ConversionPlan]
) -> tuple[ConversionPlan, *tuple[Hashable, ...]]:
    """The plan, and the types of columns of rows: a driver may give one column in several."""
    if page.schema is None:
        topic = (page.topic or plan.topic) if plan.transformations else plan.topic
        return (plan if topic == plan.topic else replace(plan, topic=topic),)
    keys: Any = page.keys
    return plan_of_rows(page), page.payload_column.type, None if keys is None else keys.type


def _rows_table(pieces: list[tuple[Page, int, int]]) -> pa.Table | None:
    """The columns of these records of pages of rows; None for others."""
    if pieces[0][0].schema is None:
        return None
    keys: Any = next((page.keys for page, _, _ in pieces if page.keys is not None), None)
    kind = pa.binary() if keys is None else keys.type
    columns: dict[str, list[Any]] = {"key": [], "value": [], "timestamp": []}
    for page, first, count in pieces:
        columns["key"].append(_column(page.keys, kind, len(page)).slice(first, count))
        columns["value"].append(cast("Any", page.payload_column).slice(first, count))
        columns["timestamp"].append(_column(page.timestamps_ms, pa.int64(), len(page)).slice(first, count))
    return pa.table({name: pa.chunked_array(chunks) for name, chunks in columns.items()})


def _column(values: object, kind: pa.DataType, length: int) -> Any:
    return pa.nulls(length, cast("Any", kind)) if values is None else values


def _demand_verdicts(outcome: pa.Table, records: int) -> None:
    """A verdict too few or too many would pair records with the verdicts of others."""
    if outcome.num_rows != records:
        message = f"{records} records were converted to {outcome.num_rows} verdicts"
        raise ConversionFatal(message)
