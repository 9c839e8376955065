"""Records that show a value that its type cannot hold are rejected, no others; what becomes of keys that are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa
import pytest

from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.events import DELETE_V1, ROWS, TABLE_MAP, UPDATE_V1, WRITE_V1
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.rows import RowBuffer
from fetchers.mysql_cdc.segment import Run
from fetchers.mysql_cdc.snapshot import KeyTexts
from fetchers.mysql_cdc.table_map import (
    BINARY_CHARSET,
    DATE,
    ENUM,
    LONG,
    LONGLONG,
    VARCHAR,
    Column,
    TableMap,
    read_table_map,
)
from fetchers.mysql_cdc.tables import Tables
from fetchers.sdk import Page
from tests.binlog_server import WrittenLog, WrittenTable, texts
from tests.unit.mysql_cdc.test_rows import read, whole
from tests.unit.mysql_cdc.test_wrong_values import CHARSETS, HUGE

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
    ("key", "literal"),
    [("あ", f"_utf8mb4 x'{'あ'.encode().hex()}'"), ("\x0081AD", "_sjis x'81AD'"), ("\x0081A", "_utf8mb4 x'00383141'")],
)
def test_a_key_of_any_letters_is_one_to_go_on_from(key: str, literal: str) -> None:
    """The server tells it as a text only where it makes the same bytes of that, else by its bytes."""
    columns = (Column("k", VARCHAR, charset=45, told_charset="sjis", is_nullable=False), COLUMNS[0])
    texts_of = KeyTexts(tables(), TableMap("w", "t", columns, ("k",)))
    select = texts_of.select((key,))
    assert select.startswith("SELECT CONVERT(`k` USING binary), `id`, CASE WHEN `k` IS NULL THEN NULL WHEN ")
    assert select.endswith(f" FROM `w`.`t` WHERE `k` > {literal} ORDER BY `k`")
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"a", b"\x81\xad"]), pa.array(["1", "1"]), pa.array(["a", key])], names=["c0", "c1", "c2"]
    )
    assert texts_of.last(batch)[:-1] == (key,)


@pytest.mark.parametrize(
    ("key", "told"), [(b"\xc3\xbc", "ü"), (b"\xed\xa0\x80", "\0EDA080"), (b"\x00AB", "\x00004142")]
)
def test_a_key_of_utf8_is_told_by_its_bytes_where_they_are_no_text(key: bytes, told: str) -> None:
    """MariaDB takes half of a surrogate pair; and where a text looks as such bytes would be told."""
    columns = (Column("k", VARCHAR, charset=45, told_charset="utf8mb4", is_nullable=False),)
    texts_of = KeyTexts(tables(), TableMap("w", "t", columns, ("k",)))
    assert texts_of.last(pa.RecordBatch.from_arrays([pa.array([key])], names=["c0"]))[:-1] == (told,)


def test_bytes_of_a_key_are_told_as_digits() -> None:
    """As before: they are no text."""
    columns = (Column("k", VARCHAR, charset=BINARY_CHARSET, is_nullable=False),)
    texts_of = KeyTexts(tables(), TableMap("w", "t", columns, ("k",)))
    assert texts_of.last(pa.RecordBatch.from_arrays([pa.array([b"\xff"])], names=["c0"]))[:-1] == ("ff",)


def test_behind_a_key_of_an_earlier_release_a_table_is_gone_on_from() -> None:
    """It has the texts alone; with the order of the key they are the same place, with another order they are none."""
    column = Column("k", ENUM, 1, charset=45, values=(b"a", b"b"), is_nullable=False)
    texts_of = KeyTexts(tables(), TableMap("w", "t", (column,), ("k",)))
    last = texts_of.last(pa.RecordBatch.from_arrays([pa.array([value]) for value in ("b", "2")], names=["c0", "c1"]))
    assert last[:-1] == ("2",)
    assert texts_of.select(last) == texts_of.select(("2",))
    assert texts_of.select(("2",)).endswith(" FROM `w`.`t` WHERE `k` > 2 ORDER BY `k`")
    turned = KeyTexts(tables(), TableMap("w", "t", (replace(column, values=(b"b", b"a")),), ("k",)))
    assert turned.select(last) == turned.select() == texts_of.select()


def test_the_place_of_a_key_of_fewer_columns_is_no_place_in_the_longer_key() -> None:
    """The text that stands for its order is no value of the column that the key has got."""
    columns = (Column("id", LONG, is_nullable=False), Column("w", VARCHAR, charset=45, told_charset="utf8mb4"))
    texts_of = KeyTexts(tables(), TableMap("w", "t", columns, ("w",)))
    last = texts_of.last(pa.RecordBatch.from_arrays([pa.array(["1"]), pa.array([b"b"])], names=["c0", "c1"]))
    for key in (("id", "w"), ("w", "id")):
        longer = KeyTexts(tables(), TableMap("w", "t", columns, key))
        assert longer.select(last) == longer.select()


def test_a_table_without_a_key_has_no_place_to_go_on_from() -> None:
    """It is read whole, or not at all."""
    texts_of = KeyTexts(tables(), TableMap("w", "t", COLUMNS[:1]))
    assert texts_of.last(pa.RecordBatch.from_arrays([pa.array(["1"])], names=["c0"])) == ()
