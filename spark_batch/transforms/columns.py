"""Transformations as columns over typed values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.transforms.kinds import ExtractField, HoistField, InsertField
from spark_batch.transforms.shape import Shape, reshaped
from spark_batch.transforms.tracks import Leg

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Row:
    """What transformations may ask of a record besides its key or value."""

    is_there: Column
    """Whether there is anything to transform; what is null from the start stays null."""
    timestamp: Column
    """Milliseconds since the epoch, or null."""


def transformed(legs: Iterable[Leg], shape: Shape, value: Column, row: Row) -> tuple[Shape, Column]:
    """The value after all of them, with its shape."""
    for leg in legs:
        value = _applied(leg, shape, value, row)
        shape = reshaped(leg, shape)
    return shape, value


def _applied(leg: Leg, shape: Shape, value: Column, row: Row) -> Column:
    reshaping = leg.reshaping
    if isinstance(reshaping, HoistField):
        return F.when(row.is_there, F.struct(value.alias(reshaping.field)))
    if isinstance(reshaping, InsertField):
        return F.when(value.isNotNull(), F.struct(*_fields(shape, value), *_added(leg, reshaping, row)))
    return _extracted(reshaping, value)


def _fields(shape: Shape, value: Column) -> list[Column]:
    fields = shape.record.fields if shape.record is not None else ()
    return [value.getField(field.name).alias(field.name) for field in fields]


def _added(leg: Leg, insert: InsertField, row: Row) -> list[Column]:
    added = []
    if insert.topic is not None:
        added.append(F.lit(leg.topic).alias(insert.topic.name))
    if insert.timestamp is not None:
        added.append(F.timestamp_millis(row.timestamp).alias(insert.timestamp.name))
    if insert.static is not None:
        added.append(F.lit(insert.static_value).alias(insert.static.name))
    return added


def _extracted(extract: ExtractField, value: Column) -> Column:
    for name in extract.path:
        value = value.getField(name)
    return value
