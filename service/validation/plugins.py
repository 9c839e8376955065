"""What can be run and how it is configured, for clients: listing, definitions, validation (the ``Plugins`` of REST)."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Lock
from typing import Protocol, TypeVar

from fetchers.catalog import PluginLoadError
from fetchers.sdk import ConfigKey, Finding, Retriable
from service.config.transforms import PREDICATES, TRANSFORMATIONS, find_class
from service.herder.errors import BadRequestError, NotFoundError, RequestError
from service.validation.connectors import KnownConnector, find_connector, known_connectors
from service.validation.converters import CONVERTERS, HEADER_CONVERTERS
from service.validation.deep import DeepChecks
from service.validation.entries import key_info
from service.validation.infos import ConfigKeyInfo
from service.validation.secrets import secret_keys
from service.validation.validator import Validated, Validation
from service.validation.versions import CONNECT_VERSION, VersionSyntaxError, is_in_range, range_text

T = TypeVar("T")

HANGING_MAX = 8
"""Validations of one class that may be under way at once: more of them would only be more hanging threads."""

DEEP_WAIT_SECONDS_MAX = 60.0
"""For those before it, until a deep validation begins: one is made at a time."""


class Calls(Protocol):
    """Runs what may block in threads with a time limit (``service.worker.foreign_calls``)."""

    async def run(self, call: Callable[[], T], *, subject: Hashable) -> T:
        """What the call returns or raises; ``Retriable`` when it does neither in time."""


class SlowValidationError(RequestError):
    """The connector's own code has not come back in time."""

    status = 500


class TellWarnings(Protocol):
    """Tells what is odd about a config that is accepted."""

    def __call__(self, connector: str, findings: Sequence[Finding]) -> None:
        """Called once for each config that is to be written."""


def _say_nothing(connector: str, findings: Sequence[Finding]) -> None:
    del connector, findings


