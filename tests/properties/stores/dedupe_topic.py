"""The de-duplication topic without Kafka."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.events import Emit, discard
from service.kafka.client import KafkaSettings
from service.kafka.partitioner import key_partitions
from service.kafka.records import TopicRecords
from service.stores.dedupe import DedupeLimits
from service.stores.dedupe_records import TaskRecords
from service.stores.dedupe_store import DedupeStore, StoredDedupe, TopicRecord
from service.stores.hashes import HASH_BYTES

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
CONNECTOR = "c"


class FakeTopic:
    """A compacted topic: the last value of each key in each partition."""

    def __init__(self, *, partitions: int = 1) -> None:
        """Begin empty."""
        self.partitions: list[dict[bytes, bytes | None]] = [{} for _ in range(partitions)]
        self.records = self.partitions[0]

    def write(self, writes: list[TopicRecords]) -> None:
        """Commit a transaction."""
        for write in writes:
            assert write.keys is not None
            assert write.partition is not None
            for key, value in zip(write.keys.to_pylist(), write.values.to_pylist(), strict=True):
                assert key is not None
                self.partitions[write.partition][key] = value

    def place_by_key(self, records: Mapping[bytes, bytes]) -> None:
        """Write these as former versions did: each where its key hashes to."""
        places = key_partitions(pa.array(records, pa.binary()), partitions=len(self.partitions))
        for partition, (key, value) in zip(places, records.items(), strict=True):
            self.partitions[partition][key] = value

    def open(self, *, limits: DedupeLimits | None = None, task: int = 0) -> StoredDedupe:
        """A new incarnation of the task, which has read the topic."""
        state = StoreOf(self).open(CONNECTOR, task, limits=limits)
        assert len(self.partitions) == 1
        found = TaskRecords()
        for key, value in self.records.items():
            match _place(key):
                case [str(connector), int(number), str(window), int(sequence)] if (connector, number) == (
                    CONNECTOR,
                    task,
                ):
                    found.take(window, (sequence, 0), value)
        state.restore(found)
        return state

    def live(self) -> list[list[object]]:
        """Keys that are not forgotten."""
        return [json.loads(key) for log in self.partitions for key, value in log.items() if value is not None]


@dataclass(frozen=True, init=False)
class StoreOf(DedupeStore):
    """A store whose topic is in memory."""

    fake: FakeTopic = field(default_factory=FakeTopic)

    def __init__(self, fake: FakeTopic, *, emit: Emit = discard) -> None:
        """Nothing is connected."""
        object.__setattr__(self, "emit", emit)
        object.__setattr__(self, "settings", KafkaSettings(bootstrap="nowhere:1"))
        object.__setattr__(self, "topic", "dedupe")
        object.__setattr__(self, "fake", fake)

    async def records(self, only_partition: Callable[[int], int] | None = None) -> AsyncGenerator[list[TopicRecord]]:
        """See ``DedupeStore``."""
        partitions = self.fake.partitions
        for number in range(len(partitions)) if only_partition is None else (only_partition(len(partitions)),):
            yield [(number, offset, key, value) for offset, (key, value) in enumerate(partitions[number].items())]

    async def _partition_count(self) -> int:
        return len(self.fake.partitions)


def _place(key: bytes) -> object:
    try:
        return json.loads(key)
    except ValueError:
        return None


def hashes_of(numbers: list[int]) -> npt.NDArray[np.uint8]:
    """Distinct hashes for distinct numbers."""
    packed = b"".join(hashlib.md5(b"%d" % number, usedforsecurity=False).digest() for number in numbers)
    return np.frombuffer(packed, dtype=np.uint8).reshape(-1, HASH_BYTES)
