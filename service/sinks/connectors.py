"""From a sink's definition to its tasks: converters ready, dead-letter topic there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fetchers.sdk import BackOff, Clock, Finding, HttpDoor, WorkContext
from metrics.events import Emit, TaskEvents
from service.config.converters import JSON_CONVERTER, Converter
from service.config.definition import as_findings
from service.domain.ids import TaskId
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.group_consumer import GroupConsumer, GroupListener
from service.kafka.producer import GroupWriter, IdempotentWriter
from service.pipeline.memory import MemoryBudget
from service.registry.client import RegistryClient
from service.registry.settings import RegistrySettings
from service.sinks.contract import SinkConnector
from service.sinks.converters import EnvelopeReader, JsonReader, NumberReader, column_reader
from service.sinks.dead_letters import DeadLetterRules, LetterWriter
from service.sinks.decoding import HEADER_STAGE, KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.definition import SinkDefinition
from service.sinks.headers import HeaderReader
from service.sinks.task import SinkSettings, SinkTask
from service.sinks.transforms.selecting import Selecting, Spark
from service.worker.connectors import PlanCheck
from service.worker.kinds import Confirm, ConnectorRefusedError, ConnectorTraits, MakeTask, UseTopic
from spark_batch.plan import ConverterKind

_REPLICATION_KEY = "errors.deadletterqueue.topic.replication.factor"
_UNNAMED_CLIENT = "headrace"
_PUT_SHARE_OF_POLL_INTERVAL = 0.5
"""Of ``max.poll.interval.ms``."""


class Clients(Protocol):
    """Settings of Kafka clients by role (`service.worker.lending`)."""

    def of(self, role: str, connector: Mapping[str, str] | None = None) -> KafkaSettings:
        """The worker's, over them the connector's overrides."""


class Registries(Protocol):
    """Schema registries that connectors name."""

    async def registry(self, settings: RegistrySettings) -> RegistryClient:
        """The one client of a registry."""


@dataclass(frozen=True, slots=True)
class SinkParts:
    """What the worker lends to sinks."""

    clients: Clients
    registries: Registries
    clock: Clock
    emit: Emit
    memory: MemoryBudget
    """That of all tasks together."""
    http: HttpDoor
    spark: Spark
    """Asked by `Sql` alone."""
    flush_seconds: float = 60.0
    """``offset.flush.interval.ms``."""


@dataclass(frozen=True, slots=True)
class DefinedSink:
    """A sink as it is configured, as the worker runs it: see ``service.worker.kinds.DefinedConnector``."""

    parts: SinkParts
    traits: ConnectorTraits
    definition: SinkDefinition

    def split(self) -> Sequence[Mapping[str, str]]:
        """For each task the keys that it has besides the connector's own; runs the sink's code."""
        return self.definition.new_connector().task_configs(self.definition.common.tasks_max)

    async def work_changed(self, context: WorkContext) -> None:
        """Never: new topics and partitions are the consumer group's to deal out."""
        del context
        await asyncio.Event().wait()

    def prepare_task(self, task_id: TaskId, use_topic: UseTopic, confirm: Confirm) -> MakeTask:
        """Make the connector's instance; the rest waits for Kafka, whose consumer group says what is whose."""
        del confirm
        connector = self.definition.new_connector()

        async def make_task() -> SinkTask:
            await _demand_sql(self.definition, self.parts.spark)
            await _ensure_dead_letter_topic(self.definition, self.parts)
            return await sink_task(task_id, self.definition, self.parts, connector=connector, use_topic=use_topic)

        return make_task


async def sink_task(
    task_id: TaskId,
    definition: SinkDefinition,
    parts: SinkParts,
    *,
    connector: SinkConnector[Any],
    use_topic: UseTopic = lambda _topic: None,
) -> SinkTask:
    """One incarnation; nothing of it runs yet."""
    consumer = _named(parts.clients.of("consumer", definition.properties), f"connector-consumer-{task_id}")
    rules = _dead_letters(definition)

    def open_consumer(listener: GroupListener) -> GroupConsumer:
        return GroupConsumer(consumer, definition.subscription, group_id=definition.group_id, listener=listener)

    def open_writer() -> LetterWriter:
        settings = _named(parts.clients.of("producer", definition.properties), f"connector-dlq-producer-{task_id}")
        if definition.writes_letters_in_transactions:
            return GroupWriter(settings, transactional_id=definition.transactional_id(task_id.task))
        return IdempotentWriter(settings, last_topic=rules.topic)

    return SinkTask(
        task_id,
        connector,
        await _settings(task_id, definition, rules, parts, connector, consumer.consumer.poll_seconds_max),
        open_consumer,
        open_writer if rules.topic else None,
        parts.clock,
        parts.emit,
        parts.memory.share(task_id, parts.emit),
        parts.http,
        use_topic=use_topic,
    )


