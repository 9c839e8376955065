"""Requests about offsets: read any time, changed only while a connector is STOPPED (KIP-875)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from service.domain.cluster import ConnectorEntry, Properties
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.herder.api import OffsetEntry
from service.herder.errors import BadRequestError, ConflictError, RequestError
from service.herder.leader import Fencing
from service.herder.ports import Altered, OffsetAccess
from service.herder.requests import ConnectorLocks
from service.herder.view import CONFLICT, ClusterView
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, GroupHasMembers
from service.kafka.groups import ConsumerGroups
from service.kafka.reader import last_ends
from service.stores.connector_offsets import ConnectorOffsets
from service.stores.dedupe_store import DedupeStore
from service.stores.offset_changes import ForgottenWith, OffsetChanges

T = TypeVar("T")
ClientsOf = Callable[[str, Properties], KafkaSettings]
"""Settings of a client by role (producer, consumer, admin) and connector config, provider variables unresolved."""
OffsetsOf = Callable[[Properties], Awaitable[ConnectorOffsets]]
"""Where a connector of this config has its offsets; the topics are there."""
CheckOffsets = Callable[
    [Properties, Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]], Awaitable[ForgottenWith]
]
"""The connector's own opinion, and what is forgotten with what; raises ValueError with a text for whoever asked.

It ends when it is cancelled. It and what it returns raise TimeoutError too, where the connector's code hangs.
"""
CheckSinkOffsets = Callable[[Properties, Mapping[tuple[str, int], int | None]], Awaitable[None]]
"""The same of a sink, by topic and partition; None = forget. It may ask the target, and ends when it is cancelled.

Raises TimeoutError too, where the target has not answered.
"""
CHECK_SECONDS_MAX = 60.0
"""For a sink's target, or a source's own code, to answer; less than the 90 s that REST waits, so that whoever asked is
told the reason."""
LETTING_GO_LOOKS_MAX = 50
"""A connector is STOPPED the moment it is written; its tasks deliver what they hold up to seconds later."""
LEAVING_LOOKS_MAX = 25
"""A sink's tasks flush, then leave their group."""
LOOK_SECONDS = 0.2
"""Between two looks."""


@dataclass(frozen=True, slots=True)
class OffsetRequests:
    """Requests about the offsets of one connector, source or sink. All raise ``RequestError`` or ``ElsewhereError``."""

    view: ClusterView
    sources: OffsetAccess
    sinks: OffsetAccess
    locks: ConnectorLocks
    fencing: Fencing

    async def read(self, name: str) -> Sequence[OffsetEntry]:
        """All offsets of a connector, whatever its state; 404 where it is missing."""
        entry = self.view.entry(name)
        async with self.locks.telling_failures():
            return await self._access(entry).read(name, entry.config)

    async def alter(self, name: str, offsets: Sequence[OffsetEntry]) -> str:
        """Set or forget (None) the given offsets of a stopped connector, on the leader; Connect's text of success."""
        if not offsets:
            raise BadRequestError("Partitions / offsets need to be provided for an alter offsets request")
        self._demand_place(name)
        async with self.locks.changing(name):
            entry = await self._let_go(name)
            altered = await self._access(entry).alter(name, entry.config, offsets)
            return _told(is_whole=altered.is_whole, done="altered") + altered.remark

    async def reset(self, name: str) -> str:
        """Forget all offsets of a stopped connector, on the leader; Connect's text of success."""
        self._demand_place(name)
        async with self.locks.changing(name):
            entry = await self._let_go(name)
            return _told(is_whole=await self._access(entry).reset(name, entry.config), done="reset")

    def _demand_place(self, name: str) -> None:
        self.view.demand_settled()
        self.view.demand_leader()
        self.view.entry(name)

    def _stopped(self, name: str) -> ConnectorEntry:
        entry = self.view.entry(name)
        if entry.target_state is not TargetState.STOPPED or entry.tasks:
            raise BadRequestError(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
            )
        return entry

    async def _let_go(self, name: str) -> ConnectorEntry:
        """Stopped, and no task of it left anywhere that could still commit what it holds; raises ``ConflictError``.

        Sinks need no waiting here: the broker changes no group that has members.
        """
        for _ in range(LETTING_GO_LOOKS_MAX):
            # At each look: any worker may resume it meanwhile.
            entry = self._stopped(name)
            if self.view.is_sink(entry) or not (self.view.held_tasks(name) or self.fencing.is_under_way(name)):
                return entry
            await asyncio.sleep(LOOK_SECONDS)
        raise ConflictError(CONFLICT)

    def _access(self, entry: ConnectorEntry) -> OffsetAccess:
        return self.sinks if self.view.is_sink(entry) else self.sources


