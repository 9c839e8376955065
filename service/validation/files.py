"""Validates a connector's file without a worker: what ``…/config/validate`` would say, and what it leaves unsaid."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fetchers.sdk import Finding, Severity
from service.config.files import ConfigFileError, read_properties
from service.config.kinds import Definition
from service.config.providers import ConfigProviders, ProviderError, Resolved, resolve_worker
from service.config.worker import PLACEHOLDER_REGISTRY, WorkerConfig, with_defaults, with_registry
from service.herder.errors import BadRequestError
from service.validation.infos import ConfigInfos
from service.validation.validator import Validated, Validation


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """What was found in a connector's file and in the worker's it was held against."""

    connector: str
    """Name of the connector, as far as it has one."""
    findings: tuple[Finding, ...]
    worker_findings: tuple[Finding, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether a worker would take the config."""
        return not any(finding.is_error for finding in (*self.findings, *self.worker_findings))


def validate_file(path: Path, worker: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> FileVerdict:
    """Every finding at once. ``worker``: the worker's properties; a worker of defaults when not given.

    Nothing is asked of Kafka, registries or sources. Variables of config providers are resolved by those of the worker;
    their values are not shown, and one that no provider knows is an error.
    """
    try:
        worker_properties = read_properties(worker) if worker else {}
    except ConfigFileError as error:
        return FileVerdict("", (), (Finding("", None, str(error)),))
    try:
        properties = read_properties(path)
    except ConfigFileError as error:
        return FileVerdict("", (Finding("", None, str(error)),))
    found = validate_properties(properties, worker_properties, environ=environ)
    parsed = WorkerConfig.parse(found.worker)
    return FileVerdict(properties.get("name", ""), found.findings, (*found.worker_findings, *parsed.findings))


@dataclass(frozen=True, slots=True)
class PropertiesVerdict:
    """What was found in a connector's properties, and what they define."""

    findings: tuple[Finding, ...]
    worker_findings: tuple[Finding, ...]
    """Of its config providers."""
    worker: Mapping[str, str]
    """The worker's properties with the values of variables."""
    definition: Definition | None
    """None where anything is wrong; its properties hold the values of variables."""


def validate_properties(
    properties: Mapping[str, str], worker: Mapping[str, str], *, environ: Mapping[str, str]
) -> PropertiesVerdict:
    """As ``validate_file``, of properties that were read. Spark's data source calls it too."""
    resolved = resolve_worker(worker, environ=environ)
    validation = Validation(
        with_defaults(with_registry(resolved.properties, PLACEHOLDER_REGISTRY)), _Resolution(resolved.providers)
    )
    try:
        validated: Validated = validation.validate(properties)
    except BadRequestError as error:
        key = "" if isinstance(error.__cause__, ProviderError) else "connector.class"
        refusal = Finding(key, properties.get(key), str(error))
        return PropertiesVerdict((refusal,), tuple(resolved.findings), resolved.properties, None)
    findings = (*errors_of(validated.infos), *validated.warnings)
    return PropertiesVerdict(findings, tuple(resolved.findings), resolved.properties, validated.definition)


@dataclass(frozen=True, slots=True)
class _Resolution:
    """Variables, and a stand-in for the embedded registry."""

    providers: ConfigProviders

    def __call__(self, properties: Mapping[str, str]) -> Resolved:
        resolved = self.providers.resolve(properties)
        return replace(
            resolved,
            properties=with_registry(resolved.properties, PLACEHOLDER_REGISTRY),
            unresolved=tuple(replace(finding, severity=Severity.ERROR) for finding in resolved.unresolved),
        )


def errors_of(infos: ConfigInfos) -> tuple[Finding, ...]:
    """The errors of a validation as findings."""
    return tuple(
        Finding(info.value.name, info.value.value, text, Severity.ERROR)
        for info in infos.configs
        for text in info.value.errors
    )
