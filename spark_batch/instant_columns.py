"""Columns of dates, times and instants: from the numbers that Avro and Connect carry them in, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.avro_types import Temporal

if TYPE_CHECKING:
    from pyspark.sql import Column


def typed_instant(kind: Temporal, number: Column) -> Column:
    """Spark's value for a number in Avro's unit; times of day stay numbers."""
    if kind is Temporal.DATE:
        return F.date_from_unix_date(number.cast("int"))
    if kind in {Temporal.TIME_MILLIS, Temporal.TIME_MICROS}:
        return number.cast("int") if kind is Temporal.TIME_MILLIS else number
    is_millis = kind in {Temporal.TIMESTAMP_MILLIS, Temporal.LOCAL_TIMESTAMP_MILLIS}
    instant = F.timestamp_millis(number) if is_millis else F.timestamp_micros(number)
    return instant.cast("timestamp_ntz") if kind.value.startswith("local") else instant


def instant_number(kind: Temporal, value: Column) -> Column:
    """The number that Avro and Connect carry a date, time or instant in."""
    if kind is Temporal.DATE:
        return F.unix_date(value)
    if kind in {Temporal.TIME_MILLIS, Temporal.TIME_MICROS}:
        return value
    instant = value.cast("timestamp")
    return F.unix_millis(instant) if kind.units_per_second == 1_000 else F.unix_micros(instant)  # noqa: PLR2004
