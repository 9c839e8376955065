"""The composition root: makes every part of a worker and puts them together. Nothing else does.

Order of the start: HTTP first (health can be asked from the first moment), then Kafka and the registry, Spark in the
background; tasks start at once and wait for what they need.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from fetchers.catalog import shared_http
from fetchers.sdk import Finding
from fetchers.sdk.clock import SystemClock
from metrics.events import ConfigWarning, Emit, WorkerStarted, discard
from metrics.fanout import Emitter
from metrics.log_levels import LogLevels
from metrics.logging import LogObserver
from metrics.progress import ProgressView
from metrics.prometheus import PrometheusObserver
from service.config.definition import SOURCES, ConnectorDefinition
from service.config.reach import reach_of
from service.config.worker import EMBEDDED
from service.control import ControlPlane, WorkerParts, advertised
from service.domain.states import TargetState
from service.herder.herder import WorkerHerder
from service.herder.run import FileConnector, WorkerRun
from service.job import ConfigRefusedError, Job, SourceFindings
from service.pipeline.memory import MemoryBudget, default_bytes_max
from service.pipeline.task import FlowParts
from service.registry.settings import RegistrySettings
from service.rest.health import Health, WorkerPhase
from service.rest.ports import Surface
from service.rest.server import serving_rest
from service.rest.settings import RestSettings, read_rest_settings
from service.sinks.connectors import DefinedSink, SinkParts, sql_findings
from service.sinks.definition import SINKS
from service.stores.connector_offsets import OffsetTopics
from service.stores.dedupe_store import DedupeStore
from service.surroundings import (
    Conversion,
    return_freed_memory,
    spark_settings,
    start_conversion,
    start_kafka,
    start_registry,
)
from service.validation.deep import DeepChecks
from service.validation.outside import Outside
from service.validation.plugins import ConnectorPlugins
from service.version import VERSION
from service.worker.connectors import RULES_SECONDS_MAX, ConnectorParts, rule_findings
from service.worker.conversion import ConversionService
from service.worker.foreign_calls import Calls, ForeignCalls
from service.worker.kinds import KindMaker, Kinds
from service.worker.lending import ClientSettings, DedupeStates, Writers
from service.worker.schemas import RegistrySchemas
from service.worker.sources import DefinedSource
from service.worker.topics import ConnectorTopics
from spark_batch.errors import ConversionError


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a running worker and what it embeds can be reached."""

    rest: str
    bootstrap: str
    registry: str | None


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A worker whose parts are started; ``worker.run`` runs its connectors."""

    worker: WorkerRun
    new_worker: Callable[[], WorkerRun]
    """Another run of the same connectors, after ``worker``'s has ended."""
    addresses: Addresses
    definitions: tuple[ConnectorDefinition, ...]
    parts: ConnectorParts
    progress: ProgressView


@asynccontextmanager
async def open_worker(
    job: Job,
    *,
    observers: tuple[Emit, ...] = (),
    is_distributed: bool = False,
    conversion: Conversion | None = None,
    calls: Calls | None = None,
) -> AsyncIterator[RunningWorker]:
    """Start every part, yield the worker, and stop every part in reverse order.

    ``is_distributed``: connectors are in the config topic, beside those of the other workers of the group; else they
    are the job's, and what clients add lasts until the process ends. ``conversion``: another than Spark's.
    ``calls``: where connectors' own code is asked for its checks, with limits other than the usual.
    """
    return_freed_memory()
    config, clock = job.worker, SystemClock()
    health = Health(hide=job.providers.redactor.redact)
    metrics, loggers = PrometheusObserver(), LogLevels()
    progress = ProgressView(metrics.lag_seconds)
    emit = Emitter(metrics, health, progress, LogObserver(), *observers)
    started_at = clock.monotonic()
    async with AsyncExitStack() as stack:
        rest = _rest_settings(job)
        surface = Surface(health=health, metrics=metrics, progress=progress, loggers=loggers, version=VERSION)
        urls = await stack.enter_async_context(serving_rest(rest, surface, emit))
        spark = conversion or ConversionService(spark_settings(job), config, clock=clock, emit=emit)
        await start_conversion(spark, stack)
        bootstrap = await start_kafka(config, stack, emit)
        addresses = Addresses(urls.main[0], bootstrap, await start_registry(job, stack, emit))
        _tell_warnings(job, emit)
        parts = await _lend(job, addresses, spark=spark, emit=emit, stack=stack)
        # Asks the resolver, which may take its time: health is answered meanwhile.
        me = await asyncio.to_thread(advertised, config, urls.main)
        tls = None if rest.tls is None else rest.tls.client
        control = ControlPlane(parts, me, is_distributed, surface, tls, calls or ForeignCalls())
        definitions = job.definitions(registry_url=addresses.registry)
        runs = Runs(job, control, control.plugins(), addresses.rest, started_at, definitions)
        surface.plugins, surface.previews = runs.plugins, control.previews()
        yield RunningWorker(runs.new(), runs.new, addresses, definitions, parts.connectors, progress)


