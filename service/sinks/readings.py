"""What converters make of a column of keys or values, and how a polled batch is cut by it.

A sink is handed batches of one schema. Where a topic holds several, the batch is cut into runs of rows of one schema,
in order; rows without a schema (tombstones, refused ones) go with their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.sinks.batch import ValueType

Column: TypeAlias = "pa.Array[Any]"
Rows: TypeAlias = "npt.NDArray[np.int64]"
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Reading:
    """What a converter has made of the keys, or of the values, of one poll."""

    groups: npt.NDArray[np.int32]
    """For each row the number of its type; all are known."""
    types: tuple[ValueType, ...]
    columns: tuple[Column, ...]
    """For each type the values of its rows, in order; null where there is none or it was refused."""
    refused: Mapping[int, tuple[str, str]]
    """Reason and message by row."""
    dropped: npt.NDArray[np.bool_] | None = None
    """Rows that the sink is not handed, for whatever reason; None where there is no other than a refusal."""


def column_of(table: pa.Table, name: str) -> Column:
    """A column of a polled batch in one piece."""
    column: Any = table.column(name)
    return cast("Column", column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())


def of_one_type(values: Column, kind: ValueType, refused: Mapping[int, tuple[str, str]] | None = None) -> Reading:
    """A column whose rows all have one type."""
    return Reading(np.zeros(len(values), np.int32), (kind,), (values,), refused or {})


def filled(groups: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Rows of unknown type take that of the row before, leading ones that of the first known."""
    known = np.flatnonzero(groups != UNKNOWN)
    if not len(known):
        return np.zeros_like(groups)
    before = np.searchsorted(known, np.arange(len(groups)), side="right") - 1
    return groups[known[np.maximum(before, 0)]]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows ``rows`` of a polled batch, of one type of keys and one of values."""

    rows: Rows
    keys: Column
    values: Column
    key_type: ValueType
    value_type: ValueType


def runs(keys: Reading, values: Reading) -> Iterator[Run]:
    """Cut a batch where a schema changes; refused and dropped rows are left out."""
    count = len(keys.groups)
    if not count:
        return
    is_change = (np.diff(keys.groups) != 0) | (np.diff(values.groups) != 0)
    starts = np.concatenate(([0], np.flatnonzero(is_change) + 1, [count]))
    taken_keys, taken_values = [0] * len(keys.columns), [0] * len(values.columns)
    is_good = np.ones(count, dtype=bool)
    is_good[[*keys.refused, *values.refused]] = False
    if values.dropped is not None:
        is_good &= ~values.dropped
    for start, end in pairwise(starts):
        key_column = _next(keys, int(keys.groups[start]), int(end - start), taken_keys)
        value_column = _next(values, int(values.groups[start]), int(end - start), taken_values)
        rows, good = np.arange(start, end), is_good[start:end]
        if not good.all():
            mask = pa.array(good)
            rows, key_column, value_column = rows[good], key_column.filter(mask), value_column.filter(mask)
        if len(rows):
            key_type, value_type = keys.types[keys.groups[start]], values.types[values.groups[start]]
            yield Run(rows, key_column, value_column, key_type, value_type)


def _next(reading: Reading, group: int, count: int, taken: list[int]) -> Column:
    column = reading.columns[group].slice(taken[group], count)
    taken[group] += count
    return column
