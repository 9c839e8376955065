"""Columns of values as texts of SQL, for databases that are handed no Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.json_columns import joined, text


def time_texts(values: Any, zone: str) -> Any:
    """Dates, times and timestamps as ISO texts, instants in a zone; other columns as they are."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        local = pc.local_timestamp(values.cast(pa.timestamp(kind.unit, zone))) if kind.tz else values
        return local.cast(pa.string())
    return values.cast(pa.string()) if pa.types.is_date(kind) or pa.types.is_time(kind) else values


def literals(values: Any, zone: str, *, escape: Callable[[Any], Any]) -> Any:
    """Each value as a literal, ``NULL`` for one that is not there. ``escape``: what stands between quotes."""
    kind = values.type
    if pa.types.is_boolean(kind):
        made = values.cast(pa.int8()).cast(pa.string())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        made = values.cast(pa.string())
    elif pa.types.is_binary(kind):
        # Arrow has no kernel for hexadecimal digits.
        digits = [None if value is None else f"x'{value.hex()}'" for value in values.to_pylist()]
        made = pa.array(digits, pa.string())
    else:
        made = joined(text("'"), escape(time_texts(values, zone)), text("'"))
    return pc.fill_null(made, "NULL")
