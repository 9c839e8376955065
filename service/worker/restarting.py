"""How often and how soon what failed on something retriable starts again, by a connector's own keys."""

from __future__ import annotations

from fetchers.sdk import BackOff
from service.config.connector import SourceConnectorConfig
from service.domain.cluster import Properties
from service.worker.supervising import RestartPolicy

_FIELDS = SourceConnectorConfig.model_fields


def restart_policy(properties: Properties) -> RestartPolicy:
    """``errors.restart.*`` and the longest wait.

    A value that is no number means the default: the config that holds it is refused elsewhere, with every finding.
    """
    cap_seconds = _number(properties, "errors.retry.delay.max.ms") / 1000
    first_seconds = _number(properties, "errors.restart.backoff.ms") / 1000
    return RestartPolicy(
        _number(properties, "errors.restart.max"),
        BackOff(first_seconds=first_seconds, cap_seconds=max(cap_seconds, first_seconds)),
    )


def _number(properties: Properties, key: str) -> int:
    default: int = _FIELDS[key.replace(".", "_")].default
    try:
        return max(0, int(properties.get(key, default)))
    except ValueError:
        return default
