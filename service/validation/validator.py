"""Validates connector configs as Connect does (``AbstractHerder.validateConnectorConfig``), without asking Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fetchers.catalog import PluginLoadError
from fetchers.sdk import Finding, SourceConnector
from fetchers.sdk.config import HIDDEN
from service.config.borrowed_keys import client_key
from service.config.kinds import Definition
from service.config.overrides import overrides_of
from service.config.parts import class_not_found
from service.config.providers import FAILED_VALUE, ProviderError, Resolved
from service.config.reach import reach_of
from service.config.secret_names import names_a_secret
from service.herder.errors import BadRequestError
from service.validation.aliases import add_aliases, alias_warnings
from service.validation.connectors import KnownConnector, find_connector, known_connectors
from service.validation.converters import class_lookups, complete_converters
from service.validation.entries import Entries, Entry, Place, key_info
from service.validation.infos import ConfigInfos
from service.validation.rules import Rules
from service.validation.types import typed

DEFAULT_GROUP = "headrace"
"""Of a worker that names none (``WorkerConfig.group_id``)."""
NO_CLASS = "Connector config contains no connector type"
_STAGE_PREFIXES = ("transforms.", "predicates.")


Resolve = Callable[[Mapping[str, str]], Resolved]
"""Replaces variables of config providers; raises ``ProviderError``."""


def nothing_to_resolve(properties: Mapping[str, str]) -> Resolved:
    """For a worker without config providers."""
    return Resolved(dict(properties))


def _as_it_is(finding: Finding) -> Finding:
    return finding


@dataclass(frozen=True, slots=True)
class Validated:
    """The outcome of one validation."""

    infos: ConfigInfos
    warnings: tuple[Finding, ...] = ()
    """What does not refuse the config, such as keys that nothing reads."""
    definition: Definition | None = None
    """What a connector is made from; None where anything is wrong with the config, or a variable in it has no value:
    whoever is asked with it would be sent the variable itself."""
    asked_for_values: SourceConnector[Any] | None = None
    """Who knows values to recommend; None where nobody does, or a variable has no value."""
    hidden: Callable[[Finding], Finding] = _as_it_is
    """Takes values that came from providers out of a finding."""

    def with_found(self, found: Iterable[Finding]) -> Validated:
        """What was found besides, once somebody else was asked about the definition."""
        shown = [self.hidden(finding) for finding in found]
        errors = [finding for finding in shown if finding.is_error]
        warnings = (*self.warnings, *(finding for finding in shown if not finding.is_error))
        infos = self.infos.with_errors((finding.key, finding.message) for finding in errors)
        return replace(self, infos=infos, warnings=warnings)


@dataclass(frozen=True, slots=True)
class Validation:
    """Validates for one worker; pure but for the files that a config names and the classes of users."""

    worker: Mapping[str, str]
    """The worker's properties with its converters, variables resolved."""
    resolve: Resolve = nothing_to_resolve

    def validate(self, config: Mapping[str, str | None], plugin: str | None = None) -> Validated:
        """Every finding at once; ``plugin`` is the name in the path. Raises ``BadRequestError``."""
        given = {key: value for key, value in config.items() if value is not None and not _is_provider_key(key)}
        class_name = _class_name(given, plugin)
        resolved = self._resolved({**given, "connector.class": class_name})
        connector = _connector(resolved.properties["connector.class"].strip(), self.worker)
        entries, warnings, definition = self._entries(resolved.properties, connector)
        for key in (key for key, value in config.items() if value is None):
            entries.refuse_null(connector.key(key), key)
        _hide(entries, resolved)
        infos = entries.infos(class_name)
        return Validated(
            infos,
            (*map(resolved.hidden, warnings), *resolved.unresolved),
            None if infos.error_count or resolved.unresolved else definition,
            None if resolved.unresolved else self._asked_for_values(connector, resolved.properties),
            resolved.hidden,
        )

    def _asked_for_values(
        self, connector: KnownConnector, properties: Mapping[str, str]
    ) -> SourceConnector[Any] | None:
        kind = connector.plugin.load()
        found = kind.asked_for_values(properties) if issubclass(kind, SourceConnector) else None
        if found is not None:
            reach = reach_of(self.worker)
            found.allowed_paths, found.allowed_addresses = reach.paths, reach.addresses
        return found

    def _resolved(self, properties: Mapping[str, str]) -> Resolved:
        try:
            return self.resolve(properties)
        except ProviderError as error:
            raise BadRequestError(str(error)) from error

    def _entries(
        self, properties: Mapping[str, str], connector: KnownConnector
    ) -> tuple[Entries, tuple[Finding, ...], Definition | None]:
        common, own = connector.kind.common_class, connector.plugin.load().config_class
        reading = connector.kind.read(properties, worker=self.worker)
        names = {key.name for key in own.config_keys()}
        found = _unique([*common.parse(properties).findings, *reading.findings])
        findings = [
            replace(each, message=_told(each)) if each.key in names and each.is_error else each for each in found
        ]
        entries = Entries()
        entries.add(common.config_keys(), properties, findings, classes=class_lookups())
        entries.add(own.config_keys(), properties, findings)
        add_aliases(entries, properties)
        _add_overrides(entries, properties, findings)
        complete_converters(entries, properties, self.worker)
        Rules(self.worker.get("group.id") or DEFAULT_GROUP).check(entries, properties, connector)
        for finding in findings:
            if finding.is_error and _is_news(finding, entries):
                entries.fail(finding.key, _told(finding), is_counted_once=True)
        warnings = tuple(finding for finding in findings if not finding.is_error)
        return entries, (*warnings, *alias_warnings(properties)), reading.definition


