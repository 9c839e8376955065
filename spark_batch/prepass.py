"""What Arrow can tell of a micro-batch before Spark sees it, over whole columns at once: sizes, UTF-8, escapes, depth.

The same questions asked in Spark cost fifty times as much: Arrow answers them in C++ without taking the text apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute

from spark_batch.literals.reading import DEPTH_MAX
from spark_batch.outcome import ArrowColumn

pc: ArrowColumn = pyarrow.compute

_SURROGATE_ESCAPE = r"\\u[dD][89a-fA-F]"
_SURROGATE_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPED_BACKSLASH = "\\\\u"
_PART_ROWS = 128
_SINGLE_ROWS_MAX = 16
"""Invalid text is looked for in parts of so many rows, then in their halves, and of so few rows one by one."""
_FLAT_BYTES = 2 * DEPTH_MAX


@dataclass(frozen=True)
class Text:
    """A binary column read as UTF-8: the text (null where it is not), and where it is not."""

    column: ArrowColumn
    is_invalid: np.ndarray


def read_utf8(column: ArrowColumn) -> Text:
    """Check all at once; a column that holds invalid text is looked at in ever smaller parts."""
    nowhere = np.zeros(len(column), dtype=bool)
    try:
        return Text(column.cast(pa.string()), nowhere)
    except pa.ArrowInvalid:
        pass
    is_invalid = nowhere
    waiting = [(start, min(_PART_ROWS, len(column) - start)) for start in range(0, len(column), _PART_ROWS)]
    while waiting:
        start, length = waiting.pop()
        part = column.slice(start, length)
        if length <= _SINGLE_ROWS_MAX:
            is_invalid[start : start + length] = [_is_invalid(value) for value in part.to_pylist()]
        elif not _is_utf8(part):
            waiting += [(start, length // 2), (start + length // 2, length - length // 2)]
    masked = pc.if_else(pa.array(is_invalid), pa.scalar(None, pa.binary()), column)
    return Text(masked.cast(pa.string()), is_invalid)


def is_larger(column: ArrowColumn, *, bytes_max: int) -> np.ndarray:
    """Where values are longer than the limit."""
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(lengths) > bytes_max


def is_unsure(text: ArrowColumn) -> np.ndarray:
    """Where a payload may hold a lone surrogate or nest too deep; the few that may are for the exact path."""
    unsure = np.zeros(len(text), dtype=bool)
    for suspects, verdict in ((_with_surrogates(text), _is_unpaired), (_long(text), _is_crowded)):
        if len(suspects):
            unsure[suspects] |= verdict(text.take(pa.array(suspects)))
    return unsure


def _with_surrogates(text: ArrowColumn) -> np.ndarray:
    return np.flatnonzero(np.asarray(pc.fill_null(pc.match_substring_regex(text, _SURROGATE_ESCAPE), fill_value=False)))


def _long(text: ArrowColumn) -> np.ndarray:
    return np.flatnonzero(np.asarray(pc.fill_null(pc.binary_length(text), 0)) > _FLAT_BYTES)


def _is_unpaired(text: ArrowColumn) -> np.ndarray:
    """Pairs are cut out; a surrogate that is left stands alone.

    That holds only where no backslash before a `u` is itself escaped, so such payloads are unsure too.
    """
    left = pc.replace_substring_regex(text, _SURROGATE_PAIR, "")
    is_left = pc.match_substring_regex(left, _SURROGATE_ESCAPE)
    return np.asarray(pc.or_(is_left, pc.match_substring(text, _ESCAPED_BACKSLASH)))


def _is_crowded(text: ArrowColumn) -> np.ndarray:
    openers = pc.add(pc.count_substring(text, "["), pc.count_substring(text, "{"))
    return np.asarray(openers) > DEPTH_MAX


def _is_utf8(column: ArrowColumn) -> bool:
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _is_invalid(value: bytes | None) -> bool:
    if value is None:
        return False
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False
