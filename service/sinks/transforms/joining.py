"""Parts of a batch put together again: one column for each type, its rows in the order in which they were polled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from service.sinks.batch import Form, ValueType
from service.sinks.readings import UNKNOWN, Column, Reading, Rows, filled, of_one_type

Piece: TypeAlias = tuple[Rows, ValueType | None, Column]
"""Rows of the polled batch, in order, and their values."""


def joined(pieces: Sequence[Piece], count: int, before: Reading) -> Reading:
    """The whole of ``count`` rows; null where no piece has the row. What was refused ``before`` stays so.

    Nulls go with their neighbours, whatever schema came with them: a sink is not to be handed a batch for each.
    """
    numbers: dict[tuple[ValueType, str], int] = {}
    groups = np.full(count, UNKNOWN, np.int32)
    members: list[list[Piece]] = []
    for piece in pieces:
        rows, kind, column = piece
        if kind is None or column.null_count == len(column):
            continue
        number = numbers.setdefault((kind, str(column.type)), len(numbers))
        if number == len(members):
            members.append([])
        members[number].append(piece)
        groups[rows] = number
    if not numbers:
        known = next(((kind, column.type) for _, kind, column in pieces if kind is not None), None)
        kind, column_type = known or (ValueType(Form.JSON), pa.string())
        return of_one_type(pa.nulls(count, column_type), kind, before.refused)
    groups = filled(groups)
    columns = tuple(_column(np.flatnonzero(groups == number), own) for number, own in enumerate(members))
    return Reading(groups, tuple(kind for kind, _ in numbers), columns, before.refused)


def _column(rows: Rows, pieces: Sequence[Piece]) -> Column:
    if len(pieces) == 1 and len(pieces[0][0]) == len(rows):
        return pieces[0][2]
    given = np.concatenate([own for own, _, _ in pieces])
    places = np.full(len(rows), UNKNOWN)
    places[np.searchsorted(rows, given)] = np.arange(len(given))
    indices: Any = pa.array(places, mask=places == UNKNOWN)
    whole = pa.concat_arrays([column for _, _, column in pieces])
    return whole.take(indices)
