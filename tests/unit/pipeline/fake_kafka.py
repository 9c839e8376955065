"""A Kafka in memory: transactions that are all or nothing, fencing, stored offsets, de-duplication state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from service.kafka.errors import DeliveryRetriable, RecordsRefused, RefusedRecord, WriterFenced
from service.kafka.records import TopicRecords
from service.pipeline.duplicates import Hashes, Mask
from service.stores.offsets import canonical_partition

TOPIC, LETTERS, OFFSETS, STATE = "things", "things-dead-letters", "offsets", "state"


@dataclass(slots=True)
class Transaction:
    """What one commit made visible."""

    writes: tuple[TopicRecords, ...]

    def values(self, topic: str) -> list[bytes | None]:
        """Values written to a topic."""
        return [value for write in self.writes if write.topic == topic for value in write.values.to_pylist()]


@dataclass(slots=True)
class FakeKafka:
    """Committed transactions of all writers with one transactional id, newest epoch first in right."""

    transactions: list[Transaction] = field(default_factory=list)
    epoch: int = 0
    before_commit: Callable[[int], Exception | None] = lambda _: None
    """Given the number of the commit (from 1), the error that aborts it."""
    after_commit: Callable[[int], Exception | None] = lambda _: None
    """Likewise, but the transaction is committed and only its acknowledgement is lost."""
    commits: int = 0
    refuse: Callable[[TopicRecords], list[RefusedRecord]] = lambda _: []
    """What a topic does not take of a write."""
    turn: Callable[[str], Any] | None = None
    """Awaited, when set, wherever the outside is asked."""
    commit_seconds: float = 0.0
    stop_seconds: float = 0.0

    def values(self, topic: str) -> list[bytes | None]:
        """Everything committed to a topic, in order."""
        return [value for transaction in self.transactions for value in transaction.values(topic)]

    def headers(self, topic: str) -> list[Any]:
        """Headers of everything committed to a topic, in order."""
        return [
            header
            for transaction in self.transactions
            for write in transaction.writes
            if write.topic == topic
            for header in (write.headers or [()] * len(write))
        ]

    async def pass_turn(self, place: str) -> None:
        """An await point of the outside."""
        if self.turn is not None:
            await self.turn(place)

    def writer(self) -> FakeWriter:
        """A writer that is not started."""
        return FakeWriter(self)


@dataclass(slots=True)
class FakeWriter:
    """Obeys ``Writer``: all or nothing, used up by any error, fenced by a newer one."""

    kafka: FakeKafka
    is_usable: bool = False
    is_stopped: bool = False
    epoch: int = 0

    async def start(self) -> None:
        """Fence older writers."""
        await self.kafka.pass_turn("writer.start")
        self.kafka.epoch += 1
        self.epoch = self.kafka.epoch
        self.is_usable = True

    async def commit(self, writes: Sequence[TopicRecords]) -> None:
        """Append as a whole; cancelled before that moment, nothing is seen."""
        if not self.is_usable:
            message = "the writer is used up"
            raise DeliveryRetriable(message)
        for write in writes:
            if refused := self.kafka.refuse(write):
                raise RecordsRefused(write, refused)
        self.is_usable = False
        kafka = self.kafka
        await kafka.pass_turn("commit.begin")
        await asyncio.sleep(kafka.commit_seconds)
        if self.epoch != kafka.epoch:
            message = "a newer writer took over"
            raise WriterFenced(message)
        kafka.commits += 1
        self._fail(kafka.before_commit)
        kafka.transactions.append(Transaction(tuple(writes)))
        self._fail(kafka.after_commit)
        await kafka.pass_turn("commit.end")
        self.is_usable = True

    async def refused(self, write: TopicRecords) -> list[RefusedRecord]:
        """What the topic would not take."""
        return self.kafka.refuse(write)

    def _fail(self, script: Callable[[int], Exception | None]) -> None:
        error = script(self.kafka.commits)
        if error is not None:
            raise error

    async def stop(self) -> None:
        """Harmless when repeated."""
        self.is_usable = False
        await asyncio.sleep(self.kafka.stop_seconds)
        self.is_stopped = True


@dataclass(slots=True)
class FakeOffsets:
    """The offset topic, read back from what was committed."""

    kafka: FakeKafka

    async def read(self, connector: str) -> Mapping[str, Mapping[str, object]]:
        """Last offset of each source partition."""
        await self.kafka.pass_turn("offsets.read")
        found: dict[str, dict[str, object]] = {}
        for transaction in self.kafka.transactions:
            for write in transaction.writes:
                if write.topic == OFFSETS and write.keys is not None:
                    for key, value in zip(_texts(write.keys), _texts(write.values), strict=True):
                        owner, partition = json.loads(key)
                        if owner == connector:
                            found[canonical_partition(partition)] = json.loads(value)
        return found

    def encode(
        self, connector: str, offsets: Iterable[tuple[Mapping[str, object], Mapping[str, object] | None]], /
    ) -> list[TopicRecords]:
        """As ``ConnectorOffsets`` does it."""
        pairs = [
            (json.dumps([connector, dict(place)]).encode(), json.dumps(offset).encode()) for place, offset in offsets
        ]
        keys, values = zip(*pairs, strict=True) if pairs else ((), ())
        return [TopicRecords(OFFSETS, pa.array(values, pa.binary()), pa.array(keys, pa.binary()))]

    async def committed(
        self, connector: str, offsets: Iterable[tuple[Mapping[str, object], Mapping[str, object] | None]], /
    ) -> None:
        """Nothing follows a transaction here."""


@dataclass(slots=True)
class MemoryDedupe:
    """Obeys ``DedupeState`` with a set for each window; its state is read back from committed transactions."""

    kafka: FakeKafka = field(default_factory=FakeKafka)
    seen: set[tuple[str, bytes]] = field(default_factory=set)
    tentative: set[tuple[str, bytes]] = field(default_factory=set)
    remembers_rejected: bool = True

    async def load(self) -> None:
        """Read what was committed."""
        await self.kafka.pass_turn("dedupe.load")
        for transaction in self.kafka.transactions:
            for write in transaction.writes:
                if write.topic == STATE and write.keys is not None:
                    pairs = zip(_texts(write.keys), _texts(write.values), strict=True)
                    self.seen |= {(key.decode(), value) for key, value in pairs}

    def known_mask(self, hashes: Hashes, window: str) -> Mask:
        """Those that are committed or noted in any window."""
        return np.array([self._is_known(window, row.tobytes()) for row in hashes], dtype=bool)

    def fresh_mask(self, hashes: Hashes, is_valid: Mask, window: str) -> Mask:
        """First of each hash in any window."""
        fresh = np.ones(len(hashes), dtype=bool)
        for row in np.flatnonzero(is_valid):
            fresh[row] = not self._is_known(window, hashes[row].tobytes())
            if fresh[row]:
                self.tentative.add((window, hashes[row].tobytes()))
        return fresh

    def _is_known(self, window: str, value: bytes) -> bool:
        """With a window in any that is open, without one where there are none."""
        return any(known == value and bool(label) == bool(window) for label, known in self.seen | self.tentative)

    def encode(self, fresh: Sequence[tuple[Any, Hashes]]) -> list[TopicRecords]:
        """A record for each hash."""
        marks = [(scope.window if scope else "", row.tobytes()) for scope, hashes in fresh for row in hashes]
        if not marks:
            return []
        keys = pa.array([window.encode() for window, _ in marks], pa.binary())
        return [TopicRecords(STATE, pa.array([mark for _, mark in marks], pa.binary()), keys)]

    def commit(self) -> None:
        """Keep."""
        self.seen |= self.tentative
        self.tentative = set()

    def rollback(self) -> None:
        """Forget."""
        self.tentative = set()


def _texts(column: Any) -> list[bytes]:
    return cast("list[bytes]", column.to_pylist())
