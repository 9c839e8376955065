"""A standalone job: a worker's config and its connectors', read and validated together."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from fetchers.sdk import Finding, Severity
from fetchers.sdk.config import HIDDEN, ParsedConfig, unknown_keys
from service.config.borrowed_keys import CONNECTION_KEYS
from service.config.definition import ConnectorDefinition, read_definition
from service.config.files import ConfigFileError, read_connector, read_properties
from service.config.overrides import ROLES
from service.config.providers import ConfigProviders, ProviderError, Resolved, resolve_worker
from service.config.secret_names import names_a_secret, secrets_in
from service.config.worker import (
    EMBEDDED,
    PLACEHOLDER_REGISTRY,
    REGISTRY_KEY,
    WorkerConfig,
    with_defaults,
    with_registry,
)
from service.kafka.properties import read_settings
from service.rest.settings import read_rest_settings
from service.sinks.definition import SinkDefinition, read_sink_definition
from service.validation.connectors import find_connector
from service.validation.secrets import secrets_of_connector
from spark_batch.pinned_settings import PINNED_SETTINGS, refused_settings

Content = TypeVar("Content")

_ANY_WORKERS: tuple[Mapping[str, str], ...] = (
    with_defaults({}),
    {
        "key.converter": "avro",
        "value.converter": "avro",
        REGISTRY_KEY: PLACEHOLDER_REGISTRY,
        "connector.client.config.override.policy": "All",
    },
)
"""Workers that differ in all that makes a connector's config right or wrong."""
_SPARK_TOKEN = re.compile(r"(?<=token=)[^;\s]+")
"""A password within ``spark.remote``."""


@dataclass(frozen=True, slots=True)
class SourceFindings:
    """What was found in one file."""

    source: str
    findings: tuple[Finding, ...]


class ConfigRefusedError(Exception):
    """At least one finding is an error; carries all of them, of all files."""

    def __init__(self, sources: Sequence[SourceFindings]) -> None:
        """Keep the findings for whoever shows them."""
        super().__init__("configuration refused")
        self.sources = tuple(sources)


@dataclass(frozen=True, slots=True)
class Job:
    """A worker's config and its connectors' properties, valid together."""

    worker: WorkerConfig
    worker_properties: Mapping[str, str]
    """Variables of config providers resolved."""
    connectors: tuple[Mapping[str, str], ...]
    """As they were written, with their variables."""
    initial_states: Mapping[str, str] = field(default_factory=dict)
    """By connector, where a file says that it is to begin PAUSED or STOPPED."""
    sources: tuple[str, ...] = ()
    """Where each connector comes from, for findings."""
    warnings: tuple[SourceFindings, ...] = ()
    providers: ConfigProviders = field(default_factory=ConfigProviders)

    @property
    def needs_embedded_registry(self) -> bool:
        """Whether anything names the embedded registry."""
        return any(
            key.endswith(REGISTRY_KEY) and value == EMBEDDED
            for properties in (self.worker_properties, *self.connectors)
            for key, value in properties.items()
        )

    def resolution(self, properties: Mapping[str, str], *, registry_url: str | None) -> Resolved:
        """A connector's properties with values for variables, and for ``embedded``; raises ``ProviderError``.

        Its secrets are told to whoever hides them.
        """
        resolved = self.providers.resolve(properties)
        for secret in secrets_of_connector(resolved.properties, self.worker_properties):
            self.providers.redactor.learn(secret)
        return replace(resolved, properties=with_registry(resolved.properties, registry_url or PLACEHOLDER_REGISTRY))

    def resolved(self, properties: Mapping[str, str], *, registry_url: str | None) -> dict[str, str]:
        """The properties alone; raises ``ProviderError``."""
        return self.resolution(properties, registry_url=registry_url).properties

    def worker_with(self, registry_url: str | None) -> dict[str, str]:
        """The worker's properties, complete. Their variables are resolved already, and only once."""
        return with_defaults(with_registry(self.worker_properties, registry_url or PLACEHOLDER_REGISTRY))

    def definitions(self, *, registry_url: str | None = None) -> tuple[ConnectorDefinition, ...]:
        """The sources, with the embedded registry's URL in place."""
        worker = self.worker_with(registry_url)
        readings = [
            read_definition(self.resolved(connector, registry_url=registry_url), worker=worker)
            for connector in self.connectors
        ]
        return tuple(reading.definition for reading in readings if reading.definition is not None)

    def sinks(self, *, registry_url: str | None = None) -> tuple[SinkDefinition, ...]:
        """The sinks, likewise."""
        worker = self.worker_with(registry_url)
        readings = [
            read_sink_definition(self.resolved(connector, registry_url=registry_url), worker=worker)
            for connector in self.connectors
        ]
        return tuple(reading.definition for reading in readings if reading.definition is not None)

    def refusal(self, found: Mapping[str, Sequence[Finding]]) -> ConfigRefusedError | None:
        """What is found wrong with connectors, by their names, once the worker is there; None where nothing is."""
        told = []
        for source, connector in zip(self.sources, self.connectors, strict=True):
            resolved = self.resolution(connector, registry_url=None)
            told.append(SourceFindings(source, tuple(map(resolved.hidden, found.get(connector["name"], ())))))
        refused = [source for source in told if source.findings]
        return ConfigRefusedError(refused) if refused else None

    def secrets(self) -> Iterator[str]:
        """Values that no log line may show: those of secret keys, and of any key that is named like one."""
        yield from secrets_in(self.worker_properties)
        for connector in self.connectors:
            yield from secrets_of_connector(self.resolved(connector, registry_url=None), self.worker_properties)
        for held in (*self.worker.rest_auth_users.values(), *self.worker.rest_auth_tokens.values()):
            yield held.get_secret_value().partition(":")[2]


