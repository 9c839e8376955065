"""Source offsets as the offset topic tells them, by connector and source partition. Pure.

Equal source partitions may have been written under different keys: Kafka Connect keeps the order in which a connector
names the fields, this worker sorts them. And one key may lie in two partitions of the topic, because a topic that is
given partitions has other places for its keys from then on. Compaction clears up within one partition only, and the
order of records in two partitions is not known; so the later time of writing wins, what is written next goes under the
key and into the partition of the topic where the newest is, and whatever lies elsewhere is forgotten with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from service.stores.jackson import to_json

Place: TypeAlias = tuple[bytes, int | None]
"""A record's key and the partition of the topic it lies in; None = where its key belongs."""


def canonical_partition(partition: Mapping[str, object]) -> str:
    """Text that is equal for equal source partitions, whatever the order of their names."""
    return to_json(dict(sorted(partition.items())))


@dataclass(frozen=True, slots=True)
class _Written:
    offset: dict[str, object]
    order: tuple[int, int]
    """When it was written; of two at the same time, which was read later."""
    copied_from: str | None
    """The topic in which it was committed, where it was another."""


@dataclass(slots=True)
class OffsetTable:
    """The last offset of each source partition, and the places of the topic where it stands."""

    _partitions: dict[str, dict[str, dict[Place, _Written]]] = field(default_factory=dict)
    """By connector, canonical source partition and place."""
    _reads: int = 0

    def read(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        at_ms: int,
        topic_partition: int,
        copied_from: str | None = None,
    ) -> None:
        """Take in a record; those of one partition of the topic in their order, others in any.

        Raises ValueError for a record that is no offset.
        """
        connector, partition = _decode_key(key or b"null")
        offset = None if value is None else json.loads(value)
        if not isinstance(offset, dict | None):
            raise ValueError("not an offset")  # noqa: TRY004 - callers catch one class for everything unreadable
        under = self._partitions.setdefault(connector, {}).setdefault(partition, {})
        place = (key or b"", topic_partition)
        if offset is None:
            under.pop(place, None)
        else:
            self._reads += 1
            under[place] = _Written(offset, (at_ms, self._reads), copied_from)
        self._drop_empty(connector, partition)

    def offsets(self, connector: str, *, but_copies_from: str | None = None) -> dict[str, dict[str, object]]:
        """Last offset of each partition of a connector, by `canonical_partition`, but copies from that topic."""
        known = self._partitions.get(connector, {})
        newest = {
            partition: max(under.values(), key=lambda written: written.order) for partition, under in known.items()
        }
        return {
            partition: last.offset
            for partition, last in newest.items()
            if last.copied_from is None or last.copied_from != but_copies_from
        }

    def write(
        self, connector: str, offsets: Iterable[tuple[Mapping[str, object], Mapping[str, object] | None]]
    ) -> list[tuple[Place, bytes | None]]:
        """Places and values of records that set these offsets (None = forget).

        Raises ValueError for what JSON cannot say: NaN, infinities, lone surrogates, names that are not text.
        """
        records: list[tuple[Place, bytes | None]] = []
        for partition, offset in offsets:
            *older, newest = self._places(connector, canonical_partition(partition))
            records += ((place, None) for place in older)
            records.append((newest, None if offset is None else to_json(offset).encode()))
        return records

    def _places(self, connector: str, partition: str) -> list[Place]:
        """Where a source partition stands, the newest last; one that is new where it stands nowhere."""
        under = self._partitions.get(connector, {}).get(partition)
        if not under:
            return [(f"[{to_json(connector)},{partition}]".encode(), None)]
        return sorted(under, key=lambda place: under[place].order)

    def _drop_empty(self, connector: str, partition: str) -> None:
        partitions = self._partitions[connector]
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._partitions[connector]


def _decode_key(key: bytes) -> tuple[str, str]:
    match json.loads(key):
        case [str(connector), dict() | None as partition]:
            return connector, canonical_partition(partition or {})
    raise ValueError("not an offset key")