def _told(*, is_whole: bool, done: str) -> str:
    if is_whole:
        return f"The offsets for this connector have been {done} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. However, if this "
        f"connector manages offsets externally, they will need to be manually {done} in the system that the connector "
        "uses."
    )


@dataclass(frozen=True, slots=True)
class SourceOffsetAccess:
    """See ``OffsetAccess``. No connector here keeps offsets elsewhere, so the answer is always that it took part."""

    group_id: str
    offsets_of: OffsetsOf
    dedupe: Callable[[], Awaitable[DedupeStore]]
    """What was delivered; its topic is there."""
    clients_of: ClientsOf
    check: CheckOffsets
    task_count: Callable[[str], int]
    """Tasks of the generation that was fenced last."""

    async def read(self, name: str, config: Properties) -> Sequence[OffsetEntry]:
        """The newest source offset of each source partition."""
        return await (await self.offsets_of(config)).entries(name)

    async def alter(self, name: str, config: Properties, offsets: Sequence[OffsetEntry]) -> Altered:
        """Fence what may still write, then write."""
        entries = source_entries(offsets)
        left_seconds, loop = CHECK_SECONDS_MAX, asyncio.get_running_loop()

        async def answered(asked: Awaitable[T]) -> T:
            nonlocal left_seconds  # of all that this request asks the connector: REST waits for no longer
            began_at = loop.time()
            try:
                return await _answered(asked, _HANGING, seconds_max=left_seconds)
            finally:
                left_seconds -= loop.time() - began_at

        forgotten_with = await answered(self.check(config, entries))

        async def forgotten(
            partition: Mapping[str, Any], stored: Sequence[Mapping[str, Any]]
        ) -> Sequence[Mapping[str, Any]]:
            return await answered(forgotten_with(partition, stored))

        try:
            await self._fence(name, config)
            changes, writing = await self._changes(config), await self._writing(config)
            await changes.alter(name, entries, writing=writing, forgotten_with=forgotten)
        except ValueError as error:
            raise BadRequestError(str(error)) from error
        return Altered(is_whole=True)

    async def reset(self, name: str, config: Properties) -> bool:
        """Fence what may still write, then forget all."""
        await self._fence(name, config)
        await (await self._changes(config)).reset(name, writing=await self._writing(config))
        return True

    async def _changes(self, config: Properties) -> OffsetChanges:
        return OffsetChanges(await self.offsets_of(config), self.group_id, await self.dedupe())

    async def _writing(self, config: Properties) -> KafkaSettings:
        return await _clients(self.clients_of, "producer", config)

    async def _fence(self, name: str, config: Properties) -> None:
        """All tasks but the first, which the writer of the change fences."""
        ids = [TaskId(name, number).transactional_id(self.group_id) for number in range(1, self.task_count(name))]
        if ids:
            async with KafkaAdmin.opened(await _clients(self.clients_of, "admin", config)) as admin:
                await admin.fence_producers(ids)


