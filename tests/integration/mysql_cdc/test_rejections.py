# ruff: noqa: S608 - statements of tests
"""Rows with values that their types cannot hold, on a real MariaDB and a real MySQL: letters, and the others told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fetchers.sdk import Fatal, Page
from fetchers.sdk.testing.context import FakeContext
from service.kafka.reader import StoredRecord
from tests import journal
from tests.databases import MySql
from tests.faults.numbered_lines import job_files
from tests.faults.topic_watch import wait_for_commits
from tests.faults.worker_life import LOG_LOOK_SECONDS, WorkerLife, wait_until, write_properties
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source
from tests.integration.sql.test_mysql_letters import table_of_large_texts
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration
PROGRESS_SECONDS_MAX = 400.0
HUGE = 2**64 - 1
COLUMNS = (
    "id int primary key, u bigint unsigned not null, s varchar(9) character set sjis, w varchar(9) character set ucs2, "
    "b longtext character set big5, t time"
)
ROWS = (
    "1, 7, 'a', 'b', 'c', '1:2:3'",
    f"2, {HUGE}, 'a', 'b', 'c', null",
    "3, 7, x'81AD', 'b', 'c', '1:2:3'",
    "4, 7, 'a', x'D800', 'c', '1:2:3'",
    "5, 7, x'82A0', 'ü', x'A3E5', '1:2:3'",
    "6, 7, 'a', 'b', 'c', '-1:2:3'",
    "7, 7, x'82A0', 'ü', x'A440', '1:2:3'",
)
"""Letters that no Unicode has, half of a surrogate pair, and numbers and times that the forms have no room for."""


def rejected(pages: list[Page]) -> list[tuple[str, str]]:
    """Keys of rejected records, and what is told of their values."""
    found = []
    for page in pages:
        for one in page.rejections:
            key, _ = page.original(one.index)
            assert key is not None
            found.append((key.decode(), re.sub(r"^.*?(?=column )", "", one.message)))
    return found


async def test_snapshot_stretches_and_log_reject_the_same_rows(each_mysql: MySql) -> None:
    """And show the same of all others: the server's own text has a question mark where a letter is none."""
    inserts = [f"insert into t values ({row})" for row in ROWS]
    await each_mysql.rows(f"create table t ({COLUMNS})", *inserts)
    keys, context = {"event.form": "row", "time.precision.mode": "connect"}, FakeContext()
    snapshot = await read(source(each_mysql, **keys), context, until=has_row("t", 7))
    small = {**keys, "snapshot.fetch.size": "2"}
    beside = FakeContext()
    first = await read(source(each_mysql, **small), beside, until=bool)
    rest = await read(source(each_mysql, **small), beside, until=has_row("t", 7))
    await each_mysql.rows("create table x like t", "insert into x select * from t order by id")
    logged = await read(source(each_mysql, **keys), context, until=has_row("x", 7))
    told = rejected(snapshot)
    assert [key for key, _ in told] == [f'{{"id":{number}}}' for number in (2, 3, 4, 5, 6)]
    for (_, message), part in zip(
        told, (f"no INT64 is {HUGE}", "81ad are no text", "d800 are no", "a3e5 are no", "none of a day"), strict=True
    ):
        assert part in message
    assert rejected([*first, *rest]) == told
    assert rejected([page for page in logged if str(page.topic).endswith(".x")]) == told
    values = [value for _, _, value in rows_of(snapshot)]
    assert [value for _, _, value in rows_of([*first, *rest])] == values
    assert [value for topic, _, value in rows_of(logged) if topic.endswith(".x")] == values
    assert (values[6]["s"], values[6]["w"], values[6]["b"]) == ("あ", "ü", "一")


LETTERS = {
    "big5": "F9D6F9D8A440", "cp866": "FCFD8F", "eucjpms": "ADA1A1C1F5A18FF3F3A4A2", "gb18030": "A8BCB0A1",
    "greek": "A1A2C1", "hebrew": "AFE0", "koi8u": "95C1", "ujis": "F5A1A1C0A4A2",
}  # fmt: skip
"""Bytes that both servers have letters for, and Python's codecs have not, or have others for."""