@dataclass(frozen=True, slots=True)
class Runs:
    """Makes runs of one worker; REST speaks to the one that runs."""

    job: Job
    control: ControlPlane
    plugins: ConnectorPlugins
    rest_url: str
    started_at: float
    definitions: tuple[ConnectorDefinition, ...]

    def new(self) -> WorkerRun:
        """Another run of the worker, with the job's connectors as their files say; nothing of it has begun."""
        control = self.control
        connectors = [FileConnector(each, initial_state(self.job, each["name"])) for each in self.job.connectors]
        stop_seconds_max = control.parts.config.task_shutdown_graceful_timeout_ms / 1000
        return WorkerRun(
            self._open, connectors, control.clock, control.emit, stop_seconds_max, self._on_started, self._refusal
        )

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[WorkerHerder]:
        async with self.control.open(self.plugins) as herder:
            self.control.surface.herder, self.control.surface.health.phase = herder, WorkerPhase.STARTING
            try:
                yield herder
            finally:
                self.control.surface.herder = None

    async def _refusal(self) -> ConfigRefusedError | None:
        """Why the job's own connectors cannot run, as far as only Spark can tell."""
        parts = self.control.parts.connectors
        found = await rule_findings(self.definitions, parts.schemas, parts.check_plan)
        named = zip(self.definitions, found, strict=True)
        told = {definition.name: findings for definition, findings in named}
        return self.job.refusal({**told, **await self._found_in_sinks()})

    async def _found_in_sinks(self) -> Mapping[str, Sequence[Finding]]:
        """Nothing where Spark cannot be asked now: their tasks will tell."""
        parts = self.control.parts.connectors
        try:
            async with asyncio.timeout(RULES_SECONDS_MAX):
                return await sql_findings(self.job.sinks(), parts.check_plan)
        except (TimeoutError, ConversionError):
            return {}

    def _on_started(self) -> None:
        control = self.control
        seconds = control.clock.monotonic() - self.started_at
        group_id = control.parts.config.group_id
        control.emit(WorkerStarted(version=VERSION, group_id=group_id, rest_url=self.rest_url, seconds=seconds))


