"""The control plane's share of the composition: stores, membership, instances, and the herder over them.

A standalone and a distributed worker differ in two parts only: where connectors and states are kept, and who else is
in the group.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext
from typing import Any, TypeVar

from fetchers.sdk import Clock, Finding, SourceConnector
from metrics.events import ConfigWarning, Emit, HerderStepFailed
from service.background import Background
from service.config.definition import read_definition
from service.config.listeners import parse_listeners
from service.config.providers import Resolved
from service.config.sink import group_of
from service.config.worker import WorkerConfig
from service.domain.cluster import ClusterConfig, Member, Properties
from service.herder.assignment import AssignmentTracker
from service.herder.desired import demand_wanted
from service.herder.herder import WorkerHerder, make_herder
from service.herder.membership import GroupMembership, Patience, SoloMembership, group_settings
from service.herder.offsets import CHECK_SECONDS_MAX, SinkOffsetAccess, SourceOffsetAccess
from service.herder.peers import HttpPeers
from service.herder.ports import ClusterDoors, HerderSettings, InstanceObserver, Membership
from service.herder.view import ClusterView
from service.preview.judging import PreviewParts
from service.preview.requested import RequestedPreviews
from service.rest.ports import Surface
from service.sinks.definition import read_sink_definition
from service.stores.kafka_log import LogClients
from service.stores.offset_changes import ForgottenWith
from service.stores.opening import StateStores, stores_in_kafka, stores_in_memory
from service.validation.connectors import find_connector
from service.validation.deep import DeepChecks
from service.validation.plugins import ConnectorPlugins
from service.validation.validator import Validation
from service.worker.connector_kafka import ConnectorKafka
from service.worker.connectors import ConnectorParts
from service.worker.deleted_sources import DeletedSourceCalls
from service.worker.foreign_calls import Calls, ForeignCallHangsError
from service.worker.instances import InstanceParts, RunningInstances
from service.worker.kinds import Kinds

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What all runs of a worker share, and lend to its connectors."""

    config: WorkerConfig
    properties: Mapping[str, str]
    """The worker's, with what stands for ``embedded`` in them."""
    resolution: Callable[[Properties], Resolved]
    """A connector's config with values for its variables, and what came from a variable; may block."""
    kinds: Kinds
    connectors: ConnectorParts
    deep: DeepChecks
    """Who else is asked about a config that is to be written."""

    @property
    def kafka(self) -> ConnectorKafka:
        """What is asked of Kafka on behalf of connectors."""
        parts = self.connectors
        replication = self.config.offset_storage_replication_factor
        return ConnectorKafka(parts.writers.clients, parts.offsets, parts.dedupe.store, replication, self.resolution)


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """What a worker's control plane is made from; ``open`` makes one run of it."""

    parts: WorkerParts
    me: Member
    is_distributed: bool
    surface: Surface
    """Of REST: its levels of logging, and the requests that go before starts."""
    tls: SSLContext | None
    """For requests to other workers."""
    calls: Calls

    @property
    def clock(self) -> Clock:
        """The clock that all parts of the worker share."""
        return self.parts.connectors.flow.clock

    @property
    def emit(self) -> Emit:
        """Takes the events of all parts of the worker."""
        return self.parts.connectors.flow.emit

    def plugins(self) -> ConnectorPlugins:
        """What can be run here, and its validation."""
        return ConnectorPlugins(
            Validation(self.parts.properties, self.parts.resolution),
            self.calls,
            self._tell_warnings,
            self.parts.deep,
        )

    def previews(self) -> RequestedPreviews:
        """What would be written of sources' first records."""
        lent = self.parts.connectors
        parts = PreviewParts(lent.schemas.contract_of, lent.flow.convert, lent.check_plan)
        return RequestedPreviews(
            parts, self.parts.properties, self.parts.resolution, self.calls, self.surface.health.hide
        )

    @asynccontextmanager
    async def open(self, plugins: ConnectorPlugins) -> AsyncIterator[WorkerHerder]:
        """A herder with everything it needs, not started."""
        async with AsyncExitStack() as stack:
            background = await stack.enter_async_context(Background())
            peers = await stack.enter_async_context(HttpPeers(tls=self.tls))
            stores = self._stores()
            # Before the herder's own ear: when that hears of a record, it is known whose the connector is.
            tracker = AssignmentTracker(ClusterConfig())
            stores.configs.listen(tracker.on_change)
            made: list[RunningInstances] = []

            def make_instances(observer: InstanceObserver) -> RunningInstances:
                made.append(RunningInstances(self._instance_parts(observer, stores)))
                return made[0]

            membership = self._membership(tracker, stores)
            herder = make_herder(
                ClusterView(
                    stores.configs,
                    stores.statuses,
                    membership,
                    tracker,
                    self._settings(),
                    partial(type_of, worker=self.parts.properties),
                ),
                self._doors(plugins, peers, stores),
                make_instances=make_instances,
                background=background,
                clock=self.clock,
                emit=self.emit,
            )
            await stack.enter_async_context(made[0])
            yield herder

    def _stores(self) -> StateStores:
        if not self.is_distributed:
            return stores_in_memory(self.parts.config, clock=self.clock, emit=self.emit)
        settings = self.parts.connectors.writers.clients
        clients = LogClients(settings.of("consumer"), settings.of("producer"))
        return stores_in_kafka(self.parts.config, self.parts.properties, clients, clock=self.clock, emit=self.emit)

    def _membership(self, tracker: AssignmentTracker, stores: StateStores) -> Membership:
        config = self.parts.config
        if not self.is_distributed:
            return SoloMembership(self.me, tracker)
        group = group_settings(
            config.group_id,
            session_seconds=config.session_timeout_ms / 1000,
            heartbeat_seconds=config.heartbeat_interval_ms / 1000,
            rebalance_seconds=config.rebalance_timeout_ms / 1000,
        )
        return GroupMembership(
            self.me,
            self.parts.connectors.writers.clients.of("consumer"),
            group,
            tracker,
            catch_up=stores.configs.read_to_end,
            statuses=stores.statuses,
            patience=Patience(config.scheduled_rebalance_max_delay_ms / 1000, config.worker_sync_timeout_ms / 1000),
            emit=self.emit,
        )

    def _instance_parts(self, observer: InstanceObserver, stores: StateStores) -> InstanceParts:
        return InstanceParts(
            kinds=self.parts.kinds,
            confirm=partial(demand_wanted, stores.configs),
            observer=observer,
            clock=self.clock,
            emit=self.emit,
            stop_seconds_max=self.parts.config.task_shutdown_graceful_timeout_ms / 1000,
            version_of=partial(version_of, worker=self.parts.properties),
            resolve=self.parts.resolution,
            foreground=self.surface.foreground,
        )

    def _doors(self, plugins: ConnectorPlugins, peers: HttpPeers, stores: StateStores) -> ClusterDoors:
        kafka = self.parts.kafka
        checks = OffsetChecks(self.parts.properties, self.parts.resolution, self.calls)
        return ClusterDoors(
            validator=plugins,
            source_offsets=SourceOffsetAccess(
                self.parts.config.group_id,
                kafka.offsets,
                kafka.dedupe_store,
                kafka.settings,
                checks.of_source,
                task_count=lambda name: stores.configs.config.task_counts.get(name, 0),
            ),
            sink_offsets=SinkOffsetAccess(kafka.settings, group_of, checks.of_sink),
            peers=peers,
            deleted_sources=DeletedSourceCalls(
                self.parts.connectors.flow, self.parts.properties, self.parts.resolution
            ),
            fence_producers=kafka.fence_producers,
            cluster_id=kafka.cluster_id,
            set_log_level=self._set_log_level,
            hide=self.surface.health.hide,
        )

    def _settings(self) -> HerderSettings:
        config = self.parts.config
        return HerderSettings(
            config.group_id,
            is_standalone=not self.is_distributed,
            has_topic_tracking=config.topic_tracking_enable,
            may_reset_topics=config.topic_tracking_allow_reset,
            graceful_seconds=config.task_shutdown_graceful_timeout_ms / 1000,
            doubt_seconds=config.session_timeout_ms / 1000,
            key_seconds_max=config.inter_worker_key_ttl_ms / 1000,
            key_algorithm=config.inter_worker_key_generation_algorithm,
            signature_algorithm=config.inter_worker_signature_algorithm,
            verification_algorithms=config.inter_worker_verification_algorithms,
        )

    def _set_log_level(self, namespace: str, level: str) -> None:
        try:
            self.surface.loggers.set(namespace, level)
        except ValueError as error:
            self.emit(HerderStepFailed(step="log level", error_class="ValueError", message=str(error)))

    def _tell_warnings(self, connector: str, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self.emit(ConfigWarning(key=finding.key, message=finding.message, connector=connector))


@dataclass(frozen=True, slots=True)
class OffsetChecks:
    """Connectors' own opinions of offsets that a person wants to change (`CheckOffsets`, `CheckSinkOffsets`).

    They are asked in threads that no stop of the worker waits for: a client may try for minutes, or for ever.
    """

    worker: Properties
    """The worker's properties."""
    resolution: Callable[[Properties], Resolved]
    """Values for the variables of a connector's config; may block."""
    calls: Calls

    async def of_source(
        self, connector: Properties, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> ForgottenWith:
        """Raises ValueError with the source's text, and TimeoutError where it has not returned."""

        def checked() -> SourceConnector[Any]:
            resolved = self.resolution(connector).properties
            definition = read_definition(resolved, worker=self.worker).definition
            if definition is None:
                raise ValueError(f"Failed to modify offsets for source connector {connector.get('name', '')}")
            made = definition.for_task({})
            made.check_offsets(offsets)
            return made

        source = await self._answer(connector, checked)

        async def forgotten_with(
            partition: Mapping[str, Any], stored: Sequence[Mapping[str, Any]]
        ) -> Sequence[Mapping[str, Any]]:
            return await self._answer(connector, partial(source.forgotten_with, partition, stored))

        return forgotten_with

    async def of_sink(self, connector: Properties, offsets: Mapping[tuple[str, int], int | None]) -> None:
        """Raises ValueError with the sink's text, and TimeoutError where it has not returned."""

        def check() -> None:
            resolved = self.resolution(connector).properties
            definition = read_sink_definition(resolved, worker=self.worker).definition
            if definition is None:
                raise ValueError(f"Failed to modify offsets for sink connector {connector.get('name', '')}")
            definition.new_connector().check_offsets(offsets)

        await self._answer(connector, check)

    async def _answer(self, connector: Properties, call: Callable[[], T]) -> T:
        subject = ("offsets", connector.get("name", ""))
        try:
            return await self.calls.run(call, subject=subject, seconds_max=CHECK_SECONDS_MAX)
        except ForeignCallHangsError as error:
            raise TimeoutError(str(error)) from error


def type_of(connector: Properties, *, worker: Properties) -> str:
    """What a connector of this config is for clients: ``source``, ``sink`` or ``unknown``."""
    known = find_connector(connector.get("connector.class", "").strip(), worker)
    return "unknown" if known is None else known.kind.name


def version_of(class_name: str, *, worker: Properties) -> str | None:
    """Of the class that ``connector.class`` names; None where there is none. May import it."""
    known = find_connector(class_name.strip(), worker)
    return None if known is None else known.plugin.version


def advertised(config: WorkerConfig, urls: Sequence[str]) -> Member:
    """Where the other workers reach this one, of the addresses it listens on."""
    wanted = config.rest_advertised_listener
    url = next((url for url in urls if wanted is None or url.startswith(f"{wanted.lower()}://")), urls[0])
    scheme, _, place = url.partition("://")
    host, _, port = place.rpartition(":")
    if config.rest_advertised_host_name:
        host = config.rest_advertised_host_name
    elif parse_listeners(config.listeners)[urls.index(url)].is_everywhere:
        host = socket.getfqdn()
    return Member(f"{scheme}://{host}:{config.rest_advertised_port or port}")
