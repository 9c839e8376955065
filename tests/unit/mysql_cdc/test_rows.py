"""Rows of a log: whatever bytes a server writes for values, the same values come out; whatever else, an error."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.events import Event, EventReader, MalformedError, ServerRefused
from fetchers.mysql_cdc.kinds import Mapped
from fetchers.mysql_cdc.rows import RowBuffer
from fetchers.mysql_cdc.table_map import (
    BIT,
    BLOB,
    DATE,
    DATETIME2,
    DECIMAL,
    DOUBLE,
    ENUM,
    INT24,
    JSON,
    LONG,
    LONGLONG,
    SET,
    STRING,
    TIME2,
    TIMESTAMP2,
    TINY,
    VARCHAR,
    YEAR,
    Column,
    NotDescribed,
    TableMap,
    read_table_map,
)
from tests.binlog_server import NAMED, WrittenLog, WrittenTable, named, packet, texts

UTF8 = 45


def read(written: WrittenLog, *, cut: int | None = None) -> list[Event]:
    """Events of the whole log, handed over in pieces."""
    stream = b"".join(written.packets(4))
    reader = EventReader()
    step = cut or len(stream)
    return [event for at in range(0, len(stream), step) for event in reader.feed(stream[at : at + step])]


def tables_and_rows(found: Sequence[Event]) -> tuple[TableMap, RowBuffer]:
    """The one table of a log, with all rows."""
    table = next(read_table_map(event, is_mariadb=True) for event in found if event.kind == events.TABLE_MAP)
    rows = RowBuffer(table)
    for event in found:
        if event.kind in events.ROWS:
            rows.add(event)
    return table, rows


def decoded(columns: Sequence[Column], images: Sequence[Sequence[bytes | None]], **modes: Any) -> list[list[Any]]:
    """Each column's values of rows that were written as these bytes, all of which it can hold."""
    made, wrong = judged(columns, images, **modes)
    assert not any(wrong)
    return made


def judged(
    columns: Sequence[Column], images: Sequence[Sequence[bytes | None]], **modes: Any
) -> tuple[list[list[Any]], list[Mapping[int, str]]]:
    """Each column's values, and what is wrong with which of them; types that no log names are as they are given."""
    log = WrittenLog()
    written = WrittenTable("w", "t", columns)
    log.begin()
    log.add(events.TABLE_MAP, written.described())
    for at in range(0, len(images), 3):  # several events of several rows
        log.add(events.WRITE_V1, written.rows(images[at : at + 3]))
    table, rows = tables_and_rows(read(log))
    assert table.columns == tuple(replace(column, named="") for column in columns)
    found = rows.images()
    made, told = [], []
    for column in columns:
        kind = Mapped(**modes).kind(column)
        values, wrong = kind.read(found, *found.next_values())
        assert values.type == kind.arrow
        values.validate(full=True)
        made.append(values.to_pylist())
        told.append(wrong)
    return made, told


def whole(value: int, width: int) -> bytes:
    """A number, its lowest byte first."""
    return value.to_bytes(width, "little", signed=value < 0)


def written_decimal(number: int, precision: int, scale: int) -> bytes:
    """As ``decimal2bin`` writes a number without its point: groups of nine digits, the sign in the first bit."""
    digits = str(abs(number)).zfill(precision)
    before, behind = digits[: precision - scale], digits[precision - scale :]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    rest = len(before) % 9
    groups = [before[:rest], *(before[at : at + 9] for at in range(rest, len(before), 9))]
    groups += [behind[at : at + 9] for at in range(0, len(behind), 9)]
    made = bytearray(b"".join(int(one).to_bytes(sizes[len(one)], "big") for one in groups if one))
    if number < 0:
        made = bytearray(255 - one for one in made)
    made[0] ^= 0x80
    return bytes(made)


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**31), 2**31 - 1),
            st.none() | st.integers(-(2**23), 2**23 - 1),
            st.none() | st.integers(0, 2**24 - 1),
            st.none() | st.integers(0, 255),
            st.none() | st.text(max_size=80),
            st.none() | st.binary(max_size=400),
            st.none() | st.floats(allow_nan=False),
            st.none() | st.integers(-(2**63), 2**63 - 1),
        ),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=40, deadline=None)
