"""The entries of one validation: keys with their definitions, values and errors, while they are being gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from fetchers.sdk import ConfigKey, Finding
from service.validation.infos import ConfigInfo, ConfigInfos, ConfigKeyInfo, ConfigValueInfo
from service.validation.types import typed

ClassLookup = Callable[[str], str | None]
"""The full name of the class that a text names; None where there is none."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a class's keys stand in a connector's config."""

    prefix: str = ""
    group: str | None = None
    """Instead of the keys' own."""
    first_order: int = 0
    """Of the keys in ``group``."""
    has_own_names: bool = False
    """Whether all errors name keys without the prefix (converters); else only checks of values do (transforms)."""
    is_counted_once: bool = False
    """Whether a key with several errors counts one."""


ROOT = Place()
NULL_VALUE = "Null value can not be supplied as the configuration value."


@dataclass(slots=True)
class Entry:
    """What is known of one key of a config while its validation is under way."""

    definition: ConfigKeyInfo | None
    value: str | None = None
    errors: list[str] = field(default_factory=list)
    recommended: tuple[str, ...] = ()
    is_visible: bool = True
    is_counted_once: bool = False

    @property
    def error_count(self) -> int:
        """What it adds to ``error_count``."""
        return min(len(self.errors), 1) if self.is_counted_once else len(self.errors)


def key_info(key: ConfigKey, place: Place = ROOT, *, order: int | None = None) -> ConfigKeyInfo:
    """A key's definition as clients see it."""
    extras = key.extras
    return ConfigKeyInfo(
        name=place.prefix + key.name,
        type=key.kind,
        required=key.is_required,
        default_value=key.default,
        importance=extras.importance.value,
        documentation=" ".join(key.documentation.split()),
        group=place.group or extras.group,
        order=extras.order if order is None else order,
        width=extras.width,
        display_name=extras.display_name or key.name,
        dependents=extras.dependents,
    )


class Entries:
    """All entries by key, in the order in which they were added."""

    def __init__(self) -> None:
        self.by_name: dict[str, Entry] = {}

    def add(
        self,
        keys: Iterable[ConfigKey],
        properties: Mapping[str, str],
        findings: Iterable[Finding],
        *,
        place: Place = ROOT,
        classes: Mapping[str, ClassLookup] | None = None,
    ) -> None:
        """Add keys with their values in ``properties`` (without the place's prefix); ``findings`` speak of those."""
        errors: dict[str, list[str]] = {}
        for finding in findings:
            if finding.is_error:
                errors.setdefault(finding.key, []).append(finding.message)
        for number, key in enumerate(_present(keys, properties)):
            order = place.first_order + number if place.group else None
            entry = _entry(key, properties.get(key.name), place, (classes or {}).get(key.name))
            entry.definition = key_info(key, place, order=order)
            if not entry.errors:
                entry.errors.extend(errors.get(key.name, ()))
            self.by_name[place.prefix + key.name] = entry

    def fail(self, name: str, text: str, *, is_counted_once: bool = False) -> None:
        """An error about a key, whether it is known or not."""
        entry = self.by_name.get(name)
        if entry is None:
            entry = self.by_name[name] = Entry(None, is_counted_once=is_counted_once)
        entry.errors.append(text)

    def refuse_null(self, key: ConfigKey | None, name: str) -> None:
        """A key that was given without a value is not the same as one that was not given."""
        entry = self.by_name.setdefault(name, Entry(None))
        entry.value = None
        entry.errors = [_null_error(key)] if key is not None and key.null_reason else []
        entry.errors.append(NULL_VALUE)

    def infos(self, name: str) -> ConfigInfos:
        """What was gathered, as clients get it."""
        entries = self.by_name
        groups = [entry.definition.group for entry in entries.values() if entry.definition]
        return ConfigInfos(
            name=name,
            error_count=sum(entry.error_count for entry in entries.values()),
            groups=tuple(dict.fromkeys(group for group in groups if group is not None)),
            configs=tuple(_info(key, entry) for key, entry in entries.items()),
        )


def _present(keys: Iterable[ConfigKey], properties: Mapping[str, str]) -> Iterable[ConfigKey]:
    """The keys, and in place of a prefix the keys that are given under it."""
    for key in keys:
        if not key.is_prefix:
            yield key
            continue
        given = (name for name in properties if name.startswith(key.name))
        yield from (replace(key, name=name, is_prefix=False, is_required=False, default=None) for name in given)


def _entry(key: ConfigKey, text: str | None, place: Place, lookup: ClassLookup | None) -> Entry:
    """The value by its type; errors only of the type, or of its absence."""
    name = key.name if place.has_own_names else place.prefix + key.name
    entry = Entry(None, recommended=key.extras.recommended, is_counted_once=place.is_counted_once)
    if text is None and not key.is_required:
        entry.value = key.default
        return entry
    if text is None:
        entry.errors.append(f'Missing required configuration "{name}" which has no default value.')
    else:
        read = typed(key.kind, text)
        entry.value, reason = read.text, read.reason
        if reason is None and lookup is not None:
            entry.value = lookup(text.strip())
            reason = None if entry.value is not None else f"Class {text.strip()} could not be found."
        if reason is None:
            return entry
        entry.errors.append(f"Invalid value {text} for configuration {name}: {reason}")
    if key.null_reason:
        entry.errors.append(_null_error(key))
    return entry


def _null_error(key: ConfigKey) -> str:
    return f"Invalid value null for configuration {key.name}: {key.null_reason}"


def _info(name: str, entry: Entry) -> ConfigInfo:
    value = ConfigValueInfo(name, entry.value, entry.recommended, tuple(entry.errors), entry.is_visible)
    return ConfigInfo(entry.definition, value)
