"""Which table a record goes to, by columns: the only one, or what the route field of its value says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import RefusalReason
from service.sinks.iceberg.config import IcebergSinkConfig
from service.sinks.shapes import ShapeError, field_of

Mask = npt.NDArray[np.bool_]


def routed(values: Any, config: IcebergSinkConfig, is_fit: Mask) -> Iterator[tuple[str, Mask]]:
    """Tables, and for each the rows that go to it. Raises ShapeError where the route field has no texts.

    A dynamic name is folded to lower case, and a record may go to several tables, as in Apache's sink.
    """
    if not is_fit.any():
        return
    route = config.iceberg_tables_route_field
    names = config.names
    if names and (route is None or (len(names) == 1 and config.table(names[0]).route is None)):
        yield from ((name, is_fit.copy()) for name in names)
        return
    encoded = _texts(values, route or "").dictionary_encode()
    numbers = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False))
    for name, texts in _targets(encoded.dictionary.to_pylist(), config).items():
        is_here = is_fit & np.isin(numbers, texts)
        if is_here.any():
            yield name, is_here


def _targets(texts: list[str], config: IcebergSinkConfig) -> dict[str, list[int]]:
    """For each table the numbers of the texts whose records go to it."""
    found: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        if config.iceberg_tables_dynamic_enabled:
            found.setdefault(text.lower(), []).append(number)
            continue
        for name in config.names:
            pattern = config.table(name).route
            if pattern is not None and pattern.fullmatch(text) is not None:
                found.setdefault(name, []).append(number)
    return found


def _texts(values: Any, path: str) -> Any:
    column = field_of(values, path)
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type) or pa.types.is_string(column.type):
        return column.cast(pa.string())
    raise ShapeError(RefusalReason.WRONG_TYPE, f"field '{path}', which says the table, is no text")
