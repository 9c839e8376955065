"""What the worker remembers in Kafka: source offsets and the keys already delivered."""

from __future__ import annotations

from service.stores.dedupe import DedupeIndex, DedupeLimits
from service.stores.dedupe_store import DedupeState, DedupeStore, NoDedupe, StoredDedupe
from service.stores.offsets import OffsetStore, canonical_partition

__all__ = [
    "DedupeIndex",
    "DedupeLimits",
    "DedupeState",
    "DedupeStore",
    "NoDedupe",
    "OffsetStore",
    "StoredDedupe",
    "canonical_partition",
]
