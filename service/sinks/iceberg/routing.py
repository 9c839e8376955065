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
from service.sinks.json_columns import field_of_json, text_of_json
from service.sinks.shapes import ShapeError, field_of

Mask = npt.NDArray[np.bool_]


def is_routed(config: IcebergSinkConfig) -> bool:
    """Whether a field says the table; otherwise every record goes to all of them."""
    names = config.names
    is_alone = len(names) == 1 and config.table(names[0]).route is None
    return not names or (config.iceberg_tables_route_field is not None and not is_alone)


def routed(values: Any, config: IcebergSinkConfig, is_fit: Mask) -> Iterator[tuple[str, Mask]]:
    """Tables, and for each the rows that go to it. Raises ShapeError where the route field has no texts."""
    if not is_fit.any():
        return
    if is_routed(config):
        yield from chosen(_texts(values, config.iceberg_tables_route_field or ""), config, is_fit)
    else:
        yield from ((name, is_fit.copy()) for name in config.names)


def chosen(texts: Any, config: IcebergSinkConfig, is_fit: Mask) -> Iterator[tuple[str, Mask]]:
    """The same by the texts of the route field.

    A dynamic name is folded to lower case, and a record may go to several tables, as in Apache's sink.
    """
    encoded = texts.dictionary_encode()
    numbers = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False))
    for name, found in _targets(encoded.dictionary.to_pylist(), config).items():
        is_here = is_fit & np.isin(numbers, found)
        if is_here.any():
            yield name, is_here


def texts_of_json(texts: Any, path: str) -> tuple[Any, Mask]:
    """The texts of the route field of JSON objects, null where there is none, and in which rows it is no text."""
    found = field_of_json(texts, path)
    unfit = np.array([not (each is None or isinstance(each, (str, int))) for each in found], dtype=bool)
    column = pa.array([None if is_bad else text_of_json(each) for each, is_bad in zip(found, unfit, strict=True)])
    return column.cast(pa.string()), unfit


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
    raise ShapeError(RefusalReason.WRONG_TYPE, no_text(path))


def no_text(path: str) -> str:
    """Why a record is refused whose route field has no text."""
    return f"field '{path}', which says the table, is no text"
