"""Values of another schema than the file's: when a new file begins, and what projection makes of a value.

Modes are those of Confluent's ``schema.compatibility``. Which of two schemas is newer says the version that both bring
(``connect.version`` in Avro, ``version`` in JSON); where they bring none, the newer one is that with fields that the
other has not.
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


def _paths(schema: Schema, above: str = "") -> set[str]:
    found = set()
    for name, child in schema.fields.items():
        found |= {f"{above}{name}", *_paths(child, f"{above}{name}\0")}
    return found


def _is_wider(found: Schema, current: Schema) -> bool:
    """Whether a field's numbers need more room than the file has, or a field may be null that may not be there."""
    for name, child in found.fields.items():
        other = current.fields.get(name)
        if other is None:
            continue
        if _RANKS.get(child.kind, 0) > _RANKS.get(other.kind, 0) or (child.is_optional and not other.is_optional):
            return True
        if _is_wider(child, other):
            return True
    return False


def projected(column: Any, found: Shape, wanted: Shape) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Values as the file has them, and which have no place there (numbers that would lose digits, say).

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
    if column.type == kind:
        return column
    if found.kind not in _RANKS or wanted.kind not in _RANKS or _RANKS[found.kind] > _RANKS[wanted.kind]:
        raise _different(path, f"{found.kind} where the file has {wanted.kind}")
    made = column.cast(kind, safe=False)
    if pa.types.is_integer(column.type) and pa.types.is_floating(kind):
        is_same: Any = pc.equal(pc.cast(made, pa.decimal128(38, 0), safe=False), pc.cast(column, pa.decimal128(38, 0)))
        unfit |= ~pc.fill_null(is_same, True).to_numpy(zero_copy_only=False)  # noqa: FBT003 - a scalar
    return made


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
