# ruff: noqa: S608 - statements of tests
"""``JdbcSource`` on MariaDB and MySQL: the letters of every character set, exact or rejected, never a question mark."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Any

import pytest

from fetchers.sdk import Page
from tests.databases import MySql
from tests.integration.mysql_cdc.test_stretches import KEYED as KEYED_TYPES
from tests.integration.sql.reading import RealContext, read_until, rows_of

pytestmark = pytest.mark.integration
WIDE = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}
"""Bytes of a letter."""
WIDE_STEP = 13
"""Of sets in which a letter's bytes are its Unicode, not all are looked at."""
BETTER = {
    ("sjis", b"\x81\x5f"): "\uff3c",
    **dict(zip((("big5", bytes.fromhex(code)) for code in ("A15A", "A1C3", "A1C5", "A1FE", "A240", "A2CC", "A2CE")),
               "╴\uffe3ˍ\uff0f\uff3c十卅", strict=True)),
    **dict(zip((("cp1256", bytes([code])) for code in b"\x8a\x8f\x98\x9a\x9f\xaa\xc0\xff"), "ٹڈکڑںھہے", strict=True)),
}  # fmt: skip
"""Letters for which the servers send a question mark, U+FFFD or another letter, although Unicode has them."""
DOUBTFUL = {
    "ascii": "80", "big5": "A3C0", "cp1250": "81", "cp1251": "98", "cp1257": "A1", "cp932": "81AD", "dec8": "A4",
    "eucjpms": "A2AF", "euckr": "A2E8", "gb18030": "8431A530", "gb2312": "A2A1", "gbk": "A140", "geostd8": "81",
    "greek": "A4", "hebrew": "A1", "hp8": "FF", "sjis": "81AD", "tis620": "DB", "ucs2": "D800", "ujis": "A2AF",
    "utf32": "0000D800",
}  # fmt: skip
"""Of each set bytes that it has a letter for, and Unicode has not."""


def candidates(charset: str) -> Iterator[bytes]:
    """Bytes that may be one letter; the server takes those that are."""
    if charset in WIDE:
        top = 0x11000 if charset == "utf32" else 0x10000
        order: Any = "little" if charset.endswith("le") else "big"
        yield from (code.to_bytes(WIDE[charset], order) for code in [*range(0, top, WIDE_STEP), 0x3F, 0xFF1F])
        return
    yield from (bytes([code]) for code in range(256))
    if charset in {"big5", "cp932", "euckr", "eucjpms", "gb18030", "gb2312", "gbk", "sjis", "ujis"}:
        yield from (bytes([lead, trail]) for lead in range(0x81, 0xFF) for trail in range(0x40, 0xFF))
    if charset in {"ujis", "eucjpms"}:
        yield from (bytes([0x8F, lead, trail]) for lead in range(0xA1, 0xFF) for trail in range(0xA1, 0xFF))
    if charset == "gb18030":
        yield from (bytes([0x81, two, lead, four]) for two in b"0459" for lead in range(0x81, 0xFF) for four in b"019")
        yield from (bytes([0x84, 0x31, lead, four]) for lead in range(0xA0, 0xB0) for four in b"0123456789")


async def _charsets(database: MySql) -> list[str]:
    rows = await database.rows("select character_set_name from information_schema.character_sets order by 1")
    return [name for (name,) in rows if name not in {"binary", "utf8", "utf8mb3", "utf8mb4"}]


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_each_letter_of_each_character_set_is_the_servers_or_rejected(each_mysql: MySql) -> None:
    """Against the server's own bytes and Unicode of the same rows; rejected is what has none, and nothing else."""
    charsets = await _charsets(each_mysql)
    for charset in charsets:
        values = [f"(x'{one.hex()}')" for one in candidates(charset)]
        await each_mysql.rows(
            f"create table {charset} (id int primary key auto_increment, c varchar(4) character set {charset})",
            *(
                f"insert into {charset} (c) values {','.join(values[at : at + 8000])}"
                for at in range(0, len(values), 8000)
            ),
            f"delete from {charset} where c = '' and length(c) = 0",  # what the server has not taken
        )
    properties = {"connection.url": each_mysql.url, "mode": "incrementing", "table.whitelist": ",".join(charsets)}
    counts = {}
    own: dict[str, list[tuple[Any, ...]]] = {}
    for name in charsets:
        own[name] = await each_mysql.rows(f"select hex(c), hex(convert(c using utf8mb4)) from {name} order by id")
        counts[name] = len(own[name])
    pages = await read_until(properties, lambda pages: sum(map(len, pages)) >= sum(counts.values()))
    shown = {name: _shown([page for page in pages if page.topic == f"t.{name}"]) for name in charsets}
    wrong = []
    for name in charsets:
        expected = [_expected(name, bytes.fromhex(raw), bytes.fromhex(text)) for raw, text in own[name]]
        pairs = zip(own[name], shown[name], expected, strict=True)
        wrong += [(name, raw, text, found, is_to_be) for (raw, text), found, is_to_be in pairs if found != is_to_be]
    assert not wrong, (len(wrong), wrong[:20])
    assert sum(counts.values()) > 100_000
    assert sum(one is None for each in shown.values() for one in each) > 10_000


