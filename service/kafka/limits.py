"""What a topic takes, by its own settings: known before anything is sent, so that one record stops no other.

Keys and their meaning: Kafka's topic-level configuration; times are judged as the broker's `LogValidator` does it
(KIP-937).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from service.kafka.batches import BATCH_HEADER_BYTES
from service.kafka.errors import RefusedRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from service.kafka.batches import Columns

BYTES_KEY = "max.message.bytes"
TYPE_KEY = "message.timestamp.type"
BEHIND_KEY = "message.timestamp.before.max.ms"
AHEAD_KEY = "message.timestamp.after.max.ms"
LIMIT_KEYS = (BYTES_KEY, TYPE_KEY, BEHIND_KEY, AHEAD_KEY)
_BY_PRODUCER = "CreateTime"
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True)
class TopicLimits:
    """Bounds of one topic; without the right to read its settings only those of the client."""

    record_bytes_max: int
    behind_ms_max: int = _LONG_MAX
    ahead_ms_max: int = _LONG_MAX

    @classmethod
    def of(cls, settings: Mapping[str, str], *, request_bytes_max: int) -> TopicLimits:
        """From the topic's settings, as far as they were told."""
        bytes_max = min(int(settings.get(BYTES_KEY, request_bytes_max)), request_bytes_max)
        if settings.get(TYPE_KEY, _BY_PRODUCER) != _BY_PRODUCER:
            return cls(bytes_max)
        behind, ahead = (int(settings.get(key, _LONG_MAX)) for key in (BEHIND_KEY, AHEAD_KEY))
        return cls(bytes_max, behind, ahead)

    def refused(self, columns: Columns, *, now_ms: int) -> Iterator[RefusedRecord]:
        """Records that the topic would not take, in order."""
        sizes = columns.sizes_bytes() + BATCH_HEADER_BYTES
        stamps = columns.timestamps_ms
        earliest, latest = max(0, now_ms - self.behind_ms_max), min(now_ms + self.ahead_ms_max, _LONG_MAX)
        is_refused = (sizes > self.record_bytes_max) | (stamps < earliest) | (stamps > latest)
        for row in np.flatnonzero(is_refused).tolist():
            yield self._refusal(row, size_bytes=int(sizes[row]), is_ahead=bool(stamps[row] > latest))

    def _refusal(self, row: int, *, size_bytes: int, is_ahead: bool) -> RefusedRecord:
        if size_bytes > self.record_bytes_max:
            message = f"takes {size_bytes} bytes, {BYTES_KEY} of the topic is {self.record_bytes_max}"
            return RefusedRecord(row, "too_large", message)
        key, limit_ms = (AHEAD_KEY, self.ahead_ms_max) if is_ahead else (BEHIND_KEY, self.behind_ms_max)
        place = "ahead of" if is_ahead else "behind"
        message = f"its timestamp is more than {limit_ms} ms {place} the clock, {key} of the topic"
        return RefusedRecord(row, "out_of_range", message)
