"""A sink's whole config, read: its class, its own config and the worker's share of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fetchers.catalog import Plugin, PluginLoadError
from fetchers.sdk import Finding
from service.config.converters import Converter, read_header_converter
from service.config.definition import as_findings
from service.config.kinds import ConnectorKind, Reading
from service.config.parts import class_not_found_findings, read_parts
from service.config.reach import ConnectorReach, class_refusal, reach_of
from service.config.sink import SinkConnectorConfig, group_of, topic_findings
from service.config.transformations import read_transformations
from service.kafka.group_consumer import Subscription
from service.kafka.producer import transactional_id
from service.sinks.batch import Form
from service.sinks.catalog import find_sink, sink_plugins
from service.sinks.contract import SinkConfig, SinkConnector
from service.sinks.transforms.selecting import select_plan
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec
from spark_batch.plan_findings import plan_findings
from spark_batch.plan_misfits import untyped_selects
from spark_batch.transforms.catalog import Side, Step
from spark_batch.transforms.java_pattern import java_pattern


@dataclass(frozen=True, slots=True)
class SinkDefinition:
    """A sink's config, read and checked: what its tasks are made from."""

    properties: Mapping[str, str]
    plugin: Plugin
    connector_class: type[SinkConnector[Any]]
    common: SinkConnectorConfig
    own: SinkConfig
    key_converter: Converter
    value_converter: Converter
    reach: ConnectorReach
    """What the worker lets it reach."""
    steps: tuple[Step, ...] = ()
    """Transformations of decoded records."""
    header_form: ConverterSpec | None = None
    """How headers are read; None: by SimpleHeaderConverter, which reads anything."""

    @property
    def name(self) -> str:
        """Name of the connector (``name``)."""
        return self.common.name

    @property
    def group_id(self) -> str:
        """Id of the consumer group that its tasks form."""
        return group_of(self.name, self.properties)

    @property
    def subscription(self) -> Subscription:
        """The topics, or the pattern of topics, that its group reads."""
        regex = self.common.topics_regex
        return Subscription(self.common.topics, java_pattern(regex) if regex else None)

    @property
    def select_plan(self) -> ConversionPlan:
        """What its `Sql` says, as a plan of which no schema is known yet; without steps where there is none."""
        return select_plan(self.steps)

    @property
    def asks_spark(self) -> bool:
        """Whether it says something that only Spark can judge: an `Sql`."""
        return bool(self.select_plan.transformations)

    @property
    def writes_letters_in_transactions(self) -> bool:
        """Whether dead letters go to a topic, and not at least once only."""
        common = self.common
        is_written = common.is_tolerant and bool(common.errors_deadletterqueue_topic_name)
        return is_written and common.delivery_guarantee == "exactly_once"

    def transactional_id(self, task: int) -> str:
        """Of the producer of a task's dead letters; begins with the group's name, so that one prefix allows both."""
        return transactional_id(group_id=self.group_id, connector="dead-letters", task=task)

    def new_connector(self) -> SinkConnector[Any]:
        """A new instance of the sink's class, for one run of one task."""
        connector = self.connector_class(self.own)
        connector.connector_name = self.name
        connector.allowed_paths = self.reach.paths
        connector.allowed_addresses = self.reach.addresses
        return connector


def read_sink_definition(properties: Mapping[str, str], *, worker: Mapping[str, str]) -> Reading[SinkDefinition]:
    """Read a sink's config; every finding at once."""
    class_name = properties.get("connector.class", "")
    plugin = find_sink(class_name, refusal=class_refusal(class_name, worker))
    if plugin is None:
        missing = class_not_found_findings(class_name, (known.name for known in sink_plugins()))
        return Reading(None, (*SinkConnectorConfig.parse(properties).findings, *missing))
    try:
        connector_class = plugin.load()
    except PluginLoadError as error:
        text = f"Class {class_name} could not be found: {error}"
        missing = (Finding("connector.class", class_name, text),)
        return Reading(None, (*SinkConnectorConfig.parse(properties).findings, *missing))
    transformations = read_transformations(properties, is_sink=True)
    headers = read_header_converter(properties, worker)
    reading = read_parts(
        properties,
        worker=worker,
        common_class=SinkConnectorConfig,
        own_class=connector_class.config_class,
        also_found=(*topic_findings(properties), *headers.findings, *transformations.findings),
    )
    if reading.parts is None:
        return Reading(None, reading.findings)
    definition = SinkDefinition(
        properties=dict(properties),
        plugin=plugin,
        connector_class=connector_class,
        common=reading.parts.common,
        own=reading.parts.own,
        key_converter=reading.parts.key_converter,
        value_converter=reading.parts.value_converter,
        reach=reach_of(worker),
        steps=transformations.steps,
        header_form=headers.form,
    )
    checks = (*_form_findings(definition), *_sql_findings(definition), *definition.new_connector().findings())
    findings = reading.with_checks(checks)
    is_refused = any(finding.is_error for finding in findings)
    return Reading(None if is_refused else definition, findings)


_FORMS = {ConverterKind.BYTES: Form.BYTES, ConverterKind.STRING: Form.TEXT, ConverterKind.JSON: Form.JSON}
"""What a converter makes of values; a RECORD otherwise."""


def _form_findings(definition: SinkDefinition) -> tuple[Finding, ...]:
    """What a converter makes is taken by the sink, or made into something else by a transformation."""
    accepts, converter = definition.connector_class.accepts, definition.value_converter
    if definition.steps or _FORMS.get(converter.spec.kind, Form.RECORD) in accepts:
        return ()
    forms = ", ".join(sorted(accepts))
    text = f"{definition.plugin.name} takes values of these forms: {forms}; this converter makes another"
    return (Finding("value.converter", converter.class_name, text),)


def _sql_findings(definition: SinkDefinition) -> Iterator[Finding]:
    """What can be told of `Sql` without Spark, and where no record can have fields whose types are known."""
    yield from as_findings(plan_findings(definition.select_plan), definition.properties)
    sides = {Side.KEY: definition.key_converter, Side.VALUE: definition.value_converter}
    kinds = {side: converter.spec.kind for side, converter in sides.items()}
    plain = {side for side, kind in kinds.items() if kind.is_single}
    loose = {side for side in sides if kinds[side] is ConverterKind.JSON and not sides[side].spec.is_schema_enveloped}
    for name, side in untyped_selects(definition.steps, plain=plain, loose=loose):
        text = (
            f"transforms.{name} is Sql, which needs fields whose types are known; Expected AvroConverter, "
            "JsonConverter with schemas.enable=true, or texts in records, as `HoistField` makes them"
        )
        yield Finding(f"{side}.converter", sides[side].class_name, text)


SINKS = ConnectorKind(
    name="sink",
    common_class=SinkConnectorConfig,
    plugins=sink_plugins,
    find=find_sink,
    read=read_sink_definition,
)
