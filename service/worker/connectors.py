"""From a connector's definition to its tasks: contract looked up, schemas registered, topics there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fetchers.sdk import BackOff, Fatal, RowSchema, SourceConnector
from fetchers.sdk.config import Finding
from service.config.definition import ConnectorDefinition, as_findings
from service.domain.ids import TaskId
from service.kafka.producer import Writer
from service.kafka.topic_names import TOPIC_NAME_RULE, is_topic_name
from service.pipeline.batching import BatchLimits
from service.pipeline.dead_letters import DeadLetterRules
from service.pipeline.fetching import FetchRetry
from service.pipeline.queue import QueueLimits
from service.pipeline.task import FlowParts, FlowSettings, SourceTask
from service.registry.errors import RegistryFailure
from service.stores.connector_offsets import OffsetTopics
from service.stores.dedupe_store import DedupeState
from service.worker.kinds import Confirm, UseTopic
from service.worker.lending import DedupeStates, Writers
from service.worker.task_writer import TaskWriter
from spark_batch.errors import ConversionError, ConversionFatal
from spark_batch.plan import ConversionPlan, PlanFinding
from spark_batch.plan_findings import plan_findings
from spark_batch.transforms.applied import applied_steps, topics_after

RULES_SECONDS_MAX = 120.0
"""For Spark to start and to look at the rules of all contracts. After it tasks are begun all the same: each asks for
its own rules."""


class ContractRefusedError(Fatal):
    """A contract that only Spark or the registry could find wrong."""


class PlanCheck(Protocol):
    """Asks Spark whether the rules of a plan are valid expressions."""

    async def __call__(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """All findings."""


class Schemas(Protocol):
    """The schema registry's part in a plan."""

    async def contract_of(self, definition: ConnectorDefinition) -> str | None:
        """Text of the contract's schema, from wherever it is."""

    async def with_ids(self, definition: ConnectorDefinition, plan: ConversionPlan) -> ConversionPlan:
        """Check compatibility and register; the plan with the registry's ids."""

    async def admit(
        self, definition: ConnectorDefinition, plan: ConversionPlan, topic: str, *, has_values: bool
    ) -> None:
        """The same for a further topic, to which a page goes."""

    async def with_ids_of_rows(
        self, definition: ConnectorDefinition, plan: ConversionPlan, topic: str, tombstones: str | None
    ) -> ConversionPlan:
        """The same for rows that end in ``topic``, and tombstones that end in another."""


class Topics(Protocol):
    """Makes the topics of a connector before anything is produced."""

    async def ensure(self, definition: ConnectorDefinition) -> None:
        """Its target and dead-letter topics."""

    async def ensure_named(self, definition: ConnectorDefinition, topics: Iterable[str]) -> None:
        """Topics in which records end whose pages name a topic."""


@dataclass(frozen=True, slots=True)
class ConnectorParts:
    """What the worker lends to connectors."""

    flow: FlowParts
    offsets: OffsetTopics
    writers: Writers
    dedupe: DedupeStates
    schemas: Schemas
    topics: Topics
    check_plan: PlanCheck


@dataclass(frozen=True, slots=True)
class StandIn:
    """Lets a task do the work of another in its place, with offsets of its own."""

    task_id: TaskId
    """Whose transactional id it writes with; that task is fenced."""
    open_dedupe: Callable[[], DedupeState]
    confirm: Callable[[], Awaitable[None]]
    """Awaited within each transaction, before its end; what it raises aborts it."""


async def confirm_always() -> None:
    """Be the ``Confirm`` of a task that no config log asks for, as that of a redrive."""


async def make_source_task(
    task_id: TaskId,
    definition: ConnectorDefinition,
    parts: ConnectorParts,
    *,
    connector: SourceConnector[Any],
    plan: ConversionPlan,
    use_topic: UseTopic = lambda _topic: None,
    confirm: Confirm = confirm_always,
    stand_in: StandIn | None = None,
) -> SourceTask:
    """One incarnation, its topics made."""
    await parts.topics.ensure(definition)
    common = definition.common
    offsets = parts.offsets.of(common.offsets_storage_topic)
    own_topics = offsets.topics | {parts.dedupe.store.topic, common.dead_letter_topic}

    async def admit(topic: str, *, is_tombstone: bool) -> None:
        targets = topics_after(definition.transformations, topic, is_tombstone=is_tombstone)
        await make_topics(targets)
        for target in targets:
            await parts.schemas.admit(definition, plan, target, has_values=not is_tombstone)

    async def make_topics(topics: Collection[str]) -> None:
        await parts.topics.ensure_named(definition, topics)

    def open_writer() -> Writer:
        is_exactly_once = common.delivery_guarantee == "exactly_once"
        writes_as = stand_in.task_id if stand_in else task_id
        writer = parts.writers.open(
            writes_as,
            connector=definition.properties,
            is_exactly_once=is_exactly_once,
            confirm=stand_in.confirm if stand_in else None,
        )
        return TaskWriter(writer, own_topics, use_topic)

    def open_dedupe() -> DedupeState:
        if stand_in:
            return stand_in.open_dedupe()
        return parts.dedupe.open(task_id, records_max=common.dedupe_records_max, is_used=bool(plan.dedupe_fields))

    return SourceTask(
        task_id,
        connector,
        flow_settings(definition, plan),
        replace(parts.flow, offsets=offsets),
        open_writer=open_writer,
        open_dedupe=open_dedupe,
        confirm=confirm,
        admit=admit,
        make_topics=make_topics,
        plan_rows=_RowPlanner(definition, parts, plan),
    )


