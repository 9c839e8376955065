"""A connector's whole config, read: its class, its own config, the worker's share of it, and the conversion plan.

Everything that can be found wrong without asking the outside is found at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fetchers.catalog import Plugin, PluginLoadError, find_plugin, source_plugins
from fetchers.sdk import FetcherConfig, Finding, PayloadKind, SourceConnector
from fetchers.sdk.reach import AllowedPaths, PathRefusedError
from service.config.connector import SourceConnectorConfig
from service.config.converters import Converter, read_header_converter
from service.config.kinds import ConnectorKind, Reading
from service.config.parts import class_not_found_findings, read_parts
from service.config.reach import ConnectorReach, class_refusal, reach_of
from service.config.topic_creation import TopicCreation, read_topic_creation
from service.config.transformations import read_transformations
from service.kafka.topic_names import TOPIC_NAME_RULE, is_topic_name
from spark_batch.coercion import TYPELESS, Coerce
from spark_batch.plan import Contract, ConversionPlan, ConverterSpec, PayloadFormat, PlanFinding, Rule, UnknownFields
from spark_batch.plan_findings import plan_findings
from spark_batch.transforms.applied import applied_steps, topics_after
from spark_batch.transforms.catalog import ByLogicalTableRouter, RegexRouter, Sql, Step, TimestampRouter

RULES_PREFIX = "contract.rules."
SCHEMA_BYTES_MAX = 4 * 1024 * 1024
"""Of a schema in a file; a larger one is something else, named by mistake."""


@dataclass(frozen=True, slots=True)
class ContractSource:
    """Where ``contract.schema`` is to be had: its text, or a registry subject."""

    text: str | None = None
    is_shown: bool = True
    """Whether findings may quote the text: not where it is a file that others than the config's author keep."""
    subject: str | None = None
    version: str = "latest"


@dataclass(frozen=True, slots=True)
class ConnectorDefinition:
    """One connector as configured, ready to be planned."""

    properties: Mapping[str, str]
    plugin: Plugin
    connector_class: type[SourceConnector[Any]]
    common: SourceConnectorConfig
    own: FetcherConfig
    key_converter: Converter
    value_converter: Converter
    contract_source: ContractSource | None
    reach: ConnectorReach
    """What the worker lets it reach."""
    header_form: ConverterSpec | None = None
    """How headers are written that transformations make; None: as SimpleHeaderConverter writes them."""

    @property
    def name(self) -> str:
        """The connector's name, unique among all connectors of a cluster of workers."""
        return self.common.name

    @property
    def topic(self) -> str:
        """Topic of records that name none."""
        return self.own.topic

    @property
    def topic_creation(self) -> TopicCreation:
        """How its topics are made where they are missing."""
        return read_topic_creation(self.properties).creation

    @property
    def transformations(self) -> tuple[Step, ...]:
        """What its records go through between reading and writing."""
        return read_transformations(self.properties, header_form=self.header_form).steps

    @property
    def record_topic(self) -> str:
        """Topic in which records of `topic` end."""
        return applied_steps(self.transformations, self.topic, is_tombstone=False).topic

    @property
    def record_topics(self) -> tuple[str, ...]:
        """Topics in which records and tombstones of `topic` end, each once; none where pages or times name theirs."""
        if not self.topic:
            return ()
        steps = self.transformations
        values = topics_after(steps, self.topic, is_tombstone=False)
        return tuple(dict.fromkeys((*values, *topics_after(steps, self.topic, is_tombstone=True))))

    @property
    def asks_spark(self) -> bool:
        """Whether it says something that only Spark can judge: rules of its contract, or an `Sql`."""
        return any(key.startswith(RULES_PREFIX) for key in self.properties) or any(
            isinstance(step.transformation, Sql) for step in self.transformations
        )

    def for_task(self, overrides: Mapping[str, str]) -> SourceConnector[Any]:
        """A new instance of the connector's class for one task, whose own keys are ``overrides``.

        Raises ValueError where the two together are not valid.
        """
        parsed = self.connector_class.config_class.parse({**self.properties, **overrides})
        if parsed.config is None:
            message = f"task config of {self.name} is not valid: {[f.message for f in parsed.findings]}"
            raise ValueError(message)
        connector = self.connector_class(parsed.config)
        connector.allowed_paths = self.reach.paths
        connector.allowed_addresses = self.reach.addresses
        return connector

    def plan(self, contract_schema: str | None) -> ConversionPlan:
        """The conversion plan, without schema ids yet."""
        common = self.common
        contract = None
        if contract_schema is not None:
            unknown_fields = UnknownFields(common.contract_unknown_fields)
            contract = Contract(contract_schema, self._rules(), unknown_fields, coerce=self._coerce())
        dedupe = self.connector_class.default_dedupe_fields if common.dedupe_fields is None else common.dedupe_fields
        kind = self._payload_format()
        return ConversionPlan(
            payload_format=kind,
            contract=contract,
            key_fields=common.key_fields,
            timestamp_field=common.timestamp_field,
            dedupe_fields=dedupe,
            key_converter=self.key_converter.spec,
            value_converter=self.value_converter.spec,
            record_bytes_max=common.record_bytes_max,
            transformations=self.transformations,
            topic=self.topic if self.transformations else "",
            rules_of_rows=self._rules() if kind is PayloadFormat.ROWS and contract is None else (),
        )

    def _rules(self) -> tuple[Rule, ...]:
        return tuple(
            Rule(key.removeprefix(RULES_PREFIX), expression)
            for key, expression in sorted(self.properties.items())
            if key.startswith(RULES_PREFIX)
        )

    def _coerce(self) -> frozenset[Coerce]:
        """What texts are taken for; by default something only where the source has nothing but texts."""
        words = self.common.contract_coerce
        if words is not None:
            return frozenset(map(Coerce, words))
        return frozenset(TYPELESS if self.connector_class(self.own).is_typeless else ())

    def _payload_format(self) -> PayloadFormat:
        """What the payloads are; text whose fetcher itself knows fields in it is read as JSON."""
        kind = self.connector_class.payload_kind
        if kind is PayloadKind.TEXT and self.connector_class.default_dedupe_fields:
            return PayloadFormat.JSON
        return PayloadFormat(kind.value)


