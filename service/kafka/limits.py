"""What a topic takes, by its own settings: known before anything is sent, so that one record stops no other.

Keys and their meaning: Kafka's topic-level configuration; times are judged as the broker's `LogValidator` does it
(KIP-937).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from service.kafka.batches import BATCH_HEADER_BYTES, EncodedBatch
from service.kafka.errors import RefusedRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from service.kafka.batches import Columns
    from service.kafka.compression import Compression

BYTES_KEY = "max.message.bytes"
TYPE_KEY = "message.timestamp.type"
BEHIND_KEY = "message.timestamp.before.max.ms"
AHEAD_KEY = "message.timestamp.after.max.ms"
REQUEST_KEY = "max.request.size of the producer"
DIFFERENCE_KEY = "message.timestamp.difference.max.ms"
"""Both ways, of brokers before 4.0: the only one before 3.6, then what counts where the others are not set."""
LIMIT_KEYS = (BYTES_KEY, TYPE_KEY, BEHIND_KEY, AHEAD_KEY, DIFFERENCE_KEY)
_BY_PRODUCER = "CreateTime"
_LONG_MAX = 2**63 - 1
MARGIN_MS_MAX, MARGIN_SHARE = 60_000, 100
"""Of how far off a time may be: a hundredth of it, and no more than a commit takes or two clocks differ."""


@dataclass(frozen=True)
class TopicLimits:
    """Bounds of one topic; without the right to read its settings only those of the client."""

    record_bytes_max: int
    behind_ms_max: int = _LONG_MAX
    ahead_ms_max: int = _LONG_MAX
    bytes_key: str = BYTES_KEY
    """What says the bound of bytes."""
    behind_key: str = BEHIND_KEY
    ahead_key: str = AHEAD_KEY

    @classmethod
    def of(cls, settings: Mapping[str, str], *, request_bytes_max: int) -> TopicLimits:
        """From the topic's settings, as far as they were told."""
        topic_bytes_max = int(settings.get(BYTES_KEY, _LONG_MAX))
        key = BYTES_KEY if topic_bytes_max <= request_bytes_max else REQUEST_KEY
        bytes_max = min(topic_bytes_max, request_bytes_max)
        if settings.get(TYPE_KEY, _BY_PRODUCER) != _BY_PRODUCER:
            return cls(bytes_max, bytes_key=key)
        (behind, behind_key), (ahead, ahead_key) = (_time_limit(settings, each) for each in (BEHIND_KEY, AHEAD_KEY))
        return cls(bytes_max, behind, ahead, key, behind_key, ahead_key)

    def refused(
        self, columns: Columns, *, now_ms: int, compression: Compression | None = None
    ) -> Iterator[RefusedRecord]:
        """Records that the topic would not take, in order; sizes are those of a batch of one, as it would be sent."""
        sizes = columns.sizes_bytes() + BATCH_HEADER_BYTES
        stamps = columns.timestamps_ms
        earliest = max(0, now_ms - _with_margin(self.behind_ms_max))
        latest = min(now_ms + _with_margin(self.ahead_ms_max), _LONG_MAX)
        suspects = (sizes > self.record_bytes_max) | (stamps < earliest) | (stamps > latest)
        for row in np.flatnonzero(suspects).tolist():
            size_bytes = int(sizes[row])
            if size_bytes > self.record_bytes_max:
                # So far only a bound, which varints and compression stay below.
                alone = EncodedBatch(columns.slice(row, 1), compression=compression, is_transactional=False)
                size_bytes = alone.size()
            wrong = self._wrong_size(size_bytes) or self._wrong_time(int(stamps[row]), earliest, latest)
            if wrong is not None:
                yield RefusedRecord(row, *wrong)

    def _wrong_size(self, size_bytes: int) -> tuple[str, str] | None:
        if size_bytes <= self.record_bytes_max:
            return None
        return "too_large", f"takes {size_bytes} bytes, and {self.bytes_key} is {self.record_bytes_max}"

    def _wrong_time(self, stamp_ms: int, earliest: int, latest: int) -> tuple[str, str] | None:
        if earliest <= stamp_ms <= latest:
            return None
        if stamp_ms < 0:
            return "out_of_range", "its timestamp is before 1970, which Kafka has no number for"
        if stamp_ms > latest:
            return (
                "out_of_range",
                f"its timestamp is further ahead of the clock than {self.ahead_key} = {self.ahead_ms_max}",
            )
        return (
            "out_of_range",
            f"its timestamp is further behind the clock than {self.behind_key} = {self.behind_ms_max}",
        )


def _time_limit(settings: Mapping[str, str], key: str) -> tuple[int, str]:
    """One of the two bounds of a time, and the setting that says it."""
    limit_ms = int(settings.get(key, _LONG_MAX))
    if limit_ms == _LONG_MAX and DIFFERENCE_KEY in settings:
        return int(settings[DIFFERENCE_KEY]), DIFFERENCE_KEY
    return limit_ms, key


def _with_margin(limit_ms: int) -> int:
    """A little less than allowed: the broker judges when the record has reached it, by its own clock."""
    return limit_ms - min(MARGIN_MS_MAX, limit_ms // MARGIN_SHARE)
