"""The status store: states told are seen here at once, and written in the background, the newest of each key.

Writing is tried until it succeeds: the state of a task is news until somebody can read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fetchers.sdk.clock import Clock
from fetchers.sdk.retry import BackOff
from metrics.events import Emit, StateLogInterrupted, StateRecordSkipped
from service.background import Background, located, persist
from service.domain.cluster import InstanceStatus
from service.domain.ids import InstanceId, TaskId
from service.kafka.errors import KafkaFailure
from service.stores.config_records import why_unreadable
from service.stores.state_log import LogRecord, StateLog
from service.stores.status_records import StatusKey, TopicKey, TopicUse, decode, encode
from service.stores.status_table import StatusTable, may_put_safely

FLUSH_SECONDS_MAX = 5.0
TRACE_CHARACTERS_MAX = 65_536
_RETRY = BackOff(first_seconds=0.5, cap_seconds=10.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """Something this worker has told; itself, not its equal, until it is read back."""

    value: InstanceStatus | TopicUse | None
    is_safe: bool = False


class Statuses:
    """The ``StatusStore`` of `service.herder.ports`, on any `StateLog`."""

    def __init__(self, log: StateLog, *, clock: Clock, emit: Emit) -> None:
        """Prepare; nothing is read before ``start``."""
        self._log = log
        self._clock = clock
        self._emit = emit
        self._read = StatusTable()
        self._shown = StatusTable()
        self._told: dict[StatusKey, _Told] = {}
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()
        self._background = Background()
        self._is_running = False

    async def start(self) -> None:
        """Read the whole topic, follow it, and begin to write what is told. Raises as ``StateLog.start``."""
        await self._log.start(self._receive)
        await self._background.__aenter__()
        self._is_running = True
        self._background.start(persist(self._write_on, tell=self._on_bug), name="statuses")

    async def stop(self) -> None:
        """Write what is queued, for `FLUSH_SECONDS_MAX` at most, and disconnect."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                await self.flush()
        except (TimeoutError, KafkaFailure) as error:
            self._emit(
                StateLogInterrupted(topic=self._log.topic, reason=f"{len(self._told)} states unwritten: {error}")
            )
        if self._is_running:
            self._is_running = False
            await self._background.__aexit__(None, None, None)
        await self._log.stop()

    async def read_to_end(self) -> None:
        """See ``StatusStore``."""
        await self._log.read_to_end()

    def instance(self, instance: InstanceId) -> InstanceStatus | None:
        """State of a connector or a task."""
        return self._shown.instance(instance)

    def names(self) -> Sequence[str]:
        """Connectors of which anything is known."""
        return self._shown.names()

    def connector(self, name: str) -> InstanceStatus | None:
        """State of the connector itself."""
        return self._shown.connector(name)

    def tasks(self, name: str) -> Mapping[int, InstanceStatus]:
        """States of its tasks, sorted by number."""
        return self._shown.tasks(name)

    def put(self, instance: InstanceId, status: InstanceStatus) -> None:
        """Tell a state; seen by reads here at once."""
        self._tell(instance, _Told(_writable(status)))

    def put_safe(self, instance: InstanceId, status: InstanceStatus) -> None:
        """Tell a state unless a newer generation of another worker has told one."""
        if may_put_safely(self._shown.instance(instance), status):
            self._tell(instance, _Told(_writable(status), is_safe=True))

    def remove(self, instance: InstanceId) -> None:
        """The connector or task is gone."""
        self._tell(instance, _Told(None))

    def topics(self, name: str) -> Sequence[str]:
        """Topics the connector has used."""
        return self._shown.topics(name)

    def add_topic(self, topic: str, task: TaskId) -> None:
        """The task has used a topic; told once."""
        key = TopicKey(task.connector, topic)
        if self._shown.value(key) is None:
            now_ms = round(self._clock.now().timestamp() * 1000)
            self._tell(key, _Told(TopicUse(topic, task.connector, task.task, now_ms)))

    def reset_topics(self, name: str) -> None:
        """Forget which topics the connector has used; seen by reads here at once."""
        for topic in self._shown.topics(name):
            self._tell(TopicKey(name, topic), _Told(None))

    async def flush(self) -> None:
        """Write everything told so far. Raises ``KafkaFailure``; it stays queued then."""
        # Held across the writing: a later state must not overtake an earlier one.
        async with self._writing:
            told = {key: entry for key, entry in self._told.items() if not self._is_outdated(key, entry)}
            for key in self._told.keys() - told.keys():
                self._release(key, self._told[key])
            if told:
                await self._log.write([encode(key, entry.value) for key, entry in told.items()])
            for key, entry in told.items():
                self._release(key, entry)

    async def _write_on(self) -> None:
        failures = 0
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.flush()
            except KafkaFailure as error:
                failures += 1
                self._emit(StateLogInterrupted(topic=self._log.topic, reason=str(error)))
                await self._clock.sleep(_RETRY.wait_seconds(failures))
                self._news.set()
            else:
                failures = 0

    def _on_bug(self, error: Exception) -> None:
        self._emit(StateLogInterrupted(topic=self._log.topic, reason=located(error)))
        self._news.set()

    def _tell(self, key: StatusKey, told: _Told) -> None:
        self._told[key] = told
        self._shown.set(key, told.value)
        self._news.set()

    def _is_outdated(self, key: StatusKey, told: _Told) -> bool:
        """Whether someone else has told a newer state since a safe one was told here."""
        known = self._read.value(key)
        return (
            told.is_safe
            and isinstance(told.value, InstanceStatus)
            and isinstance(known, InstanceStatus)
            and not may_put_safely(known, told.value)
        )

    def _release(self, key: StatusKey, told: _Told) -> None:
        """From now on the log decides, unless something else has been told meanwhile."""
        if self._told.get(key) is told:
            del self._told[key]
            self._shown.set(key, self._read.value(key))

    def _receive(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            try:
                key, value = decode(record.key, record.value)
            except (ValueError, RecursionError) as error:
                # Whatever is wrong with it: it would be met again, and the topic never be read to its end.
                self._emit(
                    StateRecordSkipped(topic=self._log.topic, offset=record.offset, reason=why_unreadable(error))
                )
                continue
            self._read.read(key, value)
            if key not in self._told:
                self._shown.set(key, self._read.value(key))


def _writable(status: InstanceStatus) -> InstanceStatus:
    """With a trace that fits into a record and into UTF-8."""
    if status.trace is None:
        return status
    return replace(status, trace=status.trace[:TRACE_CHARACTERS_MAX].encode(errors="replace").decode())