@dataclass(frozen=True, slots=True)
class SinkOffsetAccess:
    """Offsets of sinks: what their consumer group has committed (`service.herder.ports.OffsetAccess`)."""

    clients_of: ClientsOf
    group_of: Callable[[str, Properties], str]
    check: CheckSinkOffsets

    async def read(self, name: str, config: Properties) -> Sequence[OffsetEntry]:
        """The committed offset of each topic partition of the connector's group."""
        async with ConsumerGroups.opened(await _clients(self.clients_of, "admin", config)) as groups:
            offsets = await groups.offsets(self.group_of(name, config))
        return [
            ({TOPIC: topic, PARTITION: partition}, {OFFSET: offset})
            for (topic, partition), offset in sorted(offsets.items())
        ]

    async def alter(self, name: str, config: Properties, offsets: Sequence[OffsetEntry]) -> Altered:
        """Commit in the group's name, which has no members then.

        Kafka Connect 4.1 answers 500, without saying why, where Kafka has no such topic partition; here it is told, and
        nothing is changed. It takes an offset beyond the end without a word, and so does this, with a remark.
        """
        entries = sink_entries(offsets)
        group_id = self.group_of(name, config)
        async with ConsumerGroups.opened(await _clients(self.clients_of, "admin", config)) as groups:
            known = await groups.offsets(group_id)
        # After a crash the target may be further than the group: what stays as it is sets nothing back.
        await self._check(config, {place: at for place, at in entries.items() if at != known.get(place)})
        remark = await self._remark(name, config, entries)
        changed = {place: at for place, at in entries.items() if at is not None}
        forgotten = [place for place, at in entries.items() if at is None]
        async with self._changing(name, config, done="alter") as groups:
            await _once_left(lambda: groups.alter(group_id, changed))
            await _once_left(lambda: groups.forget(group_id, forgotten))
        return Altered(is_whole=True, remark=remark)

    async def _remark(self, name: str, config: Properties, entries: Mapping[tuple[str, int], int | None]) -> str:
        """On offsets beyond the ends of their partitions. Raises BadRequestError for partitions that there are not."""
        clients = await _clients(self.clients_of, "admin", config)
        remark = ""
        for topic in sorted({topic for topic, _ in entries}):
            wanted = {number: at for (own, number), at in sorted(entries.items()) if own == topic}
            failed = f"Failed to alter consumer group offsets for connector {name}"
            try:
                ends = {place.partition: end for place, end in (await last_ends(clients, topic)).items()}
            except DeliveryFatal as error:
                raise BadRequestError(f"{failed}: {error}") from error
            if missing := sorted(wanted.keys() - ends.keys()):
                text = f"topic '{topic}' has no partition {missing[0]}: there are {len(ends)}, counted from 0"
                raise BadRequestError(f"{failed}: {text}")
            for number, at in wanted.items():
                if at is not None and at > ends[number]:
                    remark += _BEYOND.format(at=at, number=number, topic=topic, end=ends[number])
        return remark

    async def reset(self, name: str, config: Properties) -> bool:
        """Remove the connector's group; raises ``RequestError`` while it has members."""
        group_id = self.group_of(name, config)
        async with self._changing(name, config, done="reset") as groups:
            await self._check(config, dict.fromkeys(await groups.offsets(group_id)))
            await _once_left(lambda: groups.delete(group_id))
        return True

    async def _check(self, config: Properties, entries: Mapping[tuple[str, int], int | None]) -> None:
        """Ask the sink, where there is something to decide: its target may be away. Raises BadRequestError."""
        if entries:
            await _answered(self.check(config, entries), _SILENT)

    @asynccontextmanager
    async def _changing(self, name: str, config: Properties, *, done: str) -> AsyncIterator[ConsumerGroups]:
        try:
            async with ConsumerGroups.opened(await _clients(self.clients_of, "admin", config)) as groups:
                yield groups
        except GroupHasMembers as error:
            raise RequestError(
                f"Failed to {done} consumer group offsets for connector {name} either because its tasks haven't "
                f"stopped completely yet or the connector was resumed before the request to {done} its offsets could "
                "be successfully completed. If the connector is in a stopped state, this operation can be safely "
                "retried. If it doesn't eventually succeed, the Connect cluster may need to be restarted to get rid "
                "of the zombie sink tasks."
            ) from error


async def _once_left(change: Callable[[], Awaitable[None]]) -> None:
    """Make a change that the broker refuses as long as the group has members. Raises GroupHasMembers if they stay."""
    for _ in range(LEAVING_LOOKS_MAX):
        try:
            await change()
        except GroupHasMembers:
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return
    await change()


async def _clients(clients_of: ClientsOf, role: str, config: Properties) -> KafkaSettings:
    """In a thread: a config provider may have to wait for its file."""
    return await asyncio.to_thread(clients_of, role, config)


