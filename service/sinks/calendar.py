"""Days and instants that a target has: what lies beyond is refused, because it would be written as another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MICROS_OF_A_DAY = 86_400_000_000
_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}


@dataclass(frozen=True, slots=True)
class Calendar:
    """Counted from 1970; both ends are of it."""

    days: tuple[int, int]
    micros: tuple[int, int]

    def outside(self, values: Any) -> npt.NDArray[np.bool_] | None:
        """Which dates, instants and times of day are none of it; None where all are, and for other values."""
        kind = values.type
        if pa.types.is_date32(kind):
            first, last = self.days
        elif pa.types.is_timestamp(kind) and kind.unit in _MICROS:
            first, last = (each // _MICROS[kind.unit] for each in self.micros)
        elif pa.types.is_time(kind) and kind.unit in _MICROS:
            first, last = 0, _MICROS_OF_A_DAY // _MICROS[kind.unit] - 1
        else:
            return None
        numbers = values.cast(pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64())
        known: Any = pc.min_max(numbers)
        least, greatest = known["min"].as_py(), known["max"].as_py()
        if least is None or (first <= least and greatest <= last):
            return None
        before, after = pc.less(numbers, pa.scalar(first)), pc.greater(numbers, pa.scalar(last))
        is_outside: Any = pc.fill_null(pc.or_(before, after), False)  # noqa: FBT003 - a scalar
        return np.asarray(is_outside.to_numpy(zero_copy_only=False), dtype=bool)


FOUR_DIGITS = Calendar((-719_162, 2_932_896), (-719_162 * _MICROS_OF_A_DAY, 2_932_897 * _MICROS_OF_A_DAY - 1))
"""The years 1 to 9999: what texts of dates hold, and Python's own dates."""
