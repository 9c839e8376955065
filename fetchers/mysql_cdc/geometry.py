"""Spatial columns as Debezium's structs: the number of a reference system, and Well-Known Binary.

The servers store four bytes of that number, the lowest first, and WKB behind it (MySQL's manual, "Internal Geometry
Storage Format"; MariaDB's is the same). Debezium's forms are ``io.debezium.data.geometry.Geometry`` and, for columns of
the type POINT, ``.Point``, which has the two numbers besides; a number of 0 is null in both.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from fetchers.mysql_cdc.events import MalformedError
from fetchers.mysql_cdc.values import Made
from fetchers.sdk import rows as forms
from fetchers.toolkit.texts import told_bytes

POINT = 1
"""The subtype of a column, as the log has it; 0 holds any."""
_SRID = struct.Struct("<i")
_POINT = struct.Struct("<iBIdd")
"""Reference system, order of bytes, type, and two numbers."""
_WKB = {"wkb": forms.BYTES, "srid": forms.optional(forms.INT32)}
GEOMETRY_FORM = forms.struct("io.debezium.data.geometry.Geometry", _WKB, version=1, doc="Geometry")
POINT_FORM = forms.struct(
    "io.debezium.data.geometry.Point",
    {
        "x": forms.FLOAT64,
        "y": forms.FLOAT64,
        "wkb": forms.optional(forms.BYTES),
        "srid": forms.optional(forms.INT32),
    },
    version=1,
    doc="Geometry (POINT)",
)
GEOMETRY_ARROW: Any = pa.struct([("wkb", pa.binary()), ("srid", pa.int32())])
POINT_ARROW: Any = pa.struct([("x", pa.float64()), ("y", pa.float64()), *GEOMETRY_ARROW])


def geometries(stored: Any, *, is_point: bool) -> Made:
    """Structs of the bytes that the server stores."""
    made: list[dict[str, Any] | None] = []
    wrong = {}
    for row, one in enumerate(stored.to_pylist()):
        try:
            made.append(None if one is None else _struct(one, is_point=is_point))
        except MalformedError as error:
            made.append(None)
            wrong[row] = f"{error} ({told_bytes(one)})"
    return pa.array(made, POINT_ARROW if is_point else GEOMETRY_ARROW), wrong


def from_hex(texts: Any, *, is_point: bool) -> Made:
    """Of the digits that a snapshot selects."""
    stored = pa.array([None if one is None else bytes.fromhex(one) for one in texts.to_pylist()], pa.binary())
    return geometries(stored, is_point=is_point)


def _struct(stored: bytes, *, is_point: bool) -> dict[str, Any]:
    if len(stored) != _POINT.size if is_point else len(stored) <= _SRID.size:
        raise MalformedError("a spatial value has not the bytes that it must have")
    (srid,) = _SRID.unpack_from(stored)
    made: dict[str, Any] = {"wkb": stored[_SRID.size :], "srid": srid or None}
    if is_point:
        _, order, _, x, y = _POINT.unpack(stored)
        if order != 1:
            raise MalformedError("a point has its bytes in an order that no server writes")
        made |= {"x": x, "y": y}
    return made