def _told(finding: Finding) -> str:
    """The message with the key that it is about, since a refused request shows messages alone."""
    return finding.message if finding.key in finding.message else f"{finding.key}: {finding.message}"


def _class_name(given: Mapping[str, str], plugin: str | None) -> str:
    """The config's class, or else that of the path; the two must not contradict each other."""
    class_name = given.get("connector.class") or plugin
    if not class_name:
        raise BadRequestError(NO_CLASS)
    if plugin and not class_name.removesuffix("Connector").endswith(plugin.removesuffix("Connector")):
        raise BadRequestError(f"Included connector type {class_name} does not match request type {plugin}")
    return class_name


def _connector(name: str, worker: Mapping[str, str]) -> KnownConnector:
    connector = find_connector(name, worker)
    if connector is None:
        available = (known.class_name for known in known_connectors())
        raise BadRequestError(class_not_found(name, available))
    try:
        connector.plugin.load()
    except PluginLoadError as error:
        raise BadRequestError(f"Class {name} could not be found: {error}") from error
    return connector


def _is_provider_key(key: str) -> bool:
    """A connector may not bring its own providers."""
    return key == "config.providers" or key.startswith("config.providers.")


def _is_news(finding: Finding, entries: Entries) -> bool:
    """Keys have had their errors; those of transformations only the errors of the keys themselves."""
    entry = entries.by_name.get(finding.key)
    return entry is None or (finding.key.startswith(_STAGE_PREFIXES) and not entry.errors)


def _unique(findings: Sequence[Finding]) -> list[Finding]:
    return list(dict.fromkeys(findings))


def _hide(entries: Entries, resolved: Resolved) -> None:
    """What came from a provider is shown nowhere: not as a value, nor in the text of an error."""
    for key, variable in resolved.variables.items():
        entry = entries.by_name.get(key)
        if entry is None:
            continue
        entry.value, entry.recommended, entry.is_counted_once = variable, (), False
        if entry.errors:
            entry.errors = [FAILED_VALUE.format(key=key)]
    for entry in entries.by_name.values():
        entry.errors = [resolved.without_secrets(text) for text in entry.errors]


def _add_overrides(entries: Entries, properties: Mapping[str, str], findings: Iterable[Finding]) -> None:
    """Overrides of Kafka clients, with what is known of the clients' keys; each counts one error at most."""
    errors: dict[str, list[str]] = {}
    for finding in findings:
        if finding.is_error:
            errors.setdefault(finding.key, []).append(finding.message)
    for key, name, value in overrides_of(properties):
        known = client_key(name)
        kind = "PASSWORD" if names_a_secret(key) else known.kind if known else "STRING"
        definition = None
        if known is not None:
            definition = key_info(replace(known, kind=kind), Place(key.removesuffix(name)))
        shown = HIDDEN if kind == "PASSWORD" else typed(kind, value).text
        entries.by_name[key] = Entry(definition, shown, errors.get(key, []), is_counted_once=True)
