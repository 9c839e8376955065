"""Transformations and predicates of a config: a definition for each alias, embedded under its prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fetchers.sdk import ConfigKey, ConfigModel, Finding, Importance, Key, Severity
from fetchers.sdk.config import unknown_keys
from service.config.transformations import aliases_of
from service.config.transforms import PREDICATES, TRANSFORMATIONS, AliasConfig, TransformClass, find_class
from service.validation.entries import Entries, Place
from service.validation.versions import CONNECT_VERSION


@dataclass(frozen=True, slots=True)
class AliasKind:
    """What transformations and predicates differ in: the key that lists them, their classes, their shared keys."""

    key: str
    """The list of aliases, and the prefix of their keys."""
    group: str
    interface: str
    classes: tuple[TransformClass, ...]
    shared: tuple[type[ConfigModel], ...]
    """Keys that each of them has besides its own."""


TRANSFORMS = AliasKind("transforms", "Transforms", "Transformation", TRANSFORMATIONS, (AliasConfig,))
PREDICATE_ALIASES = AliasKind("predicates", "Predicates", "Predicate", PREDICATES, ())


def add_aliases(entries: Entries, properties: Mapping[str, str]) -> None:
    """All keys of all aliases, with what is wrong with them."""
    for kind in (TRANSFORMS, PREDICATE_ALIASES):
        for alias in aliases_of(properties, kind.key):
            _add_alias(entries, properties, kind, alias)
    _check_predicates(entries, properties)


def alias_warnings(properties: Mapping[str, str]) -> tuple[Finding, ...]:
    """Keys of aliases that nobody named, and keys that the class of an alias does not have."""
    return tuple(
        finding
        for kind in (TRANSFORMS, PREDICATE_ALIASES)
        for key in properties
        if key.startswith(f"{kind.key}.")
        for finding in _stranger(key, properties, kind)
    )


def _stranger(key: str, properties: Mapping[str, str], kind: AliasKind) -> tuple[Finding, ...]:
    aliases = aliases_of(properties, kind.key)
    alias = next((alias for alias in aliases if key.startswith(f"{kind.key}.{alias}.")), None)
    if alias is None:
        text = f"Nothing reads it: its name is not in '{kind.key}'."
        return (Finding(key, properties[key], text, Severity.WARNING),)
    prefix = f"{kind.key}.{alias}."
    found = find_class(properties.get(f"{prefix}type", "").strip(), kind.classes)
    if found is None:
        return ()
    classes = (found.config_class, *kind.shared)
    known = [prefix + own.name for config_class in classes for own in config_class.config_keys()]
    known += [prefix + name for name in found.removed_keys]
    return unknown_keys([key], [f"{prefix}type", f"{prefix}plugin.version", *known])


def _add_alias(entries: Entries, properties: Mapping[str, str], kind: AliasKind, alias: str) -> None:
    prefix = f"{kind.key}.{alias}."
    own = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    group = f"{kind.group}: {alias}"
    type_text = own.get("type", "").strip()
    found = find_class(type_text, kind.classes)
    entries.add(
        _head(kind, alias, CONNECT_VERSION if found else None),
        own,
        (),
        place=Place(prefix, group),
        classes={"type": lambda name: _full_name(name, kind)},
    )
    doubt = _type_doubt(type_text, kind, own, prefix)
    if doubt:
        entries.fail(f"{prefix}type", doubt)
    if found is None:
        return
    classes = (found.config_class, *kind.shared)
    findings = [finding for config_class in classes for finding in config_class.parse(own).findings]
    entries.add(_sorted(classes), own, findings, place=Place(prefix, group, first_order=2))


def _head(kind: AliasKind, alias: str, version: str | None) -> tuple[ConfigKey, ...]:
    """The keys that say which class it is."""

    def key(name: str, type_name: str, *, text: str, display: str, recommended: tuple[str, ...]) -> ConfigKey:
        extras = Key(Importance.HIGH, width="LONG", display_name=display, recommended=recommended)
        default = version if name == "plugin.version" else None
        return ConfigKey(
            name, type_name, is_required=name == "type", default=default, documentation=text, extras=extras
        )

    word = kind.interface.lower()
    return (
        key(
            "type",
            "CLASS",
            text=f"Class of the {word} '{alias}'.",
            display=f"{kind.interface} type for {alias}",
            recommended=tuple(found.name for found in kind.classes),
        ),
        key(
            "plugin.version",
            "STRING",
            text=f"Version of the {word} '{alias}'; there is one of each.",
            display=f"{kind.interface} version for {alias}",
            recommended=(version,) if version else (),
        ),
    )


def _full_name(name: str, kind: AliasKind) -> str | None:
    """The class in full; names of other things are left to ``_type_doubt``, which says what they are."""
    found = find_class(name, kind.classes)
    if found is not None:
        return found.name
    return name if _other_kind(name) or _inner_classes(name, kind) else None


def _type_doubt(name: str, kind: AliasKind, own: Mapping[str, str], prefix: str) -> str | None:
    """What is wrong with a class that is there."""
    other = _other_kind(name)
    if find_class(name, kind.classes) is None and other:
        return f"Class class {other} does not implement the {kind.interface} interface"
    inner = _inner_classes(name, kind)
    if inner:
        return f"This class is abstract and cannot be created. Did you mean {', '.join(inner)}?"
    if "negate" in own and "predicate" not in own and kind is TRANSFORMS:
        return (
            f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' "
            "defining a predicate to be negated."
        )
    return None


def _other_kind(name: str) -> str | None:
    """The full name of any transformation or predicate."""
    found = find_class(name, (*TRANSFORMATIONS, *PREDICATES))
    return None if found is None else found.name


def _inner_classes(name: str, kind: AliasKind) -> Sequence[str]:
    """``$Key`` and ``$Value`` of a class named without them."""
    return [found.name for found in kind.classes if "$" in found.name and found.name.partition("$")[0] == name]


def _sorted(classes: Sequence[type[ConfigModel]]) -> list[ConfigKey]:
    """As ConfigDef orders keys without a place of their own: required ones, then by importance, then by name."""
    ranks = list(Importance)
    keys = [key for config_class in classes for key in config_class.config_keys()]
    return sorted(keys, key=lambda key: (not key.is_required, ranks.index(key.extras.importance), key.name))


def _check_predicates(entries: Entries, properties: Mapping[str, str]) -> None:
    """A transformation that names a predicate which is not there would only fail when its task starts."""
    known = aliases_of(properties, PREDICATE_ALIASES.key)
    for alias in aliases_of(properties, TRANSFORMS.key):
        key = f"{TRANSFORMS.key}.{alias}.predicate"
        name = properties.get(key, "").strip()
        if name and name not in known:
            text = f"Invalid value {name} for configuration {key}: there is no predicate of that name in 'predicates'"
            finding = Finding(key, name, text)
            entries.fail(finding.key, finding.message)