async def test_a_snapshot_shows_the_letters_that_the_server_has(each_mysql: MySql) -> None:
    """Whatever a codec here makes of their bytes; and big5's are the same in the log."""
    known = await each_mysql.rows("select character_set_name from information_schema.character_sets")
    names = [name for name in LETTERS if (name,) in known]
    columns = ", ".join(f"{name} varchar(9) character set {name}" for name in names)
    values = ", ".join(f"x'{LETTERS[name]}'" for name in names)
    create = f"(id int primary key, {columns})"
    await each_mysql.rows(f"create table t {create}", f"insert into t values (1, {values})")
    (texts,) = await each_mysql.rows(f"select {', '.join(names)} from t")
    assert len(names) >= 7  # MariaDB has no gb18030
    assert not any("?" in text for text in texts)
    context = FakeContext()
    snapshot = await read(source(each_mysql, **{"event.form": "row"}), context, until=has_row("t", 1))
    assert rejected(snapshot) == []
    ((_, _, value),) = rows_of(snapshot)
    assert [value[name] for name in names] == list(texts)
    big5 = names.index("big5")
    await each_mysql.rows("create table x like t", "insert into x (id, big5) select id, big5 from t")
    logged = await read(source(each_mysql, **{"event.form": "row"}), context, until=has_row("x", 1))
    assert [value["big5"] for topic, _, value in rows_of(logged) if topic.endswith(".x")] == [texts[big5]]


ODD = {
    "armscii8": "", "cp866": "", "dec8": "A4", "eucjpms": "A2AF", "geostd8": "81", "greek": "A4", "hebrew": "A1",
    "hp8": "FF", "keybcs2": "", "koi8u": "", "latin1": "", "swe7": "", "ujis": "A2AF",
}  # fmt: skip
"""Of sets that are not decoded here, bytes of a letter that no Unicode has."""


async def test_a_snapshot_shows_texts_larger_than_a_packet(each_mysql: MySql) -> None:
    """Whole."""
    async with table_of_large_texts(each_mysql) as row:
        snapshot = await read(source(each_mysql, **{"event.form": "row"}), FakeContext(), until=has_row("t", 1))
    assert rejected(snapshot) == []
    ((_, _, value),) = rows_of(snapshot)
    assert {name: value[name] for name in row} == row


async def test_a_snapshot_rejects_letters_that_the_server_has_no_unicode_for(each_mysql: MySql) -> None:
    """Where it shows the server's own text, and of names of ENUM and SET: a question mark is one that was written."""
    types = {name: f"varchar(9) character set {name}" for name in ODD}
    types |= {
        "e": "enum('?', x'81AD') character set sjis",
        "s": "set('?', x'81AD', 'b') character set sjis",
    }
    await each_mysql.rows(
        f"create table t (id int primary key, {', '.join(f'{name} {kind}' for name, kind in types.items())})",
        f"insert into t values (0, {', '.join(chr(39) + '?' + chr(39) for _ in types)})",
        *(f"insert into t (id, {name}) values ({at}, x'3F{odd}3F')" for at, (name, odd) in enumerate(ODD.items(), 1)),
        "insert into t (id, e) values (98, 2)",
        "insert into t (id, s) values (99, 7)",
    )
    pages = await read(source(each_mysql, **{"event.form": "row"}), FakeContext(), until=has_row("t", 99))
    rows = {value["id"]: value for _, _, value in rows_of(pages)}
    assert {name: rows[0][name] for name in types} == dict.fromkeys(types, "?")
    odd = [(at, name) for at, name in enumerate(ODD, 1) if ODD[name]]
    assert [rows[at][name] for at, name in enumerate(ODD, 1) if not ODD[name]] == ["??"] * (len(ODD) - len(odd))
    expected = [
        (f'{{"id":{at}}}', f"column {name}: the bytes 3f{ODD[name].lower()}3f are no text in {name}")
        for at, name in odd
    ]
    expected += [('{"id":98}', "column e: the bytes 81ad are no text in sjis")]
    expected += [('{"id":99}', "column s: the bytes 3f2c81ad2c62 are no text in sjis")]
    assert rejected(pages) == expected


ODD_VALUE = "create table {}odd (id int primary key, e enum('a', x'D800') character set ucs2)"


async def test_a_table_that_nobody_wants_may_be_declared_with_anything(each_mysql: MySql) -> None:
    """A value of an ENUM may hold half of a surrogate pair, in whatever database of the server."""
    other = f"{each_mysql.name}_other"
    await each_mysql.rows("create table t (id int primary key)", "insert into t values (1)", f"create database {other}")
    try:
        await each_mysql.rows(
            ODD_VALUE.format(f"{other}."), ODD_VALUE.format(""), f"insert into {other}.odd values (1, 'a')"
        )
        wanted = source(each_mysql, **{"table.include.list": f"{each_mysql.name}\\.t"})
        assert await wanted.check(FakeContext()) == []
        pages = await read(wanted, FakeContext(), until=has_row("t", 1))
    finally:
        await each_mysql.rows(f"drop database {other}")
    assert [key for _, key, _ in rows_of(pages)] == ['{"id":1}']


