"""Labels that an enum gets while the log is read: no message tells of them, and they are asked for when they come."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
import pytest

from fetchers.postgres_cdc import captured as module
from fetchers.postgres_cdc.captured import CapturedTables
from fetchers.postgres_cdc.columns import Type, type_of
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.events import CapturedTable, change_form
from fetchers.postgres_cdc.log import Batch, Group
from fetchers.postgres_cdc.pgoutput import LogRelation, RelationColumn
from fetchers.postgres_cdc.place import Place
from fetchers.sdk import Page

COLUMNS = (
    RelationColumn("id", 23, -1, is_identity=True),
    RelationColumn("mood", 20_000, -1, is_identity=False),
    RelationColumn("moods", 20_001, -1, is_identity=False),
)
TABLE = LogRelation(1, "public", "t", "d", COLUMNS)


class Server:
    """The catalogue of one table with an enum and an array of it; counts how often it is asked for types."""

    def __init__(self, *labels: str) -> None:
        self.labels = labels
        self.is_dropped = False
        self.asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """A session ends."""

    def tables(self) -> list[tuple[str, str]]:
        """The only one."""
        return [("public", "t")]

    def types(self, _columns: Sequence[RelationColumn]) -> Mapping[str, Type]:
        """As they are now."""
        self.asked += 1
        if self.is_dropped:
            return {"id": Type("int4"), "mood": Type("text"), "moods": Type("text")}
        mood = Type("mood", labels=self.labels)
        return {"id": Type("int4"), "mood": mood, "moods": Type("_mood", item=mood)}

    def keys(self, _relation: LogRelation) -> tuple[str, ...]:
        """The first column."""
        return ("id",)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], CapturedTables]:
    """The tables of a connector of a server."""

    def made(server: Server) -> CapturedTables:
        monkeypatch.setattr(module, "catalogue", lambda _: server)
        keys = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "srv"}
        found = PostgresCdcConfig.parse(keys)
        assert found.config is not None
        return CapturedTables(found.config, change_form(found.config, "0"))

    return made


def inserted(number: int, mood: str | None, moods: str | None) -> bytes:
    """A message of ``pgoutput``."""
    values = [
        b"n" if text is None else b"t" + struct.pack(">I", len(text)) + text.encode()
        for text in (str(number), mood, moods)
    ]
    return b"I" + struct.pack(">I", TABLE.oid) + b"N" + struct.pack(">H", len(values)) + b"".join(values)


def logged(table: CapturedTable, *rows: tuple[str | None, str | None]) -> Page:
    """A page of rows that were inserted in one transaction."""
    messages = [inserted(at, *row) for at, row in enumerate(rows)]
    group = Group(TABLE, messages, list(range(len(messages))))
    batch = Batch(Place(1), Place(9), [group], [5] * len(rows), [0], [(7, 0)], [1], ends_transaction=True)
    return table.log_page(batch, group, handled_us=0, offset={}, ends_transaction=True)


def allowed(page: Page) -> list[str]:
    """Labels of the enum and of the array's items, as the page's schema has them."""
    assert page.schema is not None
    (before,) = (field for field in page.schema.document["fields"] if field["name"] == "before")
    _, mood, moods = (field["type"] for field in before["type"][1]["fields"])
    items = moods[1]["items"]
    return [form[1]["connect.parameters"]["allowed"] for form in (mood, items)]


def moods_of(page: Page) -> list[Any]:
    """The enum's values."""
    rows: list[Any] = page.payload_column.to_pylist()
    return [row["after"]["mood"] for row in rows]


