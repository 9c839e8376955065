"""Bodies of Connect's validation, field by field as they are written in JSON (Kafka 4.1.1, ``rest/entities``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ConfigKeyInfo:
    """Definition of a key: its type, default and place in a form (``ConfigKeyInfo`` of Kafka 4.1.1)."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    order: int
    width: str
    display_name: str
    dependents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigValueInfo:
    """Value of a key in a config that is validated, and what is wrong with it (``ConfigValueInfo``)."""

    name: str
    value: str | None
    recommended_values: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    visible: bool = True


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    """A key and its value; no definition where nobody knows the key."""

    definition: ConfigKeyInfo | None
    value: ConfigValueInfo


@dataclass(frozen=True, slots=True)
class ConfigInfos:
    """The answer to ``PUT /connector-plugins/{p}/config/validate``."""

    name: str
    error_count: int
    groups: tuple[str, ...]
    configs: tuple[ConfigInfo, ...]

    def with_errors(self, found: Iterable[tuple[str, str]]) -> ConfigInfos:
        """With further errors (key, text), each of which counts; a key that is not there is added."""
        by_name = {config.value.name: config for config in self.configs}
        count = self.error_count
        for name, text in found:
            known = by_name.get(name) or ConfigInfo(None, ConfigValueInfo(name, None))
            by_name[name] = replace(known, value=replace(known.value, errors=(*known.value.errors, text)))
            count += 1
        return replace(self, error_count=count, configs=tuple(by_name.values()))

    def with_recommended(self, found: Mapping[str, Sequence[str]]) -> ConfigInfos:
        """With values that may be chosen from; keys that are not there are left out."""
        return replace(
            self,
            configs=tuple(
                replace(config, value=replace(config.value, recommended_values=tuple(found[config.value.name])))
                if config.value.name in found
                else config
                for config in self.configs
            ),
        )

    @property
    def errors(self) -> tuple[str, ...]:
        """Texts of all errors, in the order of the keys."""
        return tuple(text for config in self.configs for text in config.value.errors)