def _shown(pages: list[Page]) -> list[str | None]:
    """Texts of rows, None where they are rejected."""
    found: list[str | None] = []
    for page in pages:
        rejected = {one.index: one.message for one in page.rejections}
        for at, row in enumerate(rows_of([page])):
            assert (at in rejected) == (row["c"] is None)
            assert at not in rejected or "are no text in" in rejected[at]
            found.append(row["c"])
    return found


def _expected(charset: str, raw: bytes, text: bytes) -> str | None:
    """Of one letter; ``text``: the server's UTF-8, without anything for half of a surrogate pair in MySQL."""
    if (charset, raw) in BETTER:
        return BETTER[charset, raw]
    try:
        letter = text.decode()
    except UnicodeDecodeError:
        return None
    is_own = not letter.strip("?") and raw.replace(b"\0", b"") == text  # MariaDB stores them for bytes that it refuses
    is_own |= letter == "\ufffd" and charset in {*WIDE, "gb18030"}
    return letter if is_own or letter.strip("?") not in {"", "\ufffd"} else None


@pytest.mark.parametrize("mode", ["bulk", "query"])
async def test_doubtful_letters_are_rejected_in_every_type_and_query(each_mysql: MySql, mode: str) -> None:
    """Of CHAR, TEXT, ENUM and SET, beside a question mark that is one; a key that has such a letter too."""
    charsets = [name for name in await _charsets(each_mysql) if name in DOUBTFUL]
    types = ("char(9) {}", "varchar(9) {}", "longtext {}", "enum('?', {}) {}", "set('?', {}) {}")
    columns = []
    for at, name in enumerate(charsets):
        odd = f"x'{DOUBTFUL[name]}'"
        taken = types[:3] if name in WIDE and each_mysql.scheme == "mysql" else types  # MySQL takes no such name
        each = [one.replace("{}", odd, one.count("{}") - 1) for one in taken]
        columns += [f"c{at}_{number} {one.format(f'character set {name}')}" for number, one in enumerate(each)]
    names = [column.split()[0] for column in columns]
    marks = ", ".join("'?'" for _ in names)
    inserts = [f"insert into t values (0, {marks})"]
    for at, name in enumerate(names):
        odd = DOUBTFUL[charsets[int(name[1:].partition("_")[0])]]
        value = "2" if name.endswith(("_3", "_4")) else f"x'{odd}'"
        inserts.append(f"insert into t (id, {name}) values ({at + 1}, {value})")
    await each_mysql.rows(f"create table t (id int primary key, {', '.join(columns)})", *inserts)
    asked = {"table.whitelist": "t"} if mode == "bulk" else {"query": "select * from t order by id"}
    keys = {"key.columns": f"id,{names[0]}"}
    properties = {"connection.url": each_mysql.url, "mode": "bulk", **asked, **keys}
    pages = await read_until(properties, lambda pages: sum(map(len, pages)) > len(names))
    assert pages[0].partition is not None
    rows = rows_of(pages)[: len(names) + 1]
    sizes = [0, *accumulate(map(len, pages))]
    rejected = [
        (at + one.index, one.message) for at, page in zip(sizes, pages, strict=False) for one in page.rejections
    ]
    del rejected[len(names) :]  # of the next round
    assert rows[0] == {"id": 0, **dict.fromkeys(names, "?")}
    assert [at for at, _ in rejected] == list(range(1, len(names) + 1))
    for (_, message), name in zip(rejected, names, strict=True):
        charset = charsets[int(name[1:].partition("_")[0])]
        assert f": column {name}: " in message
        assert message.endswith(f"the bytes {DOUBTFUL[charset].lower()} are no text in {charset}")
    assert json.loads(pages[0].original(1)[0] or b"")[names[0]] is None


