"""The config store: writes records of the config topic, and follows the topic with a fold.

Some writes are the leader's alone (connectors, tasks, keys, restarts): a leader that has been replaced without
knowing it cannot write them any more. Pausing, resuming and log levels anyone may write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metrics.events import Emit, StateRecordSkipped
from service.domain.cluster import ClusterConfig, ConfigChange, Properties, RestartRequest, SessionKey
from service.domain.states import TargetState
from service.stores.config_fold import ConfigFold
from service.stores.config_records import (
    ConfigRecord,
    ConnectorConfig,
    Deleted,
    LoggerLevel,
    PublishedKey,
    Restart,
    Target,
    TaskCommit,
    TaskConfig,
    TaskCount,
    decode,
    encode,
    why_unreadable,
)
from service.stores.state_log import LogRecord, StateLog


class ConfigLog:
    """The ``ConfigStore`` of `service.herder.ports`, on any `StateLog`."""

    def __init__(self, log: StateLog, *, emit: Emit) -> None:
        """Prepare; nothing is read before ``start``."""
        self._log = log
        self._emit = emit
        self._fold = ConfigFold()
        self._listeners: list[Callable[[ConfigChange], None]] = []
        self._is_live = False

    @property
    def config(self) -> ClusterConfig:
        """The log, folded as far as it is read."""
        return self._fold.config

    def listen(self, listener: Callable[[ConfigChange], None]) -> None:
        """Hear of every record from now on; before ``start``: of every record there is."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Read the whole topic and follow it from then on. Raises as ``StateLog.start``."""
        await self._log.start(self._receive)
        self._is_live = True

    async def stop(self) -> None:
        """Disconnect, and give up leadership."""
        await self._log.stop()

    async def read_to_end(self) -> None:
        """Until everything written before the call is in ``config``."""
        await self._log.read_to_end()

    @property
    def is_leader(self) -> bool:
        """Whether this worker holds a claim that, as far as it knows, is the newest."""
        return self._log.is_leader

    async def claim_leadership(self) -> None:
        """Take over the leader's writes; on return all of the leaders before are in ``config``.

        To be called again after a write has failed, once it is certain that this worker is the leader still.
        """
        await self._log.claim_leadership()
        await self._log.read_to_end()

    async def drop_leadership(self) -> None:
        """Give up the leader's writes."""
        await self._log.drop_leadership()

    async def put_connector(self, name: str, config: Properties, *, initial: TargetState | None = None) -> None:
        """Create or change; leader only."""
        targets = [] if initial is None else [Target(name, initial)]
        deleted = [Deleted(name, None)] if name in self.config.deleted else []
        await self._write_as_leader(*targets, *deleted, ConnectorConfig(name, config))

    async def remove_connector(self, name: str, *, deleted: Properties | None = None) -> None:
        """Tombstones on the connector and on its target state, with ``deleted`` beside them; leader only."""
        kept = [] if deleted is None else [Deleted(name, deleted)]
        await self._write_as_leader(*kept, ConnectorConfig(name, None), Target(name, None))

    async def forget_deleted(self, name: str) -> None:
        """Nothing is left to be done for a connector that is deleted; leader only."""
        await self._write_as_leader(Deleted(name, None))

    async def put_tasks(self, name: str, tasks: Sequence[Properties], *, may_start: bool = False) -> None:
        """All task records and their commit, in one transaction; leader only. ``may_start``: their count as well."""
        records = [TaskConfig(name, number, config) for number, config in enumerate(tasks)]
        counts = [TaskCount(name, len(tasks))] if may_start else []
        await self._write_as_leader(*records, TaskCommit(name, len(tasks)), *counts)

    async def put_target_state(self, name: str, state: TargetState) -> None:
        """Have a connector run, pause or stop; any worker may write it. Raises as ``StateLog.write``."""
        await self._write(Target(name, state))

    async def put_restart(self, request: RestartRequest) -> None:
        """Ask every owner to restart; leader only."""
        await self._write_as_leader(Restart(request))

    async def put_task_count(self, name: str, count: int) -> None:
        """How many tasks the generation that may now start has; leader only."""
        await self._write_as_leader(TaskCount(name, count))

    async def put_session_key(self, key: SessionKey) -> None:
        """Publish the key that signs requests between workers; leader only."""
        await self._write_as_leader(PublishedKey(key))

    async def put_logger_level(self, namespace: str, level: str) -> None:
        """Ask every worker to log at this level."""
        await self._write(LoggerLevel(namespace, level))

    async def _write(self, *records: ConfigRecord) -> None:
        await self._log.write([encode(record) for record in records])

    async def _write_as_leader(self, *records: ConfigRecord) -> None:
        await self._log.write([encode(record) for record in records], as_leader=True)

    def _receive(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.offset < self.config.offset:
                # A start that failed half-way is tried again, from the beginning.
                continue
            try:
                meaning = decode(record.key, record.value)
            except (ValueError, RecursionError) as error:
                # Whatever is wrong with it: it would be met again, and the topic never be read to its end.
                self._fold = self._fold.passed(record.offset)
                self._emit(
                    StateRecordSkipped(topic=self._log.topic, offset=record.offset, reason=why_unreadable(error))
                )
            else:
                self._fold = self._fold.apply(meaning, offset=record.offset)
                self._tell(meaning)

    def _tell(self, meaning: ConfigRecord) -> None:
        change = _change(meaning, after=self.config, is_live=self._is_live)
        for listener in self._listeners:
            listener(change)


def _change(record: ConfigRecord, *, after: ClusterConfig, is_live: bool) -> ConfigChange:
    match record:
        case Restart(request):
            return ConfigChange(after, request.connector, restart=request if is_live else None)
        case LoggerLevel(namespace, level):
            return ConfigChange(after, logger=(namespace, level) if is_live else None)
        case PublishedKey():
            return ConfigChange(after)
        case _:
            return ConfigChange(after, record.connector)