async def test_a_wanted_table_declared_with_a_value_that_is_no_text_is_named(each_mysql: MySql) -> None:
    """Before its first row is read, with what to do: then the other columns of the table are read."""
    name = each_mysql.name
    await each_mysql.rows(ODD_VALUE.format(""), "insert into odd values (1, 'a')")
    told = (
        f"{name}.odd: column e is declared with a value that is no text (the bytes eda080): change the value, or leave"
    )
    connector = source(each_mysql)
    (finding,) = await connector.check(FakeContext())
    assert (finding.value, finding.message[: len(told)]) == (f"{name}.odd", told)
    with pytest.raises(Fatal, match=re.escape(told)):
        await read(connector, FakeContext(), until=bool)
    without = source(each_mysql, **{"column.exclude.list": f"{name}\\.odd\\.e"})
    pages = await read(without, FakeContext(), until=has_row("odd", 1))
    assert [value["after"] for _, _, value in rows_of(pages)] == [{"id": 1}]


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_keys_of_any_letters_come_once_however_often_a_snapshot_is_broken_off(
    each_mysql: MySql, size: int
) -> None:
    """Several letters of cp932 have one Unicode and others have none: each page is read by a source of its own."""
    keys = ["'?'", "'a'", "x'81AD'", "x'81AE'", "x'81AF'", "x'81CA'", "x'ED40'", "x'EEF9'", "x'FA5C'"]
    await each_mysql.rows(
        "create table t (k varchar(9) character set cp932 collate cp932_bin, n int, primary key (k, n))",
        *(f"insert into t values ({key}, {number})" for number, key in enumerate(keys)),
    )
    small, context, pages = {"event.form": "row", "snapshot.fetch.size": str(size)}, FakeContext(), list[Page]()
    while not _has_read("t")(pages):
        pages += await read(
            source(each_mysql, **small), context, until=lambda found: any(map(len, found)) or _has_read("t")(found)
        )
    assert [value["n"] for _, _, value in rows_of(pages)] == list(range(len(keys)))
    assert [key for key, _ in rejected(pages)] == [f'{{"k":null,"n":{number}}}' for number in (2, 3, 4)]


async def test_keys_that_are_no_text_neither_hide_rows_nor_show_them_twice(each_mysql: MySql) -> None:
    """A stretch begins behind such a key by its bytes: the server would compare with a question mark."""
    keys = [f"x'82{trail:02X}'" for trail in range(0xA0, 0xAA)] + ["x'81AD'", "x'81AF'", "'a'", "'?'", "'~'"]
    await each_mysql.rows(
        "create table t (k varchar(9) character set sjis collate sjis_bin primary key)",
        *(f"insert into t values ({key})" for key in keys),
    )
    small, context = {"event.form": "row", "snapshot.fetch.size": "3"}, FakeContext()
    first = await read(source(each_mysql, **small), context, until=bool)
    pages = [*first, *await read(source(each_mysql, **small), context, until=_has_read("t"))]
    good = [key for _, key, _ in rows_of(pages) if key != '{"k":null}']
    assert sorted(good) == sorted(
        [f'{{"k":"{chr(0x3042 + at)}"}}' for at in range(10)] + ['{"k":"a"}', '{"k":"?"}', '{"k":"~"}']
    )
    assert [key for key, _ in rejected(pages)] == ['{"k":null}'] * 2


