"""The config log as a pure fold: records in, in the order of the log, `ClusterConfig` out.

Task configs count from their commit on. Compaction may have removed task configs that a commit names, or the
connector config that stood before it: then the connector has no tasks until they are published again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from service.domain.cluster import ClusterConfig, ConnectorEntry, Properties
from service.domain.states import TargetState
from service.stores.config_records import (
    ConfigRecord,
    ConnectorConfig,
    Deleted,
    PublishedKey,
    Target,
    TaskCommit,
    TaskConfig,
    TaskCount,
)


@dataclass(frozen=True, slots=True)
class ConfigFold:
    """Everything a reader of the log has to remember."""

    config: ClusterConfig = field(default_factory=ClusterConfig)
    uncommitted: Mapping[str, Mapping[int, Properties]] = field(default_factory=dict)
    targets: Mapping[str, TargetState] = field(default_factory=dict)
    """Also of connectors that are not there yet: an initial state stands before its connector."""

    def passed(self, offset: int) -> ConfigFold:
        """With a record at ``offset`` that says nothing."""
        return replace(self, config=replace(self.config, offset=offset + 1))

    def apply(self, record: ConfigRecord, *, offset: int) -> ConfigFold:
        """With one record more, the one at ``offset``."""
        fold = self.passed(offset)
        match record:
            case ConnectorConfig(name, None):
                fold = _without(fold, name)
            case ConnectorConfig(name, config) if config is not None:
                fold = _with_deleted(_with_config(fold, name, config), name, None)  # it takes over what is there
            case Deleted(name, config):
                fold = _with_deleted(fold, name, config)
            case TaskConfig(name, task, config):
                waiting = {**fold.uncommitted.get(name, {}), task: config}
                fold = replace(fold, uncommitted={**fold.uncommitted, name: waiting})
            case TaskCommit(name, tasks):
                fold = _with_tasks(fold, name, tasks)
            case Target(name, state):
                fold = _with_target(fold, name, state)
            case TaskCount(name, tasks):
                counts = {**fold.config.task_counts, name: tasks}
                pending = fold.config.fencing_pending - {name}
                fold = replace(fold, config=replace(fold.config, task_counts=counts, fencing_pending=pending))
            case PublishedKey(key):
                fold = replace(fold, config=replace(fold.config, session_key=key))
        return fold


def _with_entry(fold: ConfigFold, entry: ConnectorEntry) -> ConfigFold:
    connectors = {**fold.config.connectors, entry.name: entry}
    return replace(fold, config=replace(fold.config, connectors=connectors))


def _with_config(fold: ConfigFold, name: str, config: Properties) -> ConfigFold:
    known = fold.config.connectors.get(name)
    if known is None:
        known = ConnectorEntry(name, config, fold.targets.get(name, TargetState.STARTED))
    return _with_entry(fold, replace(known, config=config))


def _with_deleted(fold: ConfigFold, name: str, config: Properties | None) -> ConfigFold:
    deleted = {key: value for key, value in fold.config.deleted.items() if key != name}
    if config is not None:
        deleted[name] = config
    return replace(fold, config=replace(fold.config, deleted=deleted))


def _with_target(fold: ConfigFold, name: str, state: TargetState | None) -> ConfigFold:
    targets = {key: value for key, value in fold.targets.items() if key != name}
    if state is not None:
        targets[name] = state
    fold = replace(fold, targets=targets)
    known = fold.config.connectors.get(name)
    if known is None:
        return fold
    return _with_entry(fold, replace(known, target_state=state or TargetState.STARTED))


def _without(fold: ConfigFold, name: str) -> ConfigFold:
    connectors = {key: entry for key, entry in fold.config.connectors.items() if key != name}
    # One of the same name is pending again with its first tasks; how many there were stays, for whoever fences them.
    config = replace(fold.config, connectors=connectors, fencing_pending=fold.config.fencing_pending - {name})
    return _with_nothing_waiting(replace(fold, config=config), name)


def _with_tasks(fold: ConfigFold, name: str, count: int) -> ConfigFold:
    known = fold.config.connectors.get(name)
    waiting = fold.uncommitted.get(name, {})
    fold = _with_nothing_waiting(fold, name)
    if known is None:
        # Left over from a connector that is deleted; or its config was changed since and stands further on.
        return fold
    pending = fold.config.fencing_pending | {name}
    fold = replace(fold, config=replace(fold.config, fencing_pending=pending))
    if any(task not in waiting for task in range(count)):
        return _with_entry(fold, replace(known, tasks=None, tasks_made_from=None))
    tasks = tuple(waiting[task] for task in range(count))
    # The offset, because it is the same for every worker, whatever compaction has spared it.
    generation = fold.config.offset
    return _with_entry(fold, replace(known, tasks=tasks, task_generation=generation, tasks_made_from=known.config))


def _with_nothing_waiting(fold: ConfigFold, name: str) -> ConfigFold:
    uncommitted = {key: tasks for key, tasks in fold.uncommitted.items() if key != name}
    return replace(fold, uncommitted=uncommitted)
