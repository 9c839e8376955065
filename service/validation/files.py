"""Validates a connector's file without a worker: what ``…/config/validate`` would say, and what it leaves unsaid."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fetchers.sdk import Finding, Severity
from service.config.files import ConfigFileError, read_properties
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

    Nothing is asked of Kafka, registries or sources. Variables of config providers are resolved where the worker's file
    names providers; their values are not shown.
    """
    try:
        worker_properties = read_properties(worker) if worker else {}
    except ConfigFileError as error:
        return FileVerdict("", (), (Finding("", None, str(error)),))
    try:
        properties = read_properties(path)
    except ConfigFileError as error:
        return FileVerdict("", (Finding("", None, str(error)),))
    resolved = resolve_worker(worker_properties, environ=environ)
    parsed = WorkerConfig.parse(resolved.properties)
    validation = Validation(
        with_defaults(with_registry(resolved.properties, PLACEHOLDER_REGISTRY)), _Resolution(resolved.providers)
    )
    return FileVerdict(
        properties.get("name", ""), _findings(validation, properties), (*resolved.findings, *parsed.findings)
    )


@dataclass(frozen=True, slots=True)
class _Resolution:
    """Variables, and a stand-in for the embedded registry."""

    providers: ConfigProviders

    def __call__(self, properties: Mapping[str, str]) -> Resolved:
        resolved = self.providers.resolve(properties)
        return replace(resolved, properties=with_registry(resolved.properties, PLACEHOLDER_REGISTRY))


def _findings(validation: Validation, properties: Mapping[str, str]) -> tuple[Finding, ...]:
    try:
        validated: Validated = validation.validate(properties)
    except BadRequestError as error:
        key = "" if isinstance(error.__cause__, ProviderError) else "connector.class"
        return (Finding(key, properties.get(key), str(error)),)
    return (*errors_of(validated.infos), *validated.warnings)


def errors_of(infos: ConfigInfos) -> tuple[Finding, ...]:
    """The errors of a validation as findings."""
    return tuple(
        Finding(info.value.name, info.value.value, text, Severity.ERROR)
        for info in infos.configs
        for text in info.value.errors
    )