def _has_read(table: str) -> Callable[[list[Page]], bool]:
    """Whether the last page says that all of the table was read."""

    def found(pages: list[Page]) -> bool:
        return any(f'.{table}"' in str(page.offset.get("tables_read", "")) for page in pages[-1:])

    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_letters_tell_of_such_rows_of_snapshot_and_log(
    kafka: KafkaStack, each_mysql: MySql, topic_name: str, tmp_path: Path
) -> None:
    """Each with its row as JSON, where it was and why; without tolerance the task fails at the row."""
    each_mysql.run(
        "create table t (id int primary key, u bigint unsigned not null, w varchar(9) character set ucs2)",
        "create table marker (id int primary key)",
        f"insert into t values (1, 7, 'a'), (2, {HUGE}, 'b'), (3, 8, x'D800')",
    )
    topic = f"{topic_name}.{each_mysql.name}.t"
    marker = topic.removesuffix("t") + "marker"
    life = _life(kafka, each_mysql, topic_name, tmp_path, errors_tolerance="all")
    try:
        life.start()
        assert wait_for_commits(kafka.bootstrap, topic, beyond=0, seconds_max=PROGRESS_SECONDS_MAX), life.log_text()
        each_mysql.run(
            f"insert into t values (4, {HUGE}, 'd'), (5, 9, 'e')",
            "update t set u = 3 where id = 2",
            "delete from t where id in (2, 3)",
            "insert into marker values (1)",
        )
        assert wait_for_commits(kafka.bootstrap, marker, beyond=0, seconds_max=PROGRESS_SECONDS_MAX), life.log_text()
        life.stop(seconds_max=PROGRESS_SECONDS_MAX)
    finally:
        life.end()
    assert _told(kafka, topic) == [("1", "r"), ("5", "c"), ("2", "d"), ("2", None), ("3", None)]
    huge, odd = f"column u: no INT64 is {HUGE}", "column w: the bytes d800"
    letters = [
        (huge, b'{"id":2}', "r", None, {"id": 2, "u": None, "w": "b"}),
        (odd, b'{"id":3}', "r", None, {"id": 3, "u": 8, "w": None}),
        (huge, b'{"id":4}', "c", None, {"id": 4, "u": None, "w": "d"}),
        (huge, b'{"id":2}', "u", {"id": 2, "u": None, "w": "b"}, {"id": 2, "u": 3, "w": "b"}),
        (odd, b'{"id":3}', "d", {"id": 3, "u": 8, "w": None}, None),
    ]
    assert [_checked(letter, topic, *words) for letter, words in _letters(kafka, topic_name, letters)] == letters
    each_mysql.run("insert into t values (6, 1, 'f')", f"insert into t values (7, {HUGE - 1}, 'g'), (8, 1, 'h')")
    failure = (
        rf"record rejected \(unreadable_value\): {each_mysql.name}\.t, "
        r'key \{\\*"id\\*":7\}, file binlog\.\d+, pos \d+, row 0: '
        rf"column u: no INT64 is {HUGE - 1}: set .* errors\.tolerance=none fails the task"
    )
    _run_to_failure(_life(kafka, each_mysql, topic_name, tmp_path), failure)
    assert not {"7", "8"} & {key for key, _ in _told(kafka, topic)}
    assert len(_letters(kafka, topic_name, letters)) == len(letters)


Letter = tuple[str, bytes, str, Any, Any]
"""What is told of the value, the key, the operation, and the rows before and after."""


def _letters(kafka: KafkaStack, name: str, expected: Sequence[Letter]) -> list[tuple[StoredRecord, Letter]]:
    """Each letter, with what it is to be."""
    found = journal.committed_records(kafka.bootstrap, f"{name}-dead-letters")
    return list(zip(found, expected, strict=True))


def _checked(letter: StoredRecord, topic: str, *expected: Any) -> Letter:
    """What the letter is; its headers have what every such letter has."""
    headers = journal.headers_of(letter)
    assert headers["__headrace.errors.reason"] == "unreadable_value"
    assert headers["__connect.errors.stage"] == "TASK_POLL"
    assert headers["__connect.errors.topic"] == topic
    message, key = headers["__connect.errors.exception.message"], letter.key or b""
    table = ".".join(topic.split(".")[1:])
    assert message.startswith(f"{table}, key {key.decode()}, ")
    assert ", file binlog." in message
    assert f": {expected[0]}" in message
    value = json.loads(letter.value or b"")
    return expected[0], key, value["op"], value["before"], value["after"]


def _run_to_failure(life: WorkerLife, failure: str) -> None:
    """Until the log has this."""
    try:
        life.start()
        assert wait_until(
            lambda: re.search(failure, life.log_text()) is not None,
            seconds_max=PROGRESS_SECONDS_MAX,
            look_seconds=LOG_LOOK_SECONDS,
        ), life.log_text()
    finally:
        life.end()


def _told(kafka: KafkaStack, topic: str) -> list[tuple[str, str | None]]:
    """Ids and operations of the records."""
    return [
        (str(json.loads(record.key or b"")["id"]), None if record.value is None else json.loads(record.value)["op"])
        for record in journal.committed_records(kafka.bootstrap, topic)
    ]


def _life(kafka: KafkaStack, database: MySql, name: str, folder: Path, **keys: str) -> WorkerLife:
    worker, _ = job_files(folder, bootstrap=kafka.bootstrap, topic=name, source=folder / "unused")
    json_form = "org.apache.kafka.connect.json.JsonConverter"
    properties = {
        "name": name,
        "connector.class": "MySqlCdcSource",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.server.port),
        "database.user": "root",
        "database.server.id": "54322",
        "database.include.list": database.name,
        "topic.prefix": name,
        "key.converter": json_form,
        "key.converter.schemas.enable": "false",
        "value.converter": json_form,
        "value.converter.schemas.enable": "false",
        **{key.replace("_", "."): value for key, value in keys.items()},
    }
    file = write_properties(folder / f"changes-{len(keys)}.properties", properties)
    return WorkerLife(worker, file, log=folder / f"worker-{len(keys)}.log")
