"""What the REST interface needs of the rest of the worker, and what it says while that is not there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from metrics.log_levels import LoggerLevel
from metrics.progress import ProgressView
from metrics.prometheus import PrometheusObserver
from service.foreground import Foreground
from service.herder.api import Activity, Herder
from service.herder.errors import RequestError, StartingError
from service.rest.health import Health, WorkerPhase
from service.validation.infos import ConfigKeyInfo
from service.validation.validator import Validated


def summary(activity: Activity) -> str:
    """What a worker is busy with now, or was last, in Connect's words."""
    if activity.ended is None:
        return f"The worker is currently {activity.text}, which began at {activity.began}"
    return (
        f"The last operation the worker completed was {activity.text}, "
        f"which began at {activity.began} and completed at {activity.ended}"
    )


def with_activity(text: str, activity: Activity | None) -> str:
    """A text, and behind it what the worker is busy with, where that is known."""
    return text if activity is None else f"{text} {summary(activity)}"


STARTING = "Worker is still starting up."
STOPPING = "Worker is shutting down"
"""Connect's texts."""


class Loggers(Protocol):
    """Levels of this process (``metrics.log_levels.LogLevels``)."""

    def of_all(self) -> Mapping[str, LoggerLevel]:
        """Every logger in use, the root as ``root``."""

    def of(self, name: str) -> LoggerLevel | None:
        """One logger's level; None where there is none of that name."""

    def set(self, name: str, level: str) -> Sequence[str]:
        """Set it and all below it; which ones that were. ValueError for an unknown level."""


class Plugins(Protocol):
    """What can be run here and how it is configured.

    What is returned is written as JSON as it is. Raises ``NotFoundError`` for an unknown plugin, ``BadRequestError``
    for a request that is wrong as it is.
    """

    def listing(self, *, connectors_only: bool) -> Sequence[Mapping[str, str]]:
        """``[{"class", "type", "version"}]``: sinks, sources, then all the others."""

    def config_keys(self, plugin: str, *, version: str | None) -> Sequence[ConfigKeyInfo]:
        """Its keys; ``version`` is ``latest``, a version, or None."""

    def secret_keys(self, config: Mapping[str, str]) -> Collection[str]:
        """Keys of a connector's or task's config whose values are not for everyone."""

    async def validate(self, plugin: str, config: Mapping[str, str | None], *, is_deep: bool) -> Validated:
        """Every key and its value, also when there are errors; and what is odd about a config that is not wrong.

        ``is_deep``: also by what the registry, the source and Kafka say.
        """


PREVIEW_RECORDS_MAX, PREVIEW_RECORDS_DEFAULT = 500, 20


class Previews(Protocol):
    """What would be written of a source's first records (``service.preview``)."""

    async def preview(self, config: Mapping[str, str], *, records_max: int) -> Mapping[str, Any]:
        """A JSON-like value, written as it is, also where the source failed.

        Raises ``BadRequestError`` for a config that is refused, ``ConflictError`` while too many are under way.
        """


@dataclass(slots=True, kw_only=True)
class Surface:
    """What the routes speak to. HTTP listens before there is a herder, so that health can be asked from the start."""

    health: Health
    metrics: PrometheusObserver
    progress: ProgressView = field(default_factory=ProgressView)
    loggers: Loggers
    version: str
    """Version of headrace."""
    foreground: Foreground = field(default_factory=Foreground)
    """Where requests that go first are known to the rest."""
    plugins: Plugins | None = None
    previews: Previews | None = None
    herder: Herder | None = None
    """All are given by the composition as soon as they are made."""

    @property
    def is_stopping(self) -> bool:
        """Whether the worker lets go of its tasks, or has: what cannot be asked of it any more comes back no more."""
        return self.health.phase is WorkerPhase.STOPPING

    @property
    def absence(self) -> RequestError:
        """Why nothing can be asked of the worker, when nothing can."""
        if self.is_stopping:
            return RequestError(STOPPING)
        return StartingError(with_activity(STARTING, None if self.herder is None else self.herder.life.activity))

    @property
    def present_herder(self) -> Herder:
        """The herder; ``absence`` while there is none."""
        if self.herder is None:
            raise self.absence
        return self.herder

    @property
    def present_plugins(self) -> Plugins:
        """The plugins; ``absence`` until they are there."""
        if self.plugins is None:
            raise self.absence
        return self.plugins

    @property
    def present_previews(self) -> Previews:
        """Previews; ``absence`` until they are there."""
        if self.previews is None:
            raise self.absence
        return self.previews