def initial_state(job: Job, connector: str) -> TargetState | None:
    """What a connector's file says that it is to begin as."""
    return {"PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}.get(job.initial_states.get(connector, ""))


async def _lend(job: Job, addresses: Addresses, *, spark: Conversion, emit: Emit, stack: AsyncExitStack) -> WorkerParts:
    """Make what connectors are given."""
    config, clock = job.worker, SystemClock()
    resolution = partial(job.resolution, registry_url=addresses.registry)
    properties = job.worker_with(addresses.registry)
    clients = ClientSettings(job.worker_properties, addresses.bootstrap)
    offsets = OffsetTopics(
        clients.of("consumer"),
        config.offset_storage_topic,
        writing=clients.of("producer"),
        partitions=config.offset_storage_partitions,
        replication=config.offset_storage_replication_factor,
        emit=emit,
    )
    stack.push_async_callback(offsets.close)
    dedupe = DedupeStore(clients.of("consumer"), config.dedupe_topic, emit)
    reach = reach_of(properties)
    schemas = await stack.enter_async_context(
        RegistrySchemas(contract_registry=_contract_registry(job, addresses), addresses=reach.addresses)
    )
    http = await stack.enter_async_context(shared_http(version=VERSION, paths=reach.paths, addresses=reach.addresses))
    topics = ConnectorTopics(clients.of("admin"), offsets, dedupe, config)
    stack.push_async_callback(topics.close)
    blocking = ForeignCalls()
    stack.callback(blocking.close)
    memory = MemoryBudget(config.memory_bytes_max or default_bytes_max())
    parts = ConnectorParts(
        flow=FlowParts(
            offsets=offsets.of(),
            convert=spark.convert,
            http=http,
            memory=memory,
            clock=clock,
            emit=emit,
            blocking=blocking,
        ),
        offsets=offsets,
        writers=Writers(clients, config.group_id, config.offset_storage_topic),
        dedupe=DedupeStates(dedupe, config.data_dir / "dedupe"),
        schemas=schemas,
        topics=topics,
        check_plan=spark.check,
    )
    flush_seconds = config.offset_flush_interval_ms / 1000
    sinks = SinkParts(clients, schemas, clock, emit, memory, http, spark, flush_seconds)
    # Sinks first: of a class of a user's own only they look whether it is theirs.
    kinds = Kinds(
        (
            KindMaker(SINKS, properties, partial(DefinedSink, sinks)),
            KindMaker(SOURCES, properties, partial(DefinedSource, parts)),
        )
    )
    deep = DeepChecks(Outside(schemas, spark.check, lambda: spark.is_ready), schemas, http, config, clients, blocking)
    return WorkerParts(config, properties, resolution, kinds, parts, deep)


@asynccontextmanager
async def open_deep_checks(job: Job, *, needs_spark: bool) -> AsyncIterator[DeepChecks]:
    """What ``validate --deep`` asks in a worker's place; nothing that the worker embeds is started but Spark."""
    config, reach = job.worker, reach_of(job.worker_with(None))
    async with AsyncExitStack() as stack:
        spark = ConversionService(spark_settings(job), config, clock=SystemClock(), emit=discard)
        if needs_spark:
            await start_conversion(spark, stack)
        url = config.schema_registry_url
        registry = _contract_registry(job, Addresses("", "", None if url == EMBEDDED else url))
        schemas = RegistrySchemas(contract_registry=registry, addresses=reach.addresses)
        await stack.enter_async_context(schemas)
        http = shared_http(version=VERSION, paths=reach.paths, addresses=reach.addresses)
        is_embedded = config.bootstrap_servers == EMBEDDED
        clients = None if is_embedded else ClientSettings(job.worker_properties, config.bootstrap_servers)
        calls = ForeignCalls()
        stack.callback(calls.close)
        outside = Outside(schemas, spark.check, lambda: True, seconds_max=RULES_SECONDS_MAX)
        yield DeepChecks(outside, schemas, await stack.enter_async_context(http), config, clients, calls)


def _contract_registry(job: Job, addresses: Addresses) -> RegistrySettings | None:
    """The worker's own, for contracts of connectors whose converters use none."""
    if addresses.registry is None:
        return None
    settings, _ = RegistrySettings.parse({**job.worker_properties, "schema.registry.url": addresses.registry})
    return settings


def _tell_warnings(job: Job, emit: Emit) -> None:
    for source in job.warnings:
        for finding in source.findings:
            emit(ConfigWarning(key=finding.key, message=finding.message, connector=source.source))


def _rest_settings(job: Job) -> RestSettings:
    """Raises ``ConfigRefusedError`` with what is wrong with listeners, certificates and credentials."""
    settings, findings = read_rest_settings(job.worker, job.worker_properties)
    if settings is None:
        raise ConfigRefusedError([SourceFindings("worker", findings)])
    return settings
