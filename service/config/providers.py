"""Config providers (KIP-297): variables such as ``${file:/etc/secrets/db.properties:password}`` and their values.

A worker names its providers (``config.providers=file,env`` and ``config.providers.file.class=…``), or names none and
has ``env``, ``file`` and ``directory``; workers' and connectors' configs may then hold variables ``${provider:key}`` or
``${provider:path:key}``. What is stored and shown keeps the variable; a value is only ever in memory, and is taught to
whoever hides secrets. What no provider knows stays as it was written, as in Connect, with a warning. Where the provider
is there and has no value, no connector starts with it, since the outside would be sent the variable itself; files of
connectors on a command line are refused for either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fetchers.sdk import Finding, Severity
from metrics.redaction import SECRET_LENGTH_MIN, Redactor
from service.config.provider_sources import CLASSES, Provider, ProviderError, ProviderParameterError
from service.config.reach import ConnectorReach, reach_of

__all__ = ["ConfigProviders", "ProviderError", "Resolved", "ResolvedWorker", "resolve_worker"]

_LIST, _PREFIX = "config.providers", "config.providers."
BY_DEFAULT: Mapping[str, str] = {
    "env": "EnvVarConfigProvider",
    "file": "FileConfigProvider",
    "directory": "DirectoryConfigProvider",
}
"""Name and class of the providers of a worker whose config names none."""
_NAME = re.compile(r"[A-Za-z][\w.-]*\Z")
"""What may be meant as the name of a provider."""

FAILED_VALUE = (
    "Invalid value for configuration '{key}': the value resolved from the config provider reference failed validation"
)
"""Connect's text where it would have to show the value."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A config with its variables resolved, and what came from where."""

    properties: dict[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    """The text as it was written, by the key whose value came from a provider."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Everything a provider gave, and the variable that stands for it."""
    unresolved: tuple[Finding, ...] = ()
    """Variables that stayed as they are, since no provider knows them: warnings."""
    missing: tuple[Finding, ...] = ()
    """Those of them whose provider is there: the outside must never be sent such a variable in place of its value."""

    def turned_back(self, own: Mapping[str, str], written: Mapping[str, str]) -> dict[str, str]:
        """A task's own keys, made from this config, as they may be stored: variables where their values would stand.

        Keys that the task has unchanged are as they are ``written`` in the connector's config; elsewhere a value is
        known by itself, wherever in a text it stands.
        """
        return {
            key: written[key] if key in written and self.properties.get(key) == value else self.without_secrets(value)
            for key, value in own.items()
        }

    def hidden(self, finding: Finding) -> Finding:
        """A finding without the values that came from providers."""
        if finding.key in self.variables:
            text = FAILED_VALUE.format(key=finding.key) if finding.is_error else finding.message
            return replace(finding, value=self.variables[finding.key], message=self.without_secrets(text))
        return replace(finding, message=self.without_secrets(finding.message))

    def without_secrets(self, text: str) -> str:
        """A text with variables where their values stood; one of digits alone only where it is a whole number."""
        for secret in sorted(filter(_is_telling, self.secrets), key=len, reverse=True):
            variable = self.secrets[secret]
            if secret.isdecimal():
                text = re.sub(rf"(?<!\d){secret}(?!\d)", lambda _: variable, text)  # noqa: B023 - used at once
            else:
                text = text.replace(secret, variable)
        return text


def _is_telling(secret: str) -> bool:
    """Whether a text is not one of those that stand everywhere, such as ``true`` or ``10``."""
    return len(secret) >= SECRET_LENGTH_MIN and secret.lower() not in {"true", "false"}


@dataclass(frozen=True, slots=True)
class ConfigProviders:
    """The providers of one worker, by the names its config gives them."""

    providers: Mapping[str, Provider] = field(default_factory=dict)
    redactor: Redactor = field(default_factory=Redactor)
    """Learns every value that is resolved; the worker's log and whatever tells of errors hide by it."""

    @classmethod
    def parse(
        cls, worker: Mapping[str, str], *, environ: Mapping[str, str]
    ) -> tuple[ConfigProviders, tuple[Finding, ...]]:
        """Read ``config.providers`` and what is under it; those ``BY_DEFAULT`` where it is not there."""
        providers: dict[str, Provider] = {}
        findings: list[Finding] = []
        named = worker.get(_LIST)
        if named is None:
            worker = {**{f"{_PREFIX}{name}.class": kind for name, kind in BY_DEFAULT.items()}, **worker}
        for name in BY_DEFAULT if named is None else _names(named):
            provider, found = _provider(name, worker, environ)
            findings.extend(found)
            if provider is not None:
                providers[name] = provider
        return cls(providers), tuple(findings)

    def lent(self, reach: ConnectorReach) -> ConfigProviders:
        """The same for connectors, with the worker's bounds where a provider has none of its own.

        Whoever writes a connector's config must not read by it whatever the worker may.
        """
        return replace(self, providers={name: each.lent(reach) for name, each in self.providers.items()})

    def resolve(self, properties: Mapping[str, str]) -> Resolved:
        """Replace variables, once: what a provider gives is not looked through again. Raises ``ProviderError``."""
        pass_over = _Pass(self.providers)
        resolved = {key: pass_over.replaced(key, value) for key, value in properties.items()}
        for secret in pass_over.secrets:
            self.redactor.learn(secret)
        variables = {key: properties[key] for key in pass_over.keys}
        missing = tuple(pass_over.missing)
        return Resolved(resolved, variables, pass_over.secrets, tuple(pass_over.unresolved), missing)


@dataclass(frozen=True, slots=True)
class ResolvedWorker:
    """A worker's properties without variables, and the providers it lends to its connectors."""

    properties: dict[str, str]
    providers: ConfigProviders
    findings: tuple[Finding, ...] = ()


def resolve_worker(properties: Mapping[str, str], *, environ: Mapping[str, str]) -> ResolvedWorker:
    """Resolve a worker's properties with the providers it names itself; what cannot be asked is a finding."""
    providers, findings = ConfigProviders.parse(properties, environ=environ)
    try:
        resolved = providers.resolve(properties)
    except ProviderError as error:
        return ResolvedWorker(
            dict(properties), providers, (*findings, Finding(_LIST, properties.get(_LIST), str(error)))
        )
    lent = providers.lent(reach_of(resolved.properties))
    return ResolvedWorker(resolved.properties, lent, (*findings, *resolved.unresolved))


@dataclass(slots=True)
class _Pass:
    """One pass over one config: each source is read once."""

    providers: Mapping[str, Provider]
    keys: set[str] = field(default_factory=set)
    secrets: dict[str, str] = field(default_factory=dict)
    unresolved: list[Finding] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)
    _read: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)

    def replaced(self, key: str, text: str) -> str:
        """The text with values for its variables, ``${provider:key}`` or ``${provider:path:key}``.

        What Connect's ``ConfigTransformer`` finds by an expression, which over some texts would not come back.
        """
        parts, at = [], 0
        while (begin := text.find("${", at)) >= 0 and (end := text.find("}", begin)) >= 0:
            name, colon, rest = text[begin + 2 : end].partition(":")
            path, second_colon, variable = rest.partition(":")
            written = text[begin : end + 1]
            parts.append(text[at:begin])
            place = (path, variable) if second_colon else ("", rest)
            parts.append(self._value(key, name, place, written) if colon else written)
            at = end + 1
        return "".join((*parts, text[at:]))

    def _value(self, key: str, name: str, place: tuple[str, str], written: str) -> str:
        path, variable = place
        provider = self.providers.get(name)
        if provider is None:
            if _NAME.match(name):
                self._leave(key, written, f"the worker has no config provider '{name}', {_has(self.providers)}")
            return written
        source = self._read.get((name, path))
        if source is None:
            source = self._read[name, path] = provider.read(path)
        value = source.get(variable)
        if value is None:
            self._leave(key, written, f"the config provider '{name}' does not know it or may not read it")
            self.missing.append(self.unresolved[-1])
            return written
        self.keys.add(key)
        if value:
            self.secrets.setdefault(value, written)
        return value

    def _leave(self, key: str, written: str, why: str) -> None:
        self.unresolved.append(Finding(key, written, f"{written} is not resolved: {why}", Severity.WARNING))


