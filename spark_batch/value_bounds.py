"""What values of a type are bounded by: one for payloads, their proofs, and the defaults of contracts."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as ExactNumber

from spark_batch.avro_types import Primitive, Temporal

INTEGER_BITS = {Primitive.INT: 32, Primitive.LONG: 64}
FLOAT_MAX = 3.4028234663852886e38
FLOAT_BOUND = ExactNumber(2**128 - 2**103)
"""From here on the nearest float is infinite (IEEE 754, rounding to nearest), and that is out of range."""
DOUBLE_MAX = 1.7976931348623157e308
UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""The whole of the text: matched from ``\\A`` to ``\\z``, since ``$`` lets ends of lines pass, in Java five of them."""
EPOCH = dt.date(1970, 1, 1).toordinal()
DAY_SECONDS = 86_400
_DAY_MIN = dt.date.min.toordinal() - EPOCH
_DAY_MAX = dt.date.max.toordinal() - EPOCH


def unit_range(kind: Temporal) -> tuple[int, int]:
    """Lowest and highest number, in the type's unit, both inclusive."""
    if kind is Temporal.DATE:
        return _DAY_MIN, _DAY_MAX
    day = DAY_SECONDS * kind.units_per_second
    if kind in {Temporal.TIME_MILLIS, Temporal.TIME_MICROS}:
        return 0, day - 1
    return _DAY_MIN * day, (_DAY_MAX + 1) * day - 1