def test_values_come_out_as_they_were_written(rows: list[tuple[Any, ...]]) -> None:
    """Numbers of all widths and signs, texts and bytes of any length, and nulls in any place."""
    columns = (
        Column("id", LONG, is_nullable=False),
        Column("m", INT24),
        Column("mu", INT24, is_unsigned=True),
        Column("t", TINY, is_unsigned=True),
        Column("v", VARCHAR, 2, 800, charset=UTF8),
        Column("b", BLOB, 3),
        Column("d", DOUBLE),
        Column("l", LONGLONG),
    )

    def image(row: tuple[Any, ...]) -> list[bytes | None]:
        number, m, mu, tiny, text, octets, double, long = row
        encoded = None if text is None else text.encode()
        return [
            whole(number, 4),
            None if m is None else struct.pack("<i", m)[:3],
            None if mu is None else whole(mu, 3),
            None if tiny is None else whole(tiny, 1),
            None if encoded is None else struct.pack("<H", len(encoded)) + encoded,
            None if octets is None else len(octets).to_bytes(3, "little") + octets,
            None if double is None else struct.pack("<d", double),
            None if long is None else struct.pack("<q", long),
        ]

    assert list(zip(*decoded(columns, [image(row) for row in rows]), strict=True)) == rows


@given(st.data(), st.integers(1, 65), st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_decimals_are_exact(data: st.DataObject, precision: int, scale: int) -> None:
    """Up to MySQL's 65 digits, of both signs."""
    scale = min(scale, precision)
    limit = 10**precision - 1
    numbers = data.draw(st.lists(st.integers(-limit, limit), min_size=1, max_size=5))
    values = [Decimal(number).scaleb(-scale, context=Context(prec=70)) for number in numbers]
    images = [[written_decimal(number, precision, scale)] for number in numbers]
    column = Column("d", DECIMAL, precision, scale)
    assert decoded([column], images) == [values]
    told = decoded([column], images, decimals="string")[0]
    assert [Decimal(text) for text in told] == values


def written_time(micros: int, digits: int) -> bytes:
    """As ``my_time_packed_to_binary`` writes a TIME."""
    width = (digits + 1) // 2
    size, seconds = abs(micros), abs(micros) // 1_000_000
    clock = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    packed = (clock << 8 * width) + size % 1_000_000 // 10 ** (6 - 2 * width)
    made: bytes = ((0x800000 << 8 * width) + (packed if micros >= 0 else -packed)).to_bytes(3 + width, "big")
    return made


@given(st.sampled_from([0, 2, 4, 6]), st.lists(st.integers(-3_020_399_999_999, 3_020_399_999_999), min_size=1))
def test_times_keep_sign_and_fraction(digits: int, times: list[int]) -> None:
    """Negative times with a fraction, which other readers get wrong."""
    step = 10 ** (6 - digits)
    cut = [micros // step * step for micros in times]
    assert decoded([Column("t", TIME2, 0, digits)], [[written_time(micros, digits)] for micros in cut]) == [cut]


def test_moments_and_choices() -> None:
    """Edge values of each type; a day that is none is null."""
    columns = (
        Column("d", DATE),
        Column("dt", DATETIME2, 0, 3),
        Column("ts", TIMESTAMP2, 0, 2),
        Column("y", YEAR, is_unsigned=True),
        Column("e", ENUM, 1, values=(b"a", "ü".encode()), charset=UTF8),
        Column("s", SET, 1, values=(b"x", b"y", b"z"), charset=UTF8),
        Column("b", BIT, 2, 9),
        Column("c", STRING, 1, 4),
    )
    moment = (((2024 * 13 + 2) << 5 | 29) << 17 | 23 << 12 | 59 << 6 | 58) + 0x8000000000
    images: list[list[bytes | None]] = [
        [
            whole(2024 << 9 | 2 << 5 | 29, 3),
            moment.to_bytes(5, "big") + (1230).to_bytes(2, "big"),
            (1_700_000_000).to_bytes(4, "big") + b"\x32",
            b"\x7c",
            b"\x02",
            b"\x05",
            b"\x01\x01",
            texts(b"ab"),
        ],
        [bytes(3), (0x8000000000).to_bytes(5, "big") + bytes(2), bytes(5), b"\0", b"\0", b"\0", bytes(2), b"\0"],
        [None] * 8,
        [whole(2023 << 9 | 2 << 5 | 29, 3), *[None] * 7],
    ]
    assert decoded(columns, images) == [
        [19782, None, None, None],
        [1_709_251_198_123, None, None, None],
        ["2023-11-14T22:13:20.50Z", None, None, None],
        [2024, 0, None, None],
        ["ü", "", None, None],
        ["x,z", "", None, None],
        [b"\x01\x01", b"\0\0", None, None],
        [b"ab\0\0", b"\0\0\0\0", None, None],
    ]


def test_unsigned_numbers_are_exact() -> None:
    """As decimals, to the largest."""
    column = Column("u", LONGLONG, is_unsigned=True)
    images: list[list[bytes | None]] = [[b"\xff" * 8], [whole(7, 8)]]
    assert decoded([column], images, unsigned="precise") == [[Decimal(2**64 - 1), Decimal(7)]]


JSON_VALUES = {
    b"": "null",
    b"\x04\x01": "true",
    b"\x05\xfe\xff": "-2",
    b"\x0a" + b"\xff" * 8: "18446744073709551615",
    b"\x0b" + struct.pack("<d", 1.5): "1.5",
    **{
        b"\x0b" + struct.pack("<d", number): text
        for number, text in [
            (-1e-7, "-0.0000001"),
            (1e14, "100000000000000.0"),
            (1e15, "1e15"),
            (1e-15, "0.000000000000001"),
            (1e-16, "1e-16"),
            (-1.25e300, "-1.25e300"),
            (-0.0, "-0.0"),
        ]
    },
    b"\x0c\x03a\xc3\xbc": '"aü"',
    b"\x0f\x0a\x08" + struct.pack("<q", ((2024 * 13 + 2) << 5 | 29) << 41): '"2024-02-29"',
    b"\x0f\xf6\x04\x03\x02\x81\x0f": "1.15",
    b"\x02\x02\x00\x0b\x00\x05\x01\x00\x04\x00\x00\x00": "[1, null]",
    b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x07\x00a": '{"a": 7}',
}


@pytest.mark.parametrize(("value", "text"), JSON_VALUES.items())
def test_json_is_the_servers_text(value: bytes, text: str) -> None:
    """MySQL's binary JSON, with what it holds besides JSON's own types."""
    image: list[bytes | None] = [struct.pack("<I", len(value)) + value]
    assert decoded([Column("j", JSON, 4)], [image]) == [[text]]


@given(st.binary(max_size=60))
def test_damaged_json_is_told(value: bytes) -> None:
    """Any bytes are a text, or are told and null."""
    image: list[bytes | None] = [struct.pack("<I", len(value)) + value]
    ((text,),), (wrong,) = judged([Column("j", JSON, 4)], [image])
    assert (text is None) == (0 in wrong)
    assert text is None or isinstance(text, str)


def _two_rows() -> WrittenLog:
    log = WrittenLog()
    log.transaction((WrittenTable("w", "t", NAMED), events.WRITE_V1, [named(1, "a"), named(2, None)]))
    return log


@given(st.integers(1, 200))
def test_packets_may_be_cut_anywhere(cut: int) -> None:
    """The same events, however the bytes arrive."""
    log = _two_rows()
    kinds = [events.ROTATE, events.FORMAT_DESCRIPTION, events.MARIADB_GTID, events.TABLE_MAP, events.WRITE_V1]
    assert [event.kind for event in read(log, cut=cut)] == [*kinds, events.XID]


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_flipped_bit_is_seen(data: st.DataObject) -> None:
    """By the checksum, or because it is no packet; nothing is decoded from it."""
    packets = _two_rows().packets(4)
    stream = bytearray(b"".join(packets))
    at = data.draw(st.integers(len(packets[0]) + len(packets[1]), len(stream) - 1))  # behind what says how to check
    bit = 1 << data.draw(st.integers(0, 7))
    place, start = at, 0
    while start + 4 + int.from_bytes(stream[start : start + 3], "little") <= place:
        start += 4 + int.from_bytes(stream[start : start + 3], "little")
    is_number = place - start == 3  # the packet's number, which nobody needs
    stream[at] ^= bit
    reader = EventReader()
    try:
        found = reader.feed(bytes(stream))
    except (MalformedError, ServerRefused, EOFError):
        return
    assert is_number or len(found) < 6, "a damaged event was taken for a whole one"


@given(st.binary(max_size=120), st.sampled_from([events.WRITE_V1, events.UPDATE_V1, events.WRITE_V2]))
@settings(max_examples=80, deadline=None)
def test_any_bytes_are_rows_or_an_error(body: bytes, kind: int) -> None:
    """Rows that run past their event, or have other columns, are refused before a value is made of them."""
    table = TableMap("w", "t", NAMED)
    rows = RowBuffer(table)
    head = struct.pack("<IHH", 7, 0, 1) + (b"\x02\0" if kind == events.WRITE_V2 else b"")
    head += b"\x02\x03" + (b"\x03" if kind == events.UPDATE_V1 else b"")
    data = head + body
    try:
        count = rows.add(Event(kind, 0, 1, 4, 100, 0, data, 0, len(data)))
    except MalformedError:
        return
    found = rows.images() if count else None
    for column in table.columns if found is not None else ():
        assert found is not None
        assert len(found.next_values()[0]) == count, column


@given(st.binary(max_size=200))
@settings(max_examples=80, deadline=None)
def test_any_bytes_are_a_table_or_an_error(body: bytes) -> None:
    """No description of a table leads anywhere else."""
    try:
        table = read_table_map(Event(events.TABLE_MAP, 0, 1, 4, 100, 0, body, 0, len(body)), is_mariadb=False)
    except MalformedError:
        return
    assert table.name.count(".") >= 1


@pytest.mark.parametrize("spare", [0, 0xFC])
def test_the_bits_behind_the_last_column_do_not_matter(spare: int) -> None:
    """MySQL 8.0.15 sets them in some events and not in others."""
    rows = RowBuffer(TableMap("w", "t", NAMED))
    image = b"\0" + whole(1, 4) + b"\x01a"
    both = bytes([3 | spare])
    for kind, head in ((events.WRITE_V2, both), (events.UPDATE_V2, both + both)):
        data = struct.pack("<IHHH", 7, 0, 1, 2) + b"\x02" + head + image * len(head)
        assert rows.add(Event(kind, 0, 1, 4, 100, 0, data, 0, len(data))) == len(head)


def test_partial_rows_and_a_log_without_names_are_refused() -> None:
    """With the statement that mends it."""
    table, rows = tables_and_rows(read(_two_rows()))
    partial = struct.pack("<IHH", 7, 0, 1) + b"\x02\x01\xfe" + whole(1, 4)
    with pytest.raises(NotDescribed, match="SET GLOBAL binlog_row_image = FULL"):
        rows.add(Event(events.WRITE_V1, 0, 1, 4, 100, 0, partial, 0, len(partial)))
    assert table.key == ("id",)
    body = WrittenTable("w", "t", NAMED).described()
    bare = body[: body.index(b"\x04" + texts(texts(b"id", b"name")))]
    poor = read_table_map(Event(events.TABLE_MAP, 0, 1, 4, 100, 0, bare, 0, len(bare)), is_mariadb=True)
    with pytest.raises(NotDescribed, match="SET GLOBAL binlog_row_metadata = FULL"):
        RowBuffer(poor)


def test_an_event_of_several_packets_is_one_event() -> None:
    """Of 16 MB and more."""
    log = WrittenLog()
    columns = (Column("id", LONG, is_nullable=False), Column("b", BLOB, 4))
    blob = bytes(17_000_000)
    log.begin()
    table = WrittenTable("w", "t", columns)
    log.add(events.TABLE_MAP, table.described())
    log.add(events.WRITE_V1, table.rows([[whole(1, 4), struct.pack("<I", len(blob)) + blob]]))
    stream = b"".join(log.packets(4))
    reader = EventReader()
    found = [event for at in range(0, len(stream), 1 << 20) for event in reader.feed(stream[at : at + (1 << 20)])]
    assert found[-1].kind == events.WRITE_V1
    assert tables_and_rows(found)[1].bytes > len(blob)


def test_an_error_and_an_end_are_told() -> None:
    """Packets that hold no event."""
    with pytest.raises(ServerRefused, match="purged") as refusal:
        EventReader().feed(packet(b"\xff" + struct.pack("<H", 1236) + b"#HY000purged", 1))
    assert refusal.value.code == 1236
    with pytest.raises(EOFError):
        EventReader().feed(packet(b"\xfe\0\0\0\0", 1))