@pytest.mark.parametrize("row", [("happy", None), (None, "{happy}"), ("sad", "{ok,NULL,happy}")])
def test_a_label_that_is_not_known_makes_the_types_be_read_again(
    known: Callable[[Server], CapturedTables], row: tuple[str | None, str | None]
) -> None:
    """Once for all rows that have it, before they get a schema; known labels, nulls and placeholders ask nothing."""
    server = Server("sad", "ok")
    tables = known(server)
    usual = (("ok", "{sad}"), (None, "{}"), ("__debezium_unavailable_value", '{"__debezium_unavailable_value"}'))
    assert allowed(logged(tables.of(TABLE), *usual)) == ["sad,ok"] * 2
    assert server.asked == 1
    server.labels = ("sad", "fine", "ok", "happy")
    assert allowed(logged(tables.of(TABLE), *usual)) == ["sad,ok"] * 2
    page = logged(tables.of(TABLE), *usual, row)
    assert allowed(page) == ["sad,fine,ok,happy"] * 2
    assert moods_of(page)[-1] == row[0]
    assert allowed(logged(tables.of(TABLE), row, ("fine", None))) == ["sad,fine,ok,happy"] * 2
    assert server.asked == 2


def test_a_label_that_was_renamed_is_told_as_the_log_has_it(known: Callable[[Server], CapturedTables]) -> None:
    """The server does not know it any more, and nobody waits for it."""
    server = Server("sad", "ok")
    tables = known(server)
    tables.of(TABLE)
    server.labels = ("blue", "ok")
    page = logged(tables.of(TABLE), ("sad", None), ("blue", None))
    assert (allowed(page)[0], moods_of(page)) == ("blue,ok", ["sad", "blue"])
    assert moods_of(logged(tables.of(TABLE), ("sad", None))) == ["sad"]


def test_an_enum_that_was_dropped_meanwhile_stays_as_it_was_known(known: Callable[[Server], CapturedTables]) -> None:
    """Its columns have other types by now; rows of before, with a label that was new then, are still to be told."""
    server = Server("sad", "ok")
    tables = known(server)
    before = logged(tables.of(TABLE), ("ok", "{sad,ok}"))
    server.is_dropped = True
    page = logged(tables.of(TABLE), ("ok", "{sad,ok}"), ("new", "{new}"))
    assert (page.schema, moods_of(page)) == (before.schema, ["ok", "new"])
    rows: list[Any] = page.payload_column.to_pylist()
    assert rows[1]["after"]["moods"] == ["new"]


def test_the_first_label_of_an_enum_that_had_none(known: Callable[[Server], CapturedTables]) -> None:
    """It is an enum all along."""
    server = Server()
    tables = known(server)
    assert allowed(logged(tables.of(TABLE), (None, None))) == [""] * 2
    server.labels = ("new",)
    assert allowed(logged(tables.of(TABLE), ("new", None))) == ["new"] * 2
    row = {"name": "mood", "base": None, "modifier": -1, "item": None, "delimiter": ","}
    assert [type_of({9: {**row, "labels": found}}, 9, -1).labels for found in ([], ["a"], None)] == [(), ("a",), None]


def test_rows_that_are_read_beside_the_log_have_the_same_schema(known: Callable[[Server], CapturedTables]) -> None:
    """Else each change would tell that the table was altered, and the rows would be read again and again."""
    server = Server("ok")
    tables = known(server)
    first = logged(tables.of(TABLE), ("ok", None))
    server.labels = ("ok", "happy")
    table = tables.captured(server, TABLE)  # type: ignore[arg-type]
    texts = [pa.array(["1"]), pa.array(["ok"]), pa.array([None], pa.string())]
    rows = pa.record_batch([pa.array([1], pa.int32()), *texts[1:]], names=["id", "mood", "moods"])
    read = table.snapshot_page(rows, handled_us=0, position=1, offset={}, snapshot="incremental")
    later = logged(tables.of(TABLE), ("ok", None))
    assert first.schema != read.schema == later.schema
    server.labels = ("ok", "happy", "new")
    rows = pa.record_batch([pa.array([1], pa.int32()), pa.array(["new"]), texts[2]], names=["id", "mood", "moods"])
    read = table.snapshot_page(rows, handled_us=0, position=1, offset={}, snapshot="incremental")
    assert allowed(read) == ["ok,happy,new"] * 2
    assert logged(tables.of(TABLE), ("ok", None)).schema == read.schema
