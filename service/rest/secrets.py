"""Secrets in connectors' configs: who sees them, and what a config means that comes back with some of them hidden.

Kafka Connect shows configs as they are to everyone who may ask. Its tools read a config, change it and put it back, so
administrators see it so here too, unless ``rest.config.secrets=hide``. Readers do not. What is hidden is ``[hidden]``;
where it comes back in a request, it stands for the stored value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from aiohttp import web

from metrics.redaction import HIDDEN, redact_by_place
from service.domain.cluster import ConnectorInfo, Properties
from service.domain.ids import TaskId
from service.herder.errors import BadRequestError, NotFoundError
from service.rest.authentication import PRINCIPAL, Role
from service.rest.ports import Surface

_VARIABLE = re.compile(r"\$\{([^}:]+):[^}]*\}")
_NOTHING_STORED = (
    "Invalid value [hidden] for configuration {key}: it stands for the stored value, "
    "and there is none that is otherwise the same: give the value, or a variable of a config provider"
)


@dataclass(frozen=True, slots=True)
class ConfigSecrets:
    """Hides secrets in answers, and puts stored values back into requests."""

    surface: Surface
    providers: frozenset[str] = frozenset()
    """Names of the worker's config providers: their variables are no secrets."""
    is_hidden_for_all: bool = False
    """``rest.config.secrets=hide``."""

    def shown(self, request: web.Request, config: Properties) -> Properties:
        """A connector's or a task's config, as whoever asks may see it."""
        principal = request.get(PRINCIPAL)
        is_trusted = principal is not None and principal.role is Role.ADMIN
        return config if is_trusted and not self.is_hidden_for_all else self._hidden(config)

    def info(self, request: web.Request, info: ConnectorInfo) -> ConnectorInfo:
        """What is told of a connector, the secrets of its config masked."""
        return replace(info, config=self.shown(request, info.config))

    def tasks(
        self, request: web.Request, configs: Collection[tuple[TaskId, Properties]]
    ) -> list[tuple[TaskId, Properties]]:
        """Tasks with their configs, secrets masked."""
        return [(task, self.shown(request, config)) for task, config in configs]

    def restored(self, name: str, given: Mapping[str, str | None]) -> dict[str, str | None]:
        """A config, or changes to one, with stored values where hidden ones came back; raises ``BadRequestError``."""
        if not any(value is not None and HIDDEN in value for value in given.values()):
            return dict(given)
        stored = self._stored(name)
        hidden = self._hidden(stored)
        secret_keys = self.surface.present_plugins.secret_keys({**stored, **_texts(given)})
        restored = dict(given)
        for key, value in given.items():
            if value is None or HIDDEN not in value or value == stored.get(key):
                continue
            if value == hidden.get(key):
                restored[key] = stored[key]
            elif key in secret_keys or HIDDEN in hidden.get(key, ""):
                raise BadRequestError(_NOTHING_STORED.format(key=key))
        return restored

    def _stored(self, name: str) -> Properties:
        try:
            return self.surface.present_herder.reads.info(name, is_consistent=False).config
        except NotFoundError:
            return {}

    def _hidden(self, config: Properties) -> dict[str, str]:
        secret_keys = self.surface.present_plugins.secret_keys(config)
        return {key: self._hidden_value(value, is_secret=key in secret_keys) for key, value in config.items()}

    def _hidden_value(self, value: str, *, is_secret: bool) -> str:
        if not is_secret:
            # Such as a password within a URL.
            return redact_by_place(value)
        variable = _VARIABLE.fullmatch(value)
        is_shown = not value or (variable is not None and variable[1] in self.providers)
        return value if is_shown else HIDDEN


def _texts(given: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in given.items() if value is not None}