@dataclass(frozen=True, slots=True)
class _RowPlanner:
    """What was not known before the rows came is checked, made and registered now: see ``PlanRows``."""

    definition: ConnectorDefinition
    parts: ConnectorParts
    plan: ConversionPlan

    async def __call__(
        self, topic: str, schema: RowSchema, key_schema: RowSchema | None, /, *, has_tombstones: bool
    ) -> ConversionPlan:
        definition, parts, what = self.definition, self.parts, f"rows of {schema.name}"
        key = None if key_schema is None else key_schema.avro
        plan = self.plan.for_rows(schema=schema.avro, key_schema=key, topic=topic)
        if found := plan_findings(plan) or await parts.check_plan(plan):
            told = "; ".join(f"{each.key}: {each.value}; expected {each.expected}" for each in found)
            raise ConversionFatal(f"{what} for topic '{topic}' cannot be converted: {told}")
        names = [
            name
            for is_tombstone in {False, has_tombstones}
            for name in topics_after(definition.transformations, topic, is_tombstone=is_tombstone)
        ]
        for name in names:
            if not is_topic_name(name):
                raise ConversionFatal(f"{what} are for topic '{name}': expected a topic's name: {TOPIC_NAME_RULE}")
        await parts.topics.ensure_named(definition, set(names))
        values, tombstones = (
            applied_steps(definition.transformations, topic, is_tombstone=is_tombstone).topic
            for is_tombstone in (False, has_tombstones)
        )
        return await parts.schemas.with_ids_of_rows(definition, plan, values, tombstones)


async def plan_of(definition: ConnectorDefinition, parts: ConnectorParts) -> ConversionPlan:
    """The whole plan; raises ``ContractRefusedError`` with all findings."""
    plan = definition.plan(await parts.schemas.contract_of(definition))
    found = plan_findings(plan) or await parts.check_plan(plan)
    if found:
        raise ContractRefusedError(_told(as_findings(found, definition.properties)))
    return await parts.schemas.with_ids(definition, plan)


async def rule_findings(
    definitions: Sequence[ConnectorDefinition], schemas: Schemas, check_plan: PlanCheck
) -> Sequence[tuple[Finding, ...]]:
    """What Spark finds wrong with the rules of each connector's contract, and with its SQL, before any task is begun.

    Nothing of those that cannot be asked about now, for want of the registry or of Spark: their tasks will tell.
    """
    asked: dict[Hashable, Sequence[PlanFinding]] = {}
    try:
        async with asyncio.timeout(RULES_SECONDS_MAX):
            return [await _rule_findings(definition, schemas, check_plan, asked) for definition in definitions]
    except (TimeoutError, ConversionError):
        return [()] * len(definitions)


async def _rule_findings(
    definition: ConnectorDefinition,
    schemas: Schemas,
    check_plan: PlanCheck,
    asked: dict[Hashable, Sequence[PlanFinding]],
) -> tuple[Finding, ...]:
    if not definition.asks_spark:
        return ()
    try:
        plan = definition.plan(await schemas.contract_of(definition))
    except RegistryFailure:
        return ()
    said = (plan.payload_format, plan.contract, plan.transformations)
    if said not in asked:
        asked[said] = await check_plan(plan)
    return as_findings(asked[said], definition.properties)


def _told(findings: Sequence[Finding]) -> str:
    return "; ".join(finding.message for finding in findings)


def flow_settings(definition: ConnectorDefinition, plan: ConversionPlan) -> FlowSettings:
    """A connector's keys as the limits and rules of its flow."""
    common = definition.common
    retry_seconds = common.errors_retry_timeout / 1000
    return FlowSettings(
        topic=definition.topic,
        plan=plan,
        dead_letters=DeadLetterRules(
            topic=common.dead_letter_topic,
            class_name=definition.value_converter.class_name,
            connector=definition.name,
            has_headers=common.errors_deadletterqueue_context_headers_enable,
            is_logged=common.errors_log_enable,
        ),
        is_tolerant=common.is_tolerant,
        queue=QueueLimits(common.queue_records_max, common.queue_bytes_max),
        batch=BatchLimits(
            common.batch_records_max,
            common.batch_bytes_max,
            common.batch_age_ms_max / 1000,
            transaction_bytes_max=common.source_transaction_bytes_max,
            is_transaction_split=common.source_transaction_overflow == "split",
        ),
        conversions_max=common.batch_conversions_max,
        fetch_retry=FetchRetry(
            back_off=BackOff(cap_seconds=common.errors_retry_delay_max_ms / 1000),
            seconds_max=retry_seconds if retry_seconds > 0 else None,
        ),
    )