def read_job(worker_file: Path, connector_files: Sequence[Path]) -> Job:
    """Read and validate everything; raises ``ConfigRefusedError`` with all findings of all files."""
    problems: list[SourceFindings] = []
    worker = _read(worker_file, read_properties, problems)
    read = [(str(path), _read(path, read_connector, problems)) for path in connector_files]
    present = [(source, connector) for source, connector in read if connector is not None]
    misplaced = _misplaced(str(worker_file), worker, [(source, each.properties) for source, each in present])
    if misplaced:
        raise ConfigRefusedError(misplaced)
    sources, properties = [source for source, _ in present], [connector.properties for _, connector in present]
    if worker is None:
        told = [source for source in _findings_without_worker(sources, properties) if source.findings]
        raise ConfigRefusedError([*problems, *told])
    job = _checked(worker, properties, [str(worker_file), *sources]).job(also_found=problems)
    states = {each.properties["name"]: each.initial_state for _, each in present if each.initial_state}
    return replace(job, initial_states=states)


_USAGE = "the worker's file comes first, then the connectors' (./headrace standalone WORKER CONNECTOR...)"
_OF_WORKERS = ("bootstrap.servers", "group.id", "listeners", "offset.storage.topic", "data.dir")


def _misplaced(
    worker_file: str, worker: Mapping[str, str] | None, connectors: Sequence[tuple[str, Mapping[str, str]]]
) -> list[SourceFindings]:
    """Files that stand in each other's place: one sentence each, for what their keys are told would be beside it."""
    found = []
    if worker is not None and "connector.class" in worker:
        found.append((worker_file, f"this is a connector's file, in the place of the worker's: {_USAGE}"))
    for source, properties in connectors:
        if "connector.class" not in properties and any(key in properties for key in _OF_WORKERS):
            found.append((source, f"this is a worker's file, in the place of a connector's: {_USAGE}"))
    names = [source for source, _ in connectors]
    twice = sorted({name for name in names if names.count(name) > 1})
    found += [(name, "this connector's file is given twice") for name in twice]
    return [SourceFindings(source, (Finding("", None, text),)) for source, text in found]


