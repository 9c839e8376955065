"""A value that its type cannot hold is null and told, in its row alone; its record is rejected, and nothing else is."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.events import DELETE_V1, ROWS, TABLE_MAP, UPDATE_V1, WRITE_V1
from fetchers.mysql_cdc.kinds import Mapped
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.rows import RowBuffer
from fetchers.mysql_cdc.segment import Run
from fetchers.mysql_cdc.snapshot import KeyTexts
from fetchers.mysql_cdc.table_map import (
    BINARY_CHARSET,
    DATE,
    DATETIME2,
    DECIMAL,
    ENUM,
    GEOMETRY,
    JSON,
    LONG,
    LONGLONG,
    SET,
    STRING,
    TIME2,
    TIMESTAMP2,
    VARCHAR,
    Column,
    NotDescribed,
    TableMap,
    read_table_map,
)
from fetchers.mysql_cdc.tables import Tables
from fetchers.sdk import Page
from tests.binlog_server import WrittenLog, WrittenTable, texts
from tests.unit.mysql_cdc.test_rows import judged, read, whole, written_decimal, written_time

CHARSETS = {45: "utf8mb4", 13: "sjis", 35: "ucs2", 63: "binary"}
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


COLUMNS = (
    Column("id", LONG, is_nullable=False),
    Column("u", LONGLONG, is_unsigned=True, is_nullable=False),
    Column("v", VARCHAR, 1, 50, charset=45),
)


def row(number: int, unsigned: int = 7, text: bytes = b"x") -> list[bytes | None]:
    """One of such a table."""
    return [whole(number, 4), whole(unsigned, 8), texts(text)]


Event = tuple[int, Sequence[Sequence[bytes | None]]]


def logged(
    *changes: Event,
    key: int = 0,
    delivered: int = 0,
    config: Mapping[str, str] = MappingProxyType({}),
    columns: Sequence[Column] = COLUMNS,
) -> Page:
    """A page of these events, each in a transaction of its own."""
    written = WrittenTable("w", "t", columns, key=(key,))
    log = WrittenLog()
    for kind, images in changes:
        log.transaction((written, kind, images))
    found = read(log)
    table = next(read_table_map(event, is_mariadb=True) for event in found if event.kind == TABLE_MAP)
    run = Run(table, RowBuffer(table), delivered=delivered)
    for event in (event for event in found if event.kind in ROWS):
        run.add(event, 1, None, None)
    return tables(config).logged(
        run, place=Place("binlog.000001", 9999), file="binlog.000001", handled_us=1, ends_transaction=True
    )


def tables(config: Mapping[str, str] = MappingProxyType({})) -> Tables:
    """Of a connector with this config."""
    keys = {"database.hostname": "h", "database.user": "u", "database.server.id": "1", "topic.prefix": "shop"}
    made = MySqlCdcConfig.parse({**keys, **config}).config
    assert made is not None
    return Tables(made, connector="mariadb", charsets=CHARSETS)


def outline(page: Page) -> list[tuple[str, str | None]]:
    """Of each record its key, and what it is rejected for; an empty text for a tombstone."""
    rejected = {one.index: one.message for one in page.rejections}
    found = []
    for at in range(len(page)):
        key, value = page.original(at)
        assert key is not None
        found.append((key.decode() + (" gone" if value is None else ""), rejected.get(at)))
    return found


CHANGES: tuple[Event, ...] = (
    (WRITE_V1, [row(1), row(2, HUGE), row(3, HUGE, b"\xff")]),
    (UPDATE_V1, [row(1), row(1, text=b"\xfe"), row(2, HUGE), row(2)]),
    (DELETE_V1, [row(1, text=b"\xfe"), row(2)]),
    (UPDATE_V1, [row(4, HUGE), row(5, HUGE)]),
)


def test_only_records_that_show_the_value_are_rejected() -> None:
    """An envelope shows the row before and the row after, a changed key one of them each; a tombstone shows none."""
    found = outline(logged(*CHANGES))
    rejected = [(key, told is not None) for key, told in found]
    one, two, three, four, five = (f'{{"id":{number}}}' for number in (1, 2, 3, 4, 5))
    assert rejected == [
        (one, False),
        (two, True),
        (three, True),
        (one, True),
        (two, True),
        (one, True),
        (f"{one} gone", False),
        (two, False),
        (f"{two} gone", False),
        (four, True),
        (f"{four} gone", False),
        (five, True),
    ]
    assert found[2][1] is not None
    begin = 'w.t, key {"id":3}, file binlog.000001, pos '
    assert found[2][1].startswith(begin)
    position, _, rest = found[2][1].removeprefix(begin).partition(", ")
    assert int(position) > 4
    assert rest == (
        "row 2: column u: no INT64 is 9223372036854775808: set bigint.unsigned.handling.mode=precise; "
        "column v: the bytes ff are no text in utf8mb4"
    )


def test_a_row_that_was_mended_is_delivered_where_only_rows_are_shown() -> None:
    """A flattened update has the row after alone, and a delete the row before."""
    found = [(key, told is not None) for key, told in outline(logged(*CHANGES[1:3], config={"event.form": "row"}))]
    one, two = '{"id":1}', '{"id":2}'
    assert found == [
        (one, True),
        (two, False),
        (one, True),
        (f"{one} gone", False),
        (two, False),
        (f"{two} gone", False),
    ]


@pytest.mark.parametrize("delivered", range(7))
def test_what_was_delivered_before_moves_nothing(delivered: int) -> None:
    """Where a run goes on in the middle of its changes, the same records are rejected as otherwise."""
    sizes = [1, 1, 1, 1, 1, 2, 2, 3]
    assert outline(logged(*CHANGES, delivered=delivered)) == outline(logged(*CHANGES))[sum(sizes[:delivered]) :]


def test_a_skipped_operation_moves_nothing() -> None:
    """What is rejected is counted behind what is left out."""
    found = outline(logged(*CHANGES, config={"skipped.operations": "c"}))
    assert found == outline(logged(*CHANGES))[3:]


def test_a_key_that_cannot_be_held_takes_its_tombstone_along() -> None:
    """A row that moves to such a key is gone from the one that it had, and no header tells half of a key."""
    page = logged(
        (UPDATE_V1, [row(1, 5), row(1, HUGE)]),
        (DELETE_V1, [row(1, HUGE)]),
        (UPDATE_V1, [row(2, HUGE), row(2, 6)]),
        key=1,
    )
    five, six, none = '{"u":5}', '{"u":6}', '{"u":null}'
    assert [(key, told is not None) for key, told in outline(page)] == [
        (five, False),
        (f"{five} gone", False),
        (none, True),
        (none, True),
        (f"{none} gone", True),
        (none, True),
        (f"{none} gone", True),
        (six, False),
    ]
    assert page.headers is not None
    assert [len(one) for one in page.headers] == [0, 0, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("is_before", [True, False])
def test_a_day_that_is_none_is_no_wrong_key_of_a_row_whose_other_image_is_wrong(*, is_before: bool) -> None:
    """Its key is null with or without a wrong value elsewhere: the update stays one record, and is rejected."""
    columns = (Column("d", DATE), Column("v", VARCHAR, 1, 50, charset=45))
    none, day = [bytes(3), texts(b"a")], [whole(2024 << 9 | 5 << 5 | 1, 3), texts(b"a")]
    bad = [day[0], texts(b"\xff")]
    sound = outline(logged((UPDATE_V1, [none, day] if is_before else [day, none]), columns=columns))
    found = outline(logged((UPDATE_V1, [none, bad] if is_before else [bad, none]), columns=columns))
    assert [key for key, _ in found] == [key for key, _ in sound]
    assert [told is not None for _, told in found] == [True]


def test_a_snapshot_rejects_rows_of_its_own() -> None:
    """With the place of the log that it was read at."""
    columns = (COLUMNS[0], COLUMNS[1], Column("v", VARCHAR, charset=45, told_charset="utf8mb4"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["1", "2"]), pa.array(["7", str(HUGE)]), pa.array([b"a", None])], names=["c0", "c1", "c2"]
    )
    table = TableMap("w", "t", columns, ("id",))
    page = tables().read(table, batch, place=Place("binlog.000001", 77), handled_us=1)
    ((at, told),) = [(one.index, one.message) for one in page.rejections]
    assert at == 1
    assert told.startswith('w.t, key {"id":2}, in a snapshot, file binlog.000001, pos 77, row 0: column u: no INT64')


@pytest.mark.parametrize(
    ("keys", "last"),
    [
        ([b"a", b"\x82\xa0"], (("あ",), 2)),
        ([b"a", b"\x81\xad"], (("a",), 1)),
        ([b"\x81\xad"], ((), 0)),
    ],
)
def test_a_key_that_is_no_text_is_none_to_go_on_from(keys: list[bytes], last: tuple[tuple[str, ...], int]) -> None:
    """The server would take a question mark for it, and leave rows out or show them again."""
    columns = (Column("k", VARCHAR, charset=45, told_charset="sjis", is_nullable=False), COLUMNS[0])
    texts_of = KeyTexts(tables(), TableMap("w", "t", columns, ("k",)))
    assert texts_of.select(("a",)).startswith("SELECT CAST(`k` AS BINARY), `id` FROM `w`.`t` WHERE `k` > _utf8mb4 ")
    batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(["1"] * len(keys))], names=["c0", "c1"])
    assert texts_of.last(batch) == last


def test_bytes_of_a_key_are_told_as_digits() -> None:
    """As before: they are no text."""
    columns = (Column("k", VARCHAR, charset=BINARY_CHARSET, is_nullable=False),)
    texts_of = KeyTexts(tables(), TableMap("w", "t", columns, ("k",)))
    assert texts_of.last(pa.RecordBatch.from_arrays([pa.array([b"\xff"])], names=["c0"])) == (("ff",), 1)