def read_definition(properties: Mapping[str, str], *, worker: Mapping[str, str]) -> Reading[ConnectorDefinition]:
    """Read a connector's config; every finding at once."""
    class_name = properties.get("connector.class", "")
    plugin = find_plugin(class_name, refusal=class_refusal(class_name, worker)) if class_name else None
    if plugin is None:
        missing = class_not_found_findings(class_name, (known.name for known in source_plugins()))
        return Reading(None, (*SourceConnectorConfig.parse(properties).findings, *missing))
    try:
        connector_class = plugin.load()
    except PluginLoadError as error:
        missing = (Finding("connector.class", class_name, f"Class {class_name} could not be found: {error}"),)
        return Reading(None, (*SourceConnectorConfig.parse(properties).findings, *missing))
    reach = reach_of(worker)
    contract_source, contract_findings = _contract_source(properties.get("contract.schema"), reach.paths)
    headers = read_header_converter(properties, worker)
    transformations = read_transformations(properties, header_form=headers.form)
    reading = read_parts(
        properties,
        worker=worker,
        common_class=SourceConnectorConfig,
        own_class=connector_class.config_class,
        also_found=(
            *contract_findings,
            *read_topic_creation(properties).findings,
            *headers.findings,
            *transformations.findings,
        ),
    )
    if reading.parts is None:
        return Reading(None, reading.findings)
    definition = ConnectorDefinition(
        properties=_without_transforms(properties) if transformations.findings else dict(properties),
        plugin=plugin,
        connector_class=connector_class,
        common=reading.parts.common,
        own=reading.parts.own,
        key_converter=reading.parts.key_converter,
        value_converter=reading.parts.value_converter,
        contract_source=contract_source,
        reach=reach,
        header_form=headers.form,
    )
    findings = reading.with_checks(
        (
            *connector_class(definition.own).findings(),
            *findings_of_plan(definition),
            *_topic_findings(definition, is_route_known=not transformations.findings),
        )
    )
    is_refused = any(finding.is_error for finding in findings)
    return Reading(None if is_refused else definition, findings)


SOURCES = ConnectorKind(
    name="source",
    common_class=SourceConnectorConfig,
    plugins=source_plugins,
    find=find_plugin,
    read=read_definition,
)