async def _answered(asked: Awaitable[T], silent: str, *, seconds_max: float = CHECK_SECONDS_MAX) -> T:
    """What a connector's own code says. Raises BadRequestError with its refusal, or with ``silent`` where it hangs."""
    try:
        async with asyncio.timeout(seconds_max):
            return await asked
    except TimeoutError as error:
        raise BadRequestError(silent) from error
    except ValueError as error:
        raise BadRequestError(str(error)) from error


_HANGING = (
    f"The connector's own code has not said within {CHECK_SECONDS_MAX:g} s whether these offsets may be set, and "
    "nothing was changed: try again when what it asks can be reached"
)
_SILENT = (
    f"The sink's target could not be asked within {CHECK_SECONDS_MAX:g} s how far it is, which decides whether these "
    "offsets have an effect: try again when it can be reached or, if it is gone for good, name another in the "
    "connector's config first"
)
_BEYOND = (
    ". But offset {at} is beyond the end of partition {number} of topic '{topic}', which is {end}: unless records have "
    "come up to it when the connector is resumed, it begins where auto.offset.reset says, by default at the beginning, "
    "and so delivers all records again"
)
TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_PRIMITIVE = (str, bool, int, float, type(None))
_LONG_MAX = 2**63 - 1


def source_entries(offsets: Sequence[OffsetEntry]) -> list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    """Source partitions and offsets; flat maps of primitive values."""
    entries = []
    for partition, offset in offsets:
        for values in (partition, offset):
            _demand_flat(values or {})
        if partition is None and offset is not None:
            raise BadRequestError("Partition objects cannot be null")
        entries.append((partition or {}, offset))
    return entries


def sink_entries(offsets: Sequence[OffsetEntry]) -> dict[tuple[str, int], int | None]:
    """Offsets of a consumer group by topic and partition; None = forget."""
    return {_topic_partition(partition): _sink_offset(offset) for partition, offset in offsets}


def _demand_flat(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if not isinstance(key, str):
            raise BadRequestError("Offsets may only use String keys")
        if not isinstance(value, _PRIMITIVE):
            kind = "MAP" if isinstance(value, Mapping) else "ARRAY"
            raise BadRequestError(
                f"Offsets may only contain primitive types as values, but field {key} contains {kind}"
            )


def _topic_partition(partition: Mapping[str, Any] | None) -> tuple[str, int]:
    if partition is None:
        raise BadRequestError("The partition for a sink connector offset cannot be null or missing")
    if TOPIC not in partition or PARTITION not in partition:
        raise BadRequestError(
            f"The partition for a sink connector offset must contain the keys '{TOPIC}' and '{PARTITION}'"
        )
    topic, number = partition[TOPIC], partition[PARTITION]
    if not isinstance(topic, str):
        raise BadRequestError("Kafka topic names must be valid strings and may not be null")
    if number is None:
        raise BadRequestError("Kafka partitions must be valid numbers and may not be null")
    parsed = _integer(number, most=2**31 - 1)
    if parsed is None:
        raise BadRequestError(
            f"Failed to parse the following Kafka partition value in the provided offsets: '{_shown(number)}'. "
            "Partition values for sink connectors need to be integers."
        )
    return topic, parsed


def _sink_offset(offset: Mapping[str, Any] | None) -> int | None:
    if offset is None:
        return None
    if OFFSET not in offset:
        raise BadRequestError(f"The offset for a sink connector should either be null or contain the key '{OFFSET}'")
    parsed = _integer(offset[OFFSET], most=_LONG_MAX)
    if parsed is None:
        raise BadRequestError(
            f"Failed to parse the following Kafka offset value in the provided offsets: '{_shown(offset[OFFSET])}'. "
            "Offset values for sink connectors need to be integers."
        )
    return parsed


def _shown(value: object) -> str:
    """The value as it stood in the request, but for the quotes of a text."""
    return value if isinstance(value, str) else json.dumps(value)


def _integer(value: object, *, most: int) -> int | None:
    """An integer, also as text; negative ones are none that Kafka has."""
    text = str(value)
    is_integer = not isinstance(value, bool) and text.isascii() and text.isdigit()
    return int(text) if is_integer and int(text) <= most else None
