"""Records of the topic of de-duplication state: where the chunks of a task lie, and their keys.

All chunks of a task lie in one partition, its home, and only that one is read when it starts. Former versions placed
each chunk by its own key, and partitions may have been added since. Where that may be so, all partitions are read, and
new chunks stay outside of the home as long as another lies there: so the home never looks whole while it is not.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from service.kafka.partitioner import key_partitions
from service.kafka.records import TopicRecords
from service.stores.dedupe_chunks import LiveChunks, Place
from service.stores.hashes import HASH_BYTES
from service.stores.jackson import to_json

TaskKey: TypeAlias = tuple[str, int]
"""Connector and number of a task."""


@dataclass(slots=True)
class TaskRecords:
    """What the topic holds of one task."""

    home: int = 0
    """Partition of its chunks, but for those of former versions."""
    live: LiveChunks = field(default_factory=dict)
    next_sequence: int = 0

    @property
    def partition(self) -> int:
        """Where new chunks go: home, or outside of it as long as anything lies there."""
        return min((partition for _, partition in self.live if partition != self.home), default=self.home)

    def take(self, window: str, place: Place, value: bytes | None) -> None:
        """Take in a record of the task, in the order of its partition; a null value forgets the chunk there."""
        self.next_sequence = max(self.next_sequence, place[0] + 1)
        if value is None:
            self.live.pop(place, None)
        else:
            self.live[place] = (window, value)

    def may_be_a_part(self, task: TaskKey, count: int) -> bool:
        """Whether all that lives in the home of so many partitions belongs there by its own key, as if by chance."""
        keys = _keys(task, [(window, sequence) for (sequence, _), (window, _) in self.live.items()])
        return not keys or bool((key_partitions(pa.array(keys, pa.binary()), partitions=count) == self.home).all())


def partition_of(task: TaskKey, count: int) -> int:
    """Which of so many partitions the chunks of a task lie in."""
    return int(key_partitions(pa.array([to_json(list(task)).encode()], pa.binary()), partitions=count)[0])


def chunk_writes(topic: str, task: TaskKey, changes: Iterable[tuple[str, Place, bytes | None]]) -> list[TopicRecords]:
    """Records that put packed hashes of a window at places, None forgetting what is there; one list a partition."""
    by_partition: dict[int, list[tuple[str, int, bytes | None]]] = defaultdict(list)
    for window, (sequence, partition), packed in changes:
        by_partition[partition].append((window, sequence, packed))
    return [
        TopicRecords(
            topic,
            pa.array([packed for _, _, packed in part], pa.binary()),
            pa.array(_keys(task, [(window, sequence) for window, sequence, _ in part]), pa.binary()),
            partition=partition,
        )
        for partition, part in by_partition.items()
    ]


def _keys(task: TaskKey, places: Sequence[tuple[str, int]]) -> list[bytes]:
    """Keys of chunks by window and sequence number; thousands of one window where former versions left them."""
    beginnings = {window: to_json([*task, window]).encode()[:-1] for window in {window for window, _ in places}}
    return [b"%b,%d]" % (beginnings[window], sequence) for window, sequence in places]


def parse_key(key: bytes | None) -> tuple[str, int, str, int] | None:
    """Connector, task, window, sequence; None for a record that is not ours."""
    try:
        parts = json.loads(key or b"null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(parts, list) or [type(part) for part in parts] != [str, int, str, int]:
        return None
    connector, task, window, sequence = parts
    return connector, task, window, sequence


def why_foreign(place: tuple[str, int, str, int] | None, value: bytes | None) -> str | None:
    """Why a record is no chunk; None for one that is."""
    if place is None:
        return "its key is none of de-duplication state"
    return "it holds no whole hashes" if value is not None and len(value) % HASH_BYTES else None
