"""`TimestampRouter`: a topic for each day, hour or month, made from the time of the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from spark_batch.transforms.form import FormKey, KeysRefused, KeyValues
from spark_batch.transforms.halves import ArrowColumn, Fault, FaultReason, Faults, Origins
from spark_batch.transforms.java_dates import DAY_MS, JavaDateError, JavaDates
from spark_batch.transforms.records import Records

_UNITS_MS = {"S": 1, "s": 1000, "m": 60_000, "H": 3_600_000, "k": 3_600_000, "K": 3_600_000, "h": 3_600_000}
"""How long the same letter of a pattern says the same; all others do so for a day, half of one at least."""
UNTIMED = "Timestamp missing on record"
"""Connect's words for a record that has no time."""


@dataclass(frozen=True)
class TimestampRouter:
    """Another topic, made from the first and the record's time, in UTC."""

    topic_format: str = "${topic}-${timestamp}"
    dates: JavaDates = JavaDates("yyyyMMdd")  # noqa: RUF009 - a frozen value

    NAME: ClassVar[str] = "TimestampRouter"
    ABOUT: ClassVar[str] = "Another topic, made from the first and the time of the record."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey(
            "topic.format",
            "Name of the new topic; ``${topic}`` and ``${timestamp}`` stand for the first topic and the time.",
            default="${topic}-${timestamp}",
            is_important=True,
        ),
        FormKey(
            "timestamp.format",
            "Pattern of ``java.text.SimpleDateFormat`` for the time, in UTC.",
            default="yyyyMMdd",
            is_important=True,
        ),
    )

    @classmethod
    def configured(cls, values: KeyValues) -> TimestampRouter:
        """Refuses patterns that cannot be carried out."""
        dates = JavaDates(values["timestamp.format"] or "")
        try:
            _ = dates.tokens
        except JavaDateError as error:
            raise KeysRefused(("timestamp.format", str(error))) from error
        return cls(values["topic.format"] or "", dates)

    def routed(self, topic: str, millis: int) -> str:
        """The topic for records of that topic and that time (milliseconds since the epoch)."""
        # As in Connect: what stands for the time is looked for in the topic's name too.
        return self.topic_format.replace("${topic}", topic).replace("${timestamp}", self.dates.written(millis))

    def routes(self, topic: str, timestamps: ArrowColumn) -> tuple[list[str], Any]:
        """The topics, and for each record the number of its own (numpy, −1 where it has no time).

        A text is made once for each span of time for which the pattern says the same, and not for each record.
        """
        column: Any = timestamps
        millis = np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
        spans, which = np.unique(millis // self._span_ms, return_inverse=True)
        names = [self.routed(topic, int(span) * self._span_ms) for span in spans]
        topics = list(dict.fromkeys(names))
        numbers = np.array([topics.index(name) for name in names], dtype=np.int64)[which]
        numbers[np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)] = -1
        return topics, numbers

    @property
    def _span_ms(self) -> int:
        letters = {token.field for token in self.dates.tokens if token.field is not None}
        halves = DAY_MS // 2 if "a" in letters else DAY_MS
        return min((_UNITS_MS.get(str(letter), halves) for letter in letters), default=halves)

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """One part for each topic."""
        topics, numbers = self.routes(records.topic, origins.timestamps)
        fault = Fault(FaultReason.MISSING_TIMESTAMP, UNTIMED)
        faults = {int(row): fault for row in np.flatnonzero(numbers < 0)}
        parts = [replace(records.taken(numbers == at), topic=topic) for at, topic in enumerate(topics)]
        return [part for part in parts if len(part.rows)], faults


def routed_topics(router: TimestampRouter, topics: ArrowColumn, timestamps: ArrowColumn) -> ArrowColumn:
    """A column of topics afterwards; null where a record has no time."""
    encoded: Any = cast("Any", topics).dictionary_encode()
    numbers = np.asarray(encoded.indices)
    made: Any = np.full(len(numbers), None, dtype=object)
    for at, topic in enumerate(encoded.dictionary.to_pylist()):
        own = np.flatnonzero(numbers == at)
        names, which = router.routes(topic, cast("Any", timestamps).take(pa.array(own)))
        made[own] = np.array([*names, None], dtype=object)[which]
    return pa.array(made, pa.string())
