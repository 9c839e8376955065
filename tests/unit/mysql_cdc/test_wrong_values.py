"""A value that its type cannot hold is null and told, in its row alone, whatever its type is."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fetchers.mysql_cdc.kinds import Mapped
from fetchers.mysql_cdc.table_map import (
    DATETIME2,
    DECIMAL,
    ENUM,
    GEOMETRY,
    JSON,
    LONGLONG,
    SET,
    STRING,
    TIME2,
    TIMESTAMP2,
    VARCHAR,
    Column,
    NotDescribed,
)
from tests.binlog_server import texts
from tests.unit.mysql_cdc.test_rows import judged, whole, written_decimal, written_time

CHARSETS = {1: "big5", 45: "utf8mb4", 13: "sjis", 35: "ucs2", 63: "binary"}
HUGE, MOST = 2**63, 2**63 - 1


def shape(stored: bytes) -> bytes:
    """Of a spatial column, behind its length."""
    return struct.pack("<I", len(stored)) + stored


def moment(hours: int, minutes: int) -> bytes:
    """A DATETIME of the first of May 2024."""
    packed = 0x8000000000 + ((2024 * 13 + 5) << 22 | 1 << 17 | hours << 12 | minutes << 6)
    return packed.to_bytes(5, "big")


Case = tuple[Column, bytes | str, Any, bytes | str, str, dict[str, Any]]
LOGGED: dict[str, Case] = {
    "unsigned": (
        Column("c", LONGLONG, is_unsigned=True),
        whole(MOST, 8),
        MOST,
        whole(HUGE, 8),
        "9223372036854775808: set bigint.unsigned.handling.mode=precise",
        {},
    ),
    "decimal": (
        Column("c", DECIMAL, 5, 2),
        written_decimal(-12345, 5, 2),
        Decimal("-123.45"),
        b"\x87\xff\x00",
        "87ff00",
        {},
    ),
    "wide decimal": (
        Column("c", DECIMAL, 47, 2),
        written_decimal(7, 47, 2),
        Decimal("0.07"),
        b"\x80" + b"\xff" * 20,
        "digits of the bytes 80ff",
        {},
    ),
    "decimal as double": (
        Column("c", DECIMAL, 5, 2),
        written_decimal(50, 5, 2),
        0.5,
        b"\x87\xff\x00",
        "87ff00",
        {"decimals": "double"},
    ),
    "decimal as text": (
        Column("c", DECIMAL, 5, 2),
        written_decimal(50, 5, 2),
        "0.50",
        b"\x87\xff\x00",
        "87ff00",
        {"decimals": "string"},
    ),
    "utf-8": (Column("c", VARCHAR, 1, 9, charset=45), texts(b"\xc3\xbc"), "ü", texts(b"a\xff"), "61ff are no text", {}),
    "sjis": (Column("c", VARCHAR, 1, 9, charset=13), texts(b"\x82\xa0"), "あ", texts(b"\x81\xad"), "in sjis", {}),
    "big5": (Column("c", VARCHAR, 1, 9, charset=1), texts(b"a\xf9\xd8"), "a裏", texts(b"\xf9\xfe"), "in big5", {}),
    "ucs2": (Column("c", VARCHAR, 1, 9, charset=35), texts(b"\0a"), "a", texts(b"\xd8\x00"), "d800", {}),
    "enum": (Column("c", ENUM, 1, values=(b"a", b"b"), charset=45), b"\2", "b", b"\3", "number 3 is no value", {}),
    "set": (Column("c", SET, 1, values=(b"a", b"b"), charset=45), b"\3", "a,b", b"\4", "number 4 is no value", {}),
    "json": (Column("c", JSON, 4), shape(b"\x04\1"), "true", shape(b"\x63\1"), "unknown type (99) (6301)", {}),
    "decimal in json": (
        Column("c", JSON, 4),
        shape(b"\x0f\xf6\x04\x03\x02\x81\x0f"),
        "1.15",
        shape(b"\x0f\xf6\x04\x03\x02\xff\x0f"),
        "DECIMAL in a JSON",
        {},
    ),
    "geometry": (
        Column("c", GEOMETRY, 4, 0),
        shape(bytes(5)),
        {"wkb": b"\0", "srid": None},
        shape(bytes(3)),
        "has not the bytes that it must have (000000)",
        {},
    ),
    "point": (
        Column("c", GEOMETRY, 4, 1),
        shape(struct.pack("<IBIdd", 0, 1, 1, 2.0, 3.0)),
        {"x": 2.0, "y": 3.0, "wkb": struct.pack("<BIdd", 1, 1, 2.0, 3.0), "srid": None},
        shape(struct.pack("<IBIdd", 0, 0, 1, 2.0, 3.0)),
        "order that no server writes",
        {},
    ),
    "time": (Column("c", TIME2), written_time(-1_000_000, 0), -1_000_000, b"\x80\x0f\x40", "800f40", {}),
    "hours": (
        Column("c", TIME2),
        written_time(-838 * 3_600_000_000, 0),
        -838 * 3_600_000_000,
        written_time(1024 * 3_600_000_000, 0),
        "no time has",
        {},
    ),
    "time of connect": (
        Column("c", TIME2),
        written_time(1_000_000, 0),
        1_000,
        written_time(-1_000_000, 0),
        "-1000000 microseconds is none of a day",
        {"times": "connect"},
    ),
    "long time of connect": (
        Column("c", TIME2),
        written_time(86_399_000_000, 0),
        86_399_000,
        written_time(86_400_000_000, 0),
        "time.precision.mode=adaptive_time_microseconds",
        {"times": "connect"},
    ),
    "broken time of connect": (
        Column("c", TIME2),
        written_time(1_000_000, 0),
        1_000,
        b"\x80\x0f\x40",
        "800f40",
        {"times": "connect"},
    ),
    "datetime": (Column("c", DATETIME2), moment(23, 59), 1_714_607_940_000, moment(24, 0), "no time has", {}),
    "minutes": (Column("c", DATETIME2), moment(0, 0), 1_714_521_600_000, moment(0, 60), "no time has", {}),
    "timestamp": (
        Column("c", TIMESTAMP2, 0, 2),
        whole(1, 1).rjust(4, b"\0") + b"\x63",
        "1970-01-01T00:00:01.99Z",
        whole(1, 1).rjust(4, b"\0") + b"\x64",
        "no time has",
        {},
    ),
    "uuid": (
        Column("c", STRING, 1, 16, named="uuid"),
        texts(b"\1"),
        "01000000-0000-0000-0000-000000000000",
        texts(bytes(17)),
        "no UUID has the bytes",
        {},
    ),
}
"""Of each kind: a column, the bytes of a value and what it is, the bytes of what it cannot hold and what is told."""


@pytest.mark.parametrize("case", LOGGED.values(), ids=LOGGED)
def test_the_log_has_a_value_that_cannot_be_held(case: Case) -> None:
    """Null at its place, with what is the matter; the values around it are as they were."""
    column, good, value, bad, told, modes = case
    assert isinstance(good, bytes)
    assert isinstance(bad, bytes)
    (values,), (wrong,) = judged([column], [[good], [bad], [None], [good]], charsets=CHARSETS, **modes)
    assert values == [value, None, None, value]
    assert list(wrong) == [1]
    assert told in wrong[1]


SHOWN: dict[str, Case] = {
    "unsigned": (Column("c", LONGLONG, is_unsigned=True), str(MOST), MOST, str(HUGE), "no INT64 is 92233720", {}),
    "utf-8": (
        Column("c", VARCHAR, charset=45, told_charset="utf8mb4"),
        "ü".encode(),
        "ü",
        b"\xff",
        "ff are no text in utf8mb4",
        {},
    ),
    "sjis": (
        Column("c", VARCHAR, charset=45, told_charset="sjis"),
        b"\x82\xa0",
        "あ",
        b"\x81\xad",
        "81ad are no text in sjis",
        {},
    ),
    "geometry": (
        Column("c", GEOMETRY, 4, 0),
        "0000000000",
        {"wkb": b"\0", "srid": None},
        "0000",
        "has not the bytes",
        {},
    ),
    "time": (Column("c", TIME2), "-00:00:01", -1_000_000, "1:2", "no time is '1:2'", {}),
    "time of connect": (Column("c", TIME2), "00:00:01", 1_000, "24:00:00", "none of a day", {"times": "connect"}),
    "broken time of connect": (Column("c", TIME2), "00:00:01", 1_000, "x", "no time is 'x'", {"times": "connect"}),
    "datetime": (
        Column("c", DATETIME2),
        "2024-05-01 23:59:00",
        1_714_607_940_000,
        "2024-05-01 2359",
        "no time is '2359'",
        {},
    ),
}
"""The same of a snapshot: what the server sends for ``expression``."""


@pytest.mark.parametrize("case", SHOWN.values(), ids=SHOWN)
def test_a_snapshot_has_a_value_that_cannot_be_held(case: Case) -> None:
    """As of the log."""
    column, good, value, bad, told, modes = case
    kind = Mapped(charsets=CHARSETS, **modes).kind(column)
    made, wrong = kind.hold(pa.array([good, bad, None, good]))
    assert made.type == kind.arrow
    assert made.to_pylist() == [value, None, None, value]
    assert list(wrong) == [1]
    assert told in wrong[1]


def test_days_that_are_none_are_null_as_the_guide_says() -> None:
    """They are no wrong values: columns of days are optional for them."""
    column = Column("c", DATETIME2)
    zero = (0x8000000000).to_bytes(5, "big")
    assert judged([column], [[zero], [moment(1, 2)]]) == ([[None, 1_714_525_320_000]], [{}])
    made, wrong = Mapped().kind(column).hold(pa.array(["0000-00-00 00:00:00", "2024-02-31 01:02:03"]))
    assert (made.to_pylist(), wrong) == ([None, None], {})


def test_a_name_of_a_choice_that_is_no_text_is_the_tables_fault() -> None:
    """No row of such a table can be described: that is told of the table."""
    with pytest.raises(NotDescribed, match="column c is declared with a value that is no text"):
        Mapped(charsets=CHARSETS).kind(Column("c", ENUM, 1, values=(b"\xff",), charset=45))