def _read(path: Path, read: Callable[[Path], Content], problems: list[SourceFindings]) -> Content | None:
    try:
        return read(path)
    except ConfigFileError as error:
        problems.append(SourceFindings(str(path), (Finding("", None, str(error)),)))
        return None


def make_job(
    worker_properties: Mapping[str, str], connectors: Sequence[Mapping[str, str]], *, sources: Sequence[str] = ()
) -> Job:
    """Validate; raises ``ConfigRefusedError`` with all findings."""
    names = list(sources) or ["worker", *(connector.get("name", "connector") for connector in connectors)]
    return _checked(worker_properties, connectors, names).job()


@dataclass(frozen=True, slots=True)
class _Checked:
    """A worker's config and its connectors', with everything that was found."""

    parsed: ParsedConfig[WorkerConfig]
    worker_properties: Mapping[str, str]
    connectors: tuple[Mapping[str, str], ...]
    sources: tuple[str, ...]
    found: tuple[SourceFindings, ...]
    providers: ConfigProviders

    def job(self, also_found: Sequence[SourceFindings] = ()) -> Job:
        """Raises ``ConfigRefusedError`` with everything that was found, where any of it is an error."""
        found = [source for source in (*also_found, *self.found) if source.findings]
        if self.parsed.config is None or any(finding.is_error for source in found for finding in source.findings):
            raise ConfigRefusedError(found)
        return Job(
            self.parsed.config,
            dict(self.worker_properties),
            self.connectors,
            sources=self.sources,
            warnings=tuple(found),
            providers=self.providers,
        )


def _checked(
    worker_properties: Mapping[str, str], connectors: Sequence[Mapping[str, str]], names: Sequence[str]
) -> _Checked:
    """``names``: of the worker's file and of each connector's."""
    resolved = resolve_worker(worker_properties, environ=os.environ)
    written, worker_properties = worker_properties, resolved.properties
    parsed = WorkerConfig.parse(worker_properties)
    own = _worker_findings(parsed, worker_properties, written=written)
    found = [SourceFindings(names[0], (*resolved.findings, *own))]
    worker = with_defaults(with_registry(worker_properties, PLACEHOLDER_REGISTRY))
    for source, connector in zip(names[1:], connectors, strict=True):
        found.append(SourceFindings(source, _resolved_findings(connector, worker, resolved.providers)))
    found.extend(_doubles(names[1:], connectors))
    return _Checked(parsed, worker_properties, tuple(connectors), tuple(names[1:]), tuple(found), resolved.providers)


def _findings_without_worker(
    sources: Sequence[str], connectors: Sequence[Mapping[str, str]]
) -> Iterator[SourceFindings]:
    """Of connectors whose worker's file cannot be read: what is wrong under any worker."""
    for source, connector in zip(sources, connectors, strict=True):
        properties = with_registry(connector, PLACEHOLDER_REGISTRY)
        strict, *others = (_findings(properties, worker) for worker in _ANY_WORKERS)
        shared = (finding for finding in strict if all(finding in found for found in others))
        # What a variable stands for, only the worker's providers know.
        yield SourceFindings(source, tuple(each for each in shared if "${" not in connector.get(each.key, "")))
    yield from _doubles(sources, connectors)


def _resolved_findings(
    connector: Mapping[str, str], worker: Mapping[str, str], providers: ConfigProviders
) -> tuple[Finding, ...]:
    """Everything about one connector's config with its variables resolved, told without their values."""
    try:
        resolved = providers.resolve(connector)
    except ProviderError as error:
        return (Finding("", None, str(error)),)
    properties = with_registry(resolved.properties, PLACEHOLDER_REGISTRY)
    findings = (*_findings(properties, worker), *_override_findings(worker, properties))
    # A source, or whoever else is asked, would be given the variable itself.
    unresolved = (replace(finding, severity=Severity.ERROR) for finding in resolved.unresolved)
    return (*map(resolved.hidden, findings), *unresolved)