async def sql_findings(definitions: Iterable[SinkDefinition], check: PlanCheck) -> Mapping[str, Sequence[Finding]]:
    """What Spark finds in the texts of `Sql`, whatever records come, by the sinks' names.

    Raises ConversionRetriable where Spark cannot be asked.
    """
    return {
        definition.name: as_findings(await check(definition.select_plan), definition.properties)
        for definition in definitions
        if definition.asks_spark
    }


async def _demand_sql(definition: SinkDefinition, spark: Spark) -> None:
    """Raises ConnectorRefusedError with what Spark finds in the texts of `Sql`."""
    for found in (await sql_findings([definition], spark.check)).values():
        if found:
            raise ConnectorRefusedError("; ".join(finding.message for finding in found))


async def _settings(  # noqa: PLR0917 - everything a task is made of
    task_id: TaskId,
    definition: SinkDefinition,
    rules: DeadLetterRules,
    parts: SinkParts,
    connector: SinkConnector[Any],
    poll_seconds_max: float,
) -> SinkSettings:
    common, limits = definition.common, connector.put_limits
    # A put, and after it a flush and a commit, must fit between two polls, or the group goes on without this member.
    put_seconds_max = min(limits.seconds_max, poll_seconds_max * _PUT_SHARE_OF_POLL_INTERVAL)
    retry_seconds = common.errors_retry_timeout / 1000
    events = TaskEvents(parts.emit, task_id.connector, task_id.task)
    return SinkSettings(
        decoding=Decoding(
            await _side(definition.key_converter, KEY_STAGE, parts),
            await _side(definition.value_converter, VALUE_STAGE, parts),
            f"{definition.connector_class.__module__}.{definition.connector_class.__qualname__}",
            definition.steps,
            _header_reader(definition),
            HeaderReader(definition.header_form),
            Selecting(parts.spark, events, parts.clock) if definition.asks_spark else None,
        ),
        dead_letters=rules,
        put_limits=replace(limits, seconds_max=put_seconds_max),
        flush_seconds=connector.flush_interval_seconds or parts.flush_seconds,
        put_back_off=BackOff(cap_seconds=common.errors_retry_delay_max_ms / 1000),
        put_retry_seconds_max=retry_seconds if retry_seconds > 0 else None,
    )


async def _side(converter: Converter, stage: str, parts: SinkParts) -> SideReader:
    registry = None if converter.registry is None else await parts.registries.registry(converter.registry)
    return SideReader(column_reader(converter, registry), converter.class_name, stage)


def _header_reader(definition: SinkDefinition) -> SideReader | None:
    """Of JsonConverter, and of numbers; the other converters read any bytes."""
    form = definition.header_form
    if form is not None and form.kind.number is not None:
        return SideReader(NumberReader(form.kind.number), form.kind.number.class_name, HEADER_STAGE)
    if form is None or form.kind is not ConverterKind.JSON:
        return None
    return SideReader(EnvelopeReader() if form.is_schema_enveloped else JsonReader(), JSON_CONVERTER, HEADER_STAGE)


def _dead_letters(definition: SinkDefinition) -> DeadLetterRules:
    common = definition.common
    return DeadLetterRules(
        is_tolerant=common.is_tolerant,
        topic=common.errors_deadletterqueue_topic_name if common.is_tolerant else "",
        has_headers=common.errors_deadletterqueue_context_headers_enable,
        is_logged=common.errors_log_enable,
    )


async def _ensure_dead_letter_topic(definition: SinkDefinition, parts: SinkParts) -> None:
    """One partition, as in Connect; the default number of replicas is lowered to the brokers there are."""
    topic = _dead_letters(definition).topic
    if not topic:
        return
    is_given = _REPLICATION_KEY in definition.properties
    async with KafkaAdmin.opened(parts.clients.of("admin", definition.properties)) as admin:
        await admin.ensure_topic(
            topic,
            partitions=1,
            replication=definition.common.errors_deadletterqueue_topic_replication_factor if is_given else None,
        )


def _named(settings: KafkaSettings, client_id: str) -> KafkaSettings:
    """With Connect's client id, unless another was given."""
    return replace(settings, client_id=client_id) if settings.client_id == _UNNAMED_CLIENT else settings
