"""Shapes of a log, and the forms that a config chooses for times and bytes."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.mysql_cdc.table_map import DATETIME2, GEOMETRY, LONG, STRING, TIME2, VARCHAR, Column
from tests.unit.mysql_cdc.test_rows import decoded, judged, whole


@given(st.lists(st.none() | st.tuples(st.integers(0, 2**31 - 1), st.floats(), st.floats()), min_size=1, max_size=9))
@settings(max_examples=40, deadline=None)
def test_points_come_out_as_they_were_written(rows: list[tuple[int, float, float] | None]) -> None:
    """In a column of points, and in one that takes any shape; a reference system of 0 is none."""
    columns = [Column("id", LONG, is_nullable=False), Column("p", GEOMETRY, 4, 1), Column("g", GEOMETRY, 4, 0)]
    stored = [None if row is None else struct.pack("<IBIdd", row[0], 1, 1, *row[1:]) for row in rows]
    values = [None if one is None else len(one).to_bytes(4, "little") + one for one in stored]
    _, points, shapes = decoded(columns, [(whole(at, 4), one, one) for at, one in enumerate(values)])
    for row, told, point, shape in zip(rows, stored, points, shapes, strict=True):
        if row is None or told is None:
            assert (point, shape) == (None, None)
        else:
            assert shape == {"wkb": told[4:], "srid": row[0] or None}
            assert struct.pack("<dd", point["x"], point["y"]) == told[9:]
            assert (point["wkb"], point["srid"]) == (shape["wkb"], shape["srid"])


@given(st.binary(max_size=40), st.booleans())
@settings(max_examples=80, deadline=None)
def test_any_bytes_are_a_shape_or_are_told(body: bytes, is_point: bool) -> None:  # noqa: FBT001 - drawn
    """Whatever a server says that it stores."""
    column = Column("g", GEOMETRY, 4, int(is_point))
    ((made,),), (wrong,) = judged([column], [(len(body).to_bytes(4, "little") + body,)])
    assert (made is None) == (0 in wrong)
    assert made is None or made["wkb"] == body[4:]


def test_times_and_bytes_have_the_form_that_a_config_chooses() -> None:
    """Connect's types cut microseconds off, towards the past; bytes may be text."""
    moment = (0x8000000000 + ((1969 * 13 + 12) << 22 | 31 << 17 | 23 << 12 | 59 << 6 | 59)).to_bytes(5, "big")
    columns = [
        Column("d", DATETIME2, 0, 6),
        Column("t", TIME2, 0, 6),
        Column("b", VARCHAR, 1, 9),
        Column("f", STRING, 1, 3),
    ]
    clock = (0x800000 + (1 << 12)).to_bytes(3, "big") + (1_999).to_bytes(3, "big")
    row = (moment + (999_999).to_bytes(3, "big"), clock, b"\2\xfb\xff", b"\1a")
    assert decoded(columns, [row], times="connect", binaries="base64") == [[-1], [3_600_001], ["+/8="], ["YQAA"]]
    assert decoded(columns[2:], [row[2:]], binaries="base64-url-safe") == [["-_8="], ["YQAA"]]
    assert decoded(columns[2:], [row[2:]], binaries="hex") == [["fbff"], ["610000"]]
    below = (0x800000 - (1 << 12)).to_bytes(3, "big") + bytes(3)
    for time in (below, (0x800000 + (24 << 12)).to_bytes(3, "big") + bytes(3)):
        assert decoded(columns[1:2], [(time,)])
        ((made, later),), (wrong,) = judged(columns[1:2], [(time,), (clock,)], times="connect")
        assert (made, later, list(wrong)) == (None, 3_600_001, [0])
        assert "none of a day" in wrong[0]