def _has(providers: Mapping[str, Provider]) -> str:
    has = f"but {', '.join(providers)}" if providers else "nor any other"
    return f"{has}; name it in {_LIST} of the worker's file (--worker FILE gives a command that file)"


def _provider(
    name: str, worker: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[Provider | None, tuple[Finding, ...]]:
    class_key, prefix = f"{_PREFIX}{name}.class", f"{_PREFIX}{name}.param."
    class_name = worker.get(class_key, "").strip()
    if not class_name:
        return None, (
            Finding(class_key, None, f'Missing required configuration "{class_key}" which has no default value.'),
        )
    make = CLASSES.get(class_name.rpartition(".")[2])
    if make is None:
        text = (
            f"Invalid value {class_name} for configuration {class_key}: "
            f"Could not load config provider class or one of its dependencies. Known: {', '.join(CLASSES)}"
        )
        return None, (Finding(class_key, class_name, text),)
    parameters = {key.removeprefix(prefix): value for key, value in worker.items() if key.startswith(prefix)}
    try:
        return make(parameters, environ), ()
    except ProviderParameterError as error:
        key = f"{prefix}{error.parameter}"
        value = parameters[error.parameter]
        return None, (Finding(key, value, f"Invalid value {value} for configuration {key}: {error}"),)


def _names(text: str) -> Iterable[str]:
    return dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