@dataclass(slots=True)
class ConnectorPlugins:
    """Plugins and their validation for one worker."""

    validation: Validation
    calls: Calls
    tell_warnings: TellWarnings = _say_nothing
    deep: DeepChecks | None = None
    """Who else is asked about a config that is right by itself: Spark always, the others by ``is_deep``."""
    _deep_alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    _recommending: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One source at a time is asked for values; whoever comes meanwhile is answered without."""
    _under_way: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)
    _numbers: Iterator[int] = field(default_factory=count)

    def listing(self, *, connectors_only: bool) -> Sequence[Mapping[str, str]]:
        """Sinks, sources, then transformations, predicates, converters, header converters."""
        found = [
            _listed(connector.class_name, connector.kind.name, connector.plugin.version)
            for connector in known_connectors()
        ]
        if connectors_only:
            return found
        others = (
            ("transformation", TRANSFORMATIONS),
            ("predicate", PREDICATES),
            ("converter", CONVERTERS),
            ("header_converter", HEADER_CONVERTERS),
        )
        return [*found, *(_listed(known.name, word, CONNECT_VERSION) for word, classes in others for known in classes)]

    def config_keys(self, plugin: str, *, version: str | None = None) -> Sequence[ConfigKeyInfo]:
        """Definitions of any plugin; raises ``NotFoundError``, ``BadRequestError``."""
        connector = find_connector(plugin, self.validation.worker) if _may_be_loaded(plugin) else None
        try:
            loaded = None if connector is None else connector.plugin.load()
        except PluginLoadError as error:
            raise NotFoundError(f"Unknown plugin {plugin}.") from error
        if connector is None or loaded is None:
            keys, installed, name = _other_keys(plugin), CONNECT_VERSION, plugin
        else:
            keys, installed, name = _connector_keys(connector), connector.plugin.version, connector.class_name
        _check_version(name, installed, version)
        return [key_info(key) for key in keys if not key.is_prefix]

    async def validate(self, plugin: str, config: Mapping[str, str | None], *, is_deep: bool = False) -> Validated:
        """The answer to ``PUT /connector-plugins/{plugin}/config/validate``, and what is odd about the config.

        ``is_deep``: the registry, the source and Kafka are asked as well. Values that may be chosen from are in either
        answer, where the source knows some and says them soon.
        """
        validated = await self._validated(config, plugin, is_deep=is_deep)
        if validated.asked_for_values is None or self.deep is None or self._recommending.locked():
            return validated
        async with self._recommending:
            found = await self.deep.recommended(validated.asked_for_values)
        return replace(validated, infos=validated.infos.with_recommended(found))

    def secret_keys(self, config: Mapping[str, str]) -> frozenset[str]:
        """Keys whose values are not for everyone."""
        return secret_keys(config)

    async def errors_of(self, config: Mapping[str, str]) -> Sequence[str]:
        """Every error of a config that is to be written; tells its warnings when there are none."""
        validated = await self._validated(config, None)
        errors = validated.infos.errors
        if not errors and validated.warnings:
            self.tell_warnings(config.get("name", ""), validated.warnings)
        return errors

    async def _validated(
        self, config: Mapping[str, str | None], plugin: str | None, *, is_deep: bool = False
    ) -> Validated:
        class_name = config.get("connector.class") or plugin or ""
        if self._under_way[class_name] >= HANGING_MAX:
            raise SlowValidationError(f"Earlier validations of {class_name} have not come back yet")

        def call() -> Validated:
            self._count(class_name, 1)
            try:
                return self.validation.validate(config, plugin)
            finally:
                self._count(class_name, -1)

        try:
            validated = await self.calls.run(call, subject=f"validation {next(self._numbers)}")
        except Retriable as error:
            raise SlowValidationError(f"Validation of {class_name} did not come back in time") from error
        if validated.definition is None or self.deep is None:
            return validated
        if not is_deep:
            return validated.with_found(await self.deep.spark.findings(validated.definition))
        try:
            async with asyncio.timeout(DEEP_WAIT_SECONDS_MAX):
                await self._deep_alone.acquire()
        except TimeoutError as error:
            raise SlowValidationError("Earlier deep validations have not come back yet") from error
        try:
            answers = await self.deep.answers(validated.definition)
        finally:
            self._deep_alone.release()
        return validated.with_found(finding for answer in answers for finding in answer.findings)

    def _count(self, class_name: str, change: int) -> None:
        """In the threads of the calls."""
        with self._lock:
            self._under_way[class_name] += change
            if not self._under_way[class_name]:
                del self._under_way[class_name]


def _listed(class_name: str, word: str, version: str) -> Mapping[str, str]:
    return {"class": class_name, "type": word, "version": version}


def _may_be_loaded(name: str) -> bool:
    """A module that is not imported yet is not imported for a question; validation does that, in a thread."""
    module, colon, _ = name.partition(":")
    return not colon or module in sys.modules


def _connector_keys(connector: KnownConnector) -> Sequence[ConfigKey]:
    """The connector's own, then those of every connector."""
    keys = (*connector.plugin.load().config_class.config_keys(), *connector.kind.common_class.config_keys())
    versioned = {"connector.plugin.version": connector.plugin.version}
    return tuple(replace(key, default=versioned.get(key.name, key.default)) for key in keys)


def _other_keys(name: str) -> Sequence[ConfigKey]:
    found = find_class(name, (*TRANSFORMATIONS, *PREDICATES))
    if found is not None:
        return found.config_class.config_keys()
    for converter in (*CONVERTERS, *HEADER_CONVERTERS):
        if converter.answers_to(name):
            return converter.config_class.config_keys()
    raise NotFoundError(f"Unknown plugin {name}.")


def _check_version(name: str, installed: str, wanted: str | None) -> None:
    if wanted is None:
        return
    try:
        if is_in_range(installed, wanted):
            return
    except VersionSyntaxError as error:
        raise BadRequestError(f"Invalid version specification: {wanted}") from error
    raise BadRequestError(
        f"Plugin {name} not found that matches the version range {range_text(wanted)}, "
        f"available versions: [{installed}]"
    )
