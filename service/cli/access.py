"""How a command that asks Kafka itself gets there: a file of properties, and over it what the command line says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fetchers.sdk import Finding
from service.config.files import ConfigFileError, read_properties
from service.config.providers import resolve_worker
from service.config.worker import EMBEDDED, REGISTRY_KEY
from service.embedded.folder import reading_folder
from service.job import ConfigRefusedError, SourceFindings
from service.kafka.client import KafkaSettings
from service.kafka.properties import read_settings
from service.registry.settings import RegistrySettings

BOOTSTRAP_KEY = "bootstrap.servers"
BOOTSTRAP_VARIABLE, REGISTRY_VARIABLE = "HEADRACE_BOOTSTRAP", "HEADRACE_REGISTRY"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
_EMBEDDED_ADVICE = (
    "expected an address: only the running worker knows it; name its folder by --data, or the address by an option"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """What the command line says of where Kafka is."""

    config: Path | None = None
    """A worker's file, or one of a Kafka client as ``--command-config`` of Kafka's tools takes."""
    bootstrap: str | None = None
    registry_url: str | None = None
    data_dir: Path | None = None
    """Of an embedded Kafka, that runs or not."""


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """Where records and their schemas are, and how to log in there."""

    kafka: KafkaSettings
    registry: RegistrySettings | None


@asynccontextmanager
async def opened_access(options: AccessOptions, *, environ: Mapping[str, str]) -> AsyncIterator[TopicAccess]:
    """Where Kafka is, for the length of a block; the embedded servers of a data folder run for as long, at least.

    Raises ``ConfigRefusedError``, and ``EmbeddedError`` where the servers of the folder cannot be used.
    """
    bootstrap, registry_url = options.bootstrap, options.registry_url
    async with AsyncExitStack() as stack:
        if options.data_dir is not None:
            found = await stack.enter_async_context(reading_folder(options.data_dir))
            bootstrap, registry_url = bootstrap or found.kafka, registry_url or found.registry
        yield read_access(options.config, bootstrap=bootstrap, registry_url=registry_url, environ=environ)


def read_access(
    config: Path | None, *, bootstrap: str | None, registry_url: str | None, environ: Mapping[str, str]
) -> TopicAccess:
    """Options win over the file, the file over the environment: its logins belong to its addresses.

    ``config`` is a worker's file, or one of a Kafka client as ``--command-config`` of Kafka's tools takes.
    Raises ``ConfigRefusedError`` with all findings.
    """
    properties: dict[str, str] = {}
    findings: list[Finding] = []
    if config is not None:
        try:
            resolved = resolve_worker(read_properties(config), environ=environ)
        except ConfigFileError as error:
            raise ConfigRefusedError([SourceFindings(str(config), (Finding("", None, str(error)),))]) from error
        properties, findings = resolved.properties, list(resolved.findings)
    default = environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP_DEFAULT
    properties[BOOTSTRAP_KEY] = bootstrap or properties.get(BOOTSTRAP_KEY) or default
    registry_url = registry_url or properties.get(REGISTRY_KEY) or environ.get(REGISTRY_VARIABLE)
    kafka, doubts = read_settings(properties, role="consumer")
    findings += doubts
    registry = None
    if registry_url:
        registry, wrong = RegistrySettings.parse({**properties, REGISTRY_KEY: registry_url})
        findings += wrong
    for key, value in ((BOOTSTRAP_KEY, properties[BOOTSTRAP_KEY]), (REGISTRY_KEY, registry_url)):
        if value == EMBEDDED:
            findings = [finding for finding in findings if finding.key != key]
            findings.append(Finding(key, value, _EMBEDDED_ADVICE))
    if any(finding.is_error for finding in findings):
        raise ConfigRefusedError([SourceFindings(str(config or "options"), tuple(findings))])
    return TopicAccess(kafka, registry)
