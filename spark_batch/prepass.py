"""What Arrow can tell of a micro-batch before Spark sees it: sizes and UTF-8, over whole columns at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Text:
    """A binary column read as UTF-8: the text (null where it is not), and where it is not."""

    column: pa.StringArray
    is_invalid: np.ndarray


def read_utf8(column: pa.BinaryArray) -> Text:
    """Check all at once; only a column that holds invalid text is looked at row by row."""
    nowhere = np.zeros(len(column), dtype=bool)
    try:
        return Text(column.cast(pa.string()), nowhere)
    except pa.ArrowInvalid:
        pass
    is_invalid = np.fromiter((_is_invalid(value) for value in column), dtype=bool, count=len(column))
    masked = pc.if_else(pa.array(is_invalid), pa.scalar(None, pa.binary()), column)
    return Text(masked.cast(pa.string()), is_invalid)


def is_larger(column: pa.BinaryArray, *, bytes_max: int) -> np.ndarray:
    """Where values are longer than the limit."""
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(lengths) > bytes_max


def _is_invalid(value: pa.BinaryScalar) -> bool:
    if not value.is_valid:
        return False
    try:
        value.as_py().decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False