def findings_of_plan(definition: ConnectorDefinition) -> Sequence[Finding]:
    """What is wrong with the plan, as far as it is known: a contract in a registry is not looked up here."""
    source = definition.contract_source
    if source is not None and source.text is None:
        return ()
    plan = definition.plan(source.text if source else None)
    found = as_findings(plan_findings(plan), definition.properties)
    return found if source is None or source.is_shown else tuple(map(_without_content, found))


def _without_content(finding: Finding) -> Finding:
    """For a schema from a file: what is wrong with it is said without a word of it."""
    if finding.key != "contract.schema":
        return finding
    text = f"Invalid value {finding.value} for configuration contract.schema: the file holds no schema that can be used"
    return replace(finding, message=text)


def _topic_findings(definition: ConnectorDefinition, *, is_route_known: bool) -> Iterable[Finding]:
    """Topics that Kafka would not make."""
    named = [("topic", topic) for topic in definition.record_topics if is_route_known]
    if definition.common.is_tolerant:
        named.append(("errors.deadletterqueue.topic.name", definition.common.dead_letter_topic))
    if is_route_known and not definition.topic:  # else the one topic was looked at as it comes out of them
        named += _routed_topics(definition.transformations)
    for key, topic in named:
        if not is_topic_name(topic):
            text = f"Invalid value {topic} for configuration {key}: Expected a topic's name: {TOPIC_NAME_RULE}"
            yield Finding(key, topic, text)


def _routed_topics(steps: Iterable[Step]) -> Iterable[tuple[str, str]]:
    """What routers put into names of topics that only pages name, by key: letters that no topic may have are in all."""
    for step in steps:
        prefix, key, router = f"transforms.{step.name}.", "replacement", step.transformation
        if isinstance(router, ByLogicalTableRouter):
            key, router = "topic.replacement", router.topics
        if isinstance(router, RegexRouter) and not is_topic_name(f"t{router.literal}"):
            yield prefix + key, router.replacement
        if isinstance(router, TimestampRouter):
            literal = router.topic_format.replace("${topic}", "").replace("${timestamp}", "")
            if not is_topic_name(f"t{literal}"):
                yield f"{prefix}topic.format", router.topic_format


def as_findings(found: Iterable[PlanFinding], properties: Mapping[str, str]) -> tuple[Finding, ...]:
    """What the conversion found, in the words of configuration."""
    return tuple(_as_finding(item, properties) for item in found)


def _as_finding(item: PlanFinding, properties: Mapping[str, str]) -> Finding:
    key, seen = item.key, item.value
    if key == "contract.schema":  # the value is a whole schema, or says where it is: what is wrong is a place in it
        return Finding(
            key, properties.get(key), f"Invalid value for configuration {key}: {seen}; Expected {item.expected}"
        )
    return Finding(key, seen, f"Invalid value {seen} for configuration {key}: Expected {item.expected}")


def _without_transforms(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key != "transforms"}


def _contract_source(value: str | None, paths: AllowedPaths) -> tuple[ContractSource | None, tuple[Finding, ...]]:
    if not value:
        return None, ()
    if value.startswith("registry:"):
        return _registry_source(value)
    if not value.startswith("file:"):
        return ContractSource(text=value), ()
    try:
        content = paths.read(value.removeprefix("file:"), bytes_max=SCHEMA_BYTES_MAX).decode()
    except (PathRefusedError, OSError, UnicodeDecodeError) as error:
        text = f"Invalid value {value} for configuration contract.schema: the file cannot be read: {_why(error)}"
        return None, (Finding("contract.schema", value, text),)
    return ContractSource(text=content, is_shown=paths.roots is None), ()


def _why(error: Exception) -> str:
    """Without what stands in the file."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


def _registry_source(value: str) -> tuple[ContractSource | None, tuple[Finding, ...]]:
    subject, _, version = value.removeprefix("registry:").partition(":")
    version = version or "latest"
    if subject and (version == "latest" or (version.isascii() and version.isdigit() and int(version) > 0)):
        return ContractSource(subject=subject, version=version), ()
    text = (
        f"Invalid value {value} for configuration contract.schema: "
        "Expected registry:SUBJECT or registry:SUBJECT:VERSION, the version a number from 1 or 'latest'"
    )
    return None, (Finding("contract.schema", value, text),)
