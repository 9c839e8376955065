"""Values of another schema than the file's: when a new file begins, and what projection makes of a value.

Modes are those of Confluent's ``schema.compatibility``. Which of two schemas is newer says the version that both bring
(``connect.version`` in Avro, ``version`` in JSON); where they bring none, the newer one is that with fields, numbers,
nulls or symbols of an enum that the other has not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.sinks.batch import RefusalReason
from service.sinks.schemas import Kind, Schema
from service.sinks.shapes import Shape, ShapeError

_RANKS = {
    kind: rank for rank, kind in enumerate((Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.FLOAT32, Kind.FLOAT64))
}


def begins_file(current: Shape, found: Shape, mode: str) -> bool:
    """Whether values of another shape go to a new file, of their shape; else they are projected to the current one."""
    if (current.schema is None) is not (found.schema is None):
        message = "Switch between schema-based and schema-less data is not supported"
        raise ShapeError(RefusalReason.NO_SCHEMA, message)
    if mode == "NONE" or current.schema is None or found.schema is None:
        return True
    if current.version is not None and found.version is not None and current.version != found.version:
        is_newer = found.version > current.version
    else:
        is_newer = bool(_paths(found.schema) - _paths(current.schema)) or _is_wider(found.schema, current.schema)
    return is_newer if mode in {"BACKWARD", "FULL"} else not is_newer


def _children(schema: Schema) -> dict[str, Schema]:
    return dict(schema.fields) if schema.values is None else {"[]": schema.values}


def _paths(schema: Schema, above: str = "") -> set[str]:
    found = set()
    for name, child in _children(schema).items():
        found |= {f"{above}{name}", *_paths(child, f"{above}{name}\0")}
    return found


def _is_wider(found: Schema, current: Schema) -> bool:
    """Whether one of the fields or items may be what the file has no room for."""
    others = _children(current)
    pairs = [(child, others[name]) for name, child in _children(found).items() if name in others]
    return any(_may_be_more(child, other) or _is_wider(child, other) for child, other in pairs)


def _may_be_more(found: Schema, current: Schema) -> bool:
    """Whether it has larger numbers, or may be null, or a text that is none of the file's symbols."""
    is_text = bool(current.symbols) and found.kind is Kind.STRING
    return (
        _RANKS.get(found.kind, 0) > _RANKS.get(current.kind, 0)
        or (found.is_optional and not current.is_optional)
        or (is_text and not (found.symbols and set(found.symbols) <= set(current.symbols)))
    )


def projected(column: Any, found: Shape, wanted: Shape) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Values as the file has them, and which have no place there: numbers that would lose digits, symbols, nulls.

    Fields that are missing get their default or null, unknown ones are dropped, numbers get wider. Raises ShapeError
    for all that is different otherwise.
    """
    unfit = np.zeros(len(column), dtype=bool)
    if found.schema is None or wanted.schema is None:
        raise ShapeError(RefusalReason.NO_SCHEMA, "values without a schema cannot be projected")
    return _projected(column, found.schema, wanted.schema, wanted.type, unfit, "value"), unfit


def _projected(  # noqa: PLR0917 - one recursion
    column: Any, found: Schema, wanted: Schema, kind: Any, unfit: npt.NDArray[np.bool_], path: str
) -> Any:
    if wanted.kind is Kind.STRUCT and found.kind is Kind.STRUCT:
        return _struct(column, found, wanted, kind, unfit, path)
    if (found.name, dict(found.parameters)) != (wanted.name, dict(wanted.parameters)):
        raise _different(path, "another logical type")
    if not wanted.is_optional and found.is_optional:
        unfit |= column.is_null().to_numpy(zero_copy_only=False)
    if wanted.symbols and pa.types.is_string(column.type):
        unfit |= ~_true(pc.or_kleene(column.is_null(), pc.is_in(column, value_set=pa.array(wanted.symbols))))
    if column.type == kind:
        if found.values is not None and wanted.values is not None:
            _look_at_items(column, found.values, wanted.values, unfit, path)
        return column
    if found.kind not in _RANKS or wanted.kind not in _RANKS or _RANKS[found.kind] > _RANKS[wanted.kind]:
        raise _different(path, f"{found.kind} where the file has {wanted.kind}")
    try:
        made = column.cast(kind, safe=False)
        if not pa.types.is_floating(column.type):  # those fit in wider ones, and NaN equals nothing
            exact = pa.decimal128(38, 0) if pa.types.is_floating(kind) else column.type
            unfit |= ~_true(pc.equal(pc.cast(made, exact, safe=False), pc.cast(column, exact)))
    except pa.ArrowNotImplementedError as error:
        raise _different(path, f"{column.type} where the file has {kind}") from error
    return made


def _true(values: Any) -> npt.NDArray[np.bool_]:
    """Where it is true, or null."""
    return pc.fill_null(values, True).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return] # noqa: FBT003 - a scalar


def _look_at_items(  # noqa: PLR0917 - one recursion
    column: Any, found: Schema, wanted: Schema, unfit: npt.NDArray[np.bool_], path: str
) -> None:
    """Of lists and maps of one type in Arrow, which does not tell whether items may be null, nor which texts."""
    places = column.offsets.to_numpy()
    items = column.items if pa.types.is_map(column.type) else column.values
    items = items.slice(places[0], places[-1] - places[0])
    unfit_items = np.zeros(len(items), dtype=bool)
    _projected(items, found, wanted, items.type, unfit_items, f"{path}[]")
    rows = np.repeat(np.arange(len(column)), np.diff(places))
    unfit[rows[unfit_items]] = True


def _struct(  # noqa: PLR0917 - one recursion
    column: Any, found: Schema, wanted: Schema, kind: Any, unfit: npt.NDArray[np.bool_], path: str
) -> Any:
    children: list[Any] = []
    by_name = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
    for field in kind:
        schema, here = wanted.fields[field.name], f"{path}.{field.name}"
        if field.name in by_name:
            child = _projected(by_name[field.name], found.fields[field.name], schema, field.type, unfit, here)
        elif schema.default is None and not schema.is_optional:
            raise _different(here, "is missing, and has no default")
        else:
            child = _repeated(schema.default, field.type, len(column), here)
        children.append(child)
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _repeated(default: Any, kind: Any, count: int, path: str) -> Any:
    try:
        return pa.repeat(pa.scalar(default, kind), count) if default is not None else pa.nulls(count, kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _different(path, "its default cannot be read") from error


def _different(path: str, what: str) -> ShapeError:
    return ShapeError(RefusalReason.WRONG_TYPE, f"{path}: {what}; the record is not compatible with its file")