@asynccontextmanager
async def table_of_large_texts(database: MySql) -> AsyncIterator[dict[str, Any]]:
    """One row of ``t``, of which no text fits into a packet of new sessions while this is open: MariaDB casts none."""
    columns = (
        "a longtext character set utf8mb4 not null, b longtext character set cp1251, c longtext character set greek"
    )
    await database.rows(
        f"create table t (id int primary key, {columns})",
        "insert into t values (1, repeat('é', 700000), repeat('ж', 1400000), repeat('λ', 1400000))",
    )
    ((limit,),) = await database.rows("select @@global.max_allowed_packet")
    await database.rows("set global max_allowed_packet = 1048576")
    try:
        yield {"id": 1, "a": "é" * 700_000, "b": "ж" * 1_400_000, "c": "λ" * 1_400_000}
    finally:
        await database.rows(f"set global max_allowed_packet = {limit}")


async def test_texts_larger_than_a_packet_come_whole(each_mysql: MySql) -> None:
    """As the server sends them to a client that asks for nothing but the column."""
    properties = {"connection.url": each_mysql.url, "mode": "bulk", "table.whitelist": "t"}
    async with table_of_large_texts(each_mysql) as row:
        pages = await read_until(properties, lambda pages: sum(map(len, pages)) > 0)
    assert [one.message for page in pages for one in page.rejections] == []
    assert rows_of(pages)[0] == row


KEYED = {
    "cp932": ["x'ED40'", "x'FA5C'", "x'81CA'", "x'EEF9'", "x'81AD'", "x'81AF'", "'?'", "'a'", "'~'", "'\\\\'"],
    "sjis": ["x'815F'", "x'5C'", "x'81AD'", "'?'", "'a'"],
    "ucs2": ["x'D800'", "x'DC00'", "x'003F'", "x'00410042'"],
    "greek": ["x'A4'", "x'A5'", "x'AA'", "'?'", "'a'"],
    "latin1": ["x'81'", "x'80'", "x'E9'", "'?'", "'a'"],
    "utf8mb4": ["'?'", "'a'", "'ü'", "'😀'"],
}
"""Keys of which several have one Unicode, or have none."""


@pytest.mark.parametrize("charset", KEYED)
async def test_rows_of_one_time_are_told_apart_by_keys_of_any_letters(each_mysql: MySql, charset: str) -> None:
    """A source that goes on behind each page anew shows each row once, whatever a key's Unicode is."""
    keys = KEYED[charset]
    await each_mysql.rows(
        f"create table t (k varchar(9) character set {charset} collate {charset}_bin primary key, n int, "
        "at timestamp(3) not null default '2024-05-01 01:02:03')",
        *(f"insert into t (k, n) values ({key}, {number})" for number, key in enumerate(keys)),
    )
    assert await _read_in_small_pages(each_mysql, len(keys)) == list(range(len(keys)))


async def test_rows_of_one_time_are_told_apart_by_enums_in_the_order_of_their_numbers(each_mysql: MySql) -> None:
    """As the server sorts them; their names are in another order."""
    await each_mysql.rows(
        "create table t (k enum('z', 'a', 'm') not null, s set('z', 'a') not null, n int, "
        "at timestamp(3) not null default '2024-05-01 01:02:03', primary key (k, s))",
        *(f"insert into t (k, s, n) values ({at // 4 + 1}, {at % 4}, {at})" for at in range(12)),
    )
    assert await _read_in_small_pages(each_mysql, 12) == list(range(12))


async def test_rows_of_one_time_are_told_apart_by_keys_of_every_type(each_mysql: MySql) -> None:
    """However near to each other their values are: of no type does a place go through a double that rounds it."""
    for kind, values in KEYED_TYPES.items():
        await each_mysql.rows(
            "set sql_mode = ''",
            "drop table if exists t",
            f"create table t (k {kind} not null primary key, n int, at timestamp(3) not null default '2024-05-01')",
            *(f"insert into t (k, n) values ({value}, {number})" for number, value in enumerate(values)),
        )
        assert (kind, await _read_in_small_pages(each_mysql, len(values))) == (kind, list(range(len(values))))


async def _read_in_small_pages(database: MySql, count: int) -> list[int]:
    """Numbers of all rows, sorted; each page is read by a source of its own."""
    properties = {
        "connection.url": database.url,
        "mode": "timestamp",
        "timestamp.column.name": "at",
        "table.whitelist": "t",
        "batch.max.rows": "1",
    }
    context, pages = RealContext(), list[Page]()
    while sum(map(len, pages)) < count:
        pages += await read_until(properties, lambda pages: bool(len(pages[-1])), context)
    return sorted(row["n"] for row in rows_of(pages))