def _findings(connector: Mapping[str, str], worker: Mapping[str, str]) -> Sequence[Finding]:
    """Of a source or a sink; a class that nobody knows is reported as a source's."""
    known = find_connector(connector.get("connector.class", ""), worker)
    return read_definition(connector, worker=worker).findings if known is None else known.findings(connector, worker)


def _worker_findings(
    parsed: ParsedConfig[WorkerConfig], properties: Mapping[str, str], *, written: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Everything about the worker's own config; what one part has refused, the next need not refuse again."""
    known = [*(key.name for key in WorkerConfig.config_keys()), *(key.name for key in CONNECTION_KEYS)]
    strangers = unknown_keys(properties, known, free_prefixes=WorkerConfig.free_prefixes)
    found = [*parsed.findings, *strangers, *_worker_remarks(properties)]
    for more in (_client_findings(properties), _rest_findings(parsed, properties)):
        refused = {finding.key for finding in found if finding.is_error}
        found.extend(finding for finding in more if finding.key not in refused)
    variables = {key: written[key] for key, value in properties.items() if written[key] != value}
    resolved = Resolved(dict(properties), variables, {properties[key]: text for key, text in variables.items()})
    return tuple(_masked(resolved.hidden(finding)) for finding in found)


def _client_findings(worker: Mapping[str, str], connector: Mapping[str, str] | None = None) -> tuple[Finding, ...]:
    """Doubts about the settings of all Kafka clients; one that several roles share is told once."""
    doubts = [doubt for role in ROLES for doubt in read_settings(worker, connector=connector, role=role)[1]]
    return tuple(dict.fromkeys(doubts))


def _override_findings(worker: Mapping[str, str], connector: Mapping[str, str]) -> tuple[Finding, ...]:
    """Doubts that a connector's overrides add to the worker's."""
    told = set(_client_findings(worker))
    return tuple(
        finding
        for finding in _client_findings(worker, connector)
        if finding not in told and ".override." not in finding.key  # told of by the connector's definition
    )


def _rest_findings(parsed: ParsedConfig[WorkerConfig], properties: Mapping[str, str]) -> tuple[Finding, ...]:
    """About listeners, certificates and credentials, also where other keys are wrong: those count as not given."""
    wrong = {finding.key for finding in parsed.findings}
    prefixes = tuple(f"{key}." for key in wrong)
    right = {key: value for key, value in properties.items() if key not in wrong and not key.startswith(prefixes)}
    config = parsed.config or WorkerConfig.parse(right).config
    return () if config is None else read_rest_settings(config, properties)[1]


def _masked(finding: Finding) -> Finding:
    """A finding without the secret that its value is, or holds."""
    value = finding.value
    if not value or value == HIDDEN:
        return finding
    if names_a_secret(finding.key):
        shown = HIDDEN
    elif finding.key == "spark.remote":
        shown = _SPARK_TOKEN.sub(HIDDEN, value)
    else:
        return finding
    return replace(finding, value=shown, message=finding.message.replace(value, shown))


def _doubles(sources: Sequence[str], connectors: Sequence[Mapping[str, str]]) -> list[SourceFindings]:
    """Two connectors of one name would fence each other for ever."""
    seen: dict[str, str] = {}
    doubles = []
    for source, connector in zip(sources, connectors, strict=True):
        name = connector.get("name", "")
        if name in seen:
            text = f"Connector {name} already exists (in {seen[name]})"
            doubles.append(SourceFindings(source, (Finding("name", name, text),)))
        seen.setdefault(name, source)
    return doubles


def _worker_remarks(properties: Mapping[str, str]) -> tuple[Finding, ...]:
    found = [
        Finding(
            key, value, f"Not used: verdicts rest on {PINNED_SETTINGS[key]}, which every session has.", Severity.WARNING
        )
        for key, value in refused_settings(dict(properties)).items()
    ]
    key = "offset.storage.file.filename"
    if key in properties:
        text = "Not used: source offsets are kept in the offset topic, in standalone workers too."
        found.append(Finding(key, properties[key], text, Severity.WARNING))
    return tuple(found)
