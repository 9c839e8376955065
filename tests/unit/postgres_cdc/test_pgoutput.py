"""Messages of ``pgoutput``, written by an encoder of this test and read column by column."""

from __future__ import annotations

import struct
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.postgres_cdc.pgoutput import RowTexts, read_relation, read_rows
from fetchers.sdk import Fatal

Value: TypeAlias = "bytes | str | None"
"""A text's bytes, null, or ``unchanged``."""
Row: TypeAlias = "list[Value]"
UNCHANGED = "unchanged"
COUNT = 3
values = st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40))
rows = st.lists(values, min_size=COUNT, max_size=COUNT)
events = st.one_of(
    st.tuples(st.just("c"), st.none(), rows),
    st.tuples(st.just("u"), st.one_of(st.none(), st.tuples(st.sampled_from("KO"), rows)), rows),
    st.tuples(st.just("d"), st.tuples(st.sampled_from("KO"), rows), st.none()),
    st.tuples(st.just("t"), st.none(), st.none()),
)


def row_bytes(row: Row) -> bytes:
    """TupleData."""
    found = struct.pack(">H", len(row))
    for value in row:
        if isinstance(value, bytes):
            found += b"t" + struct.pack(">I", len(value)) + value
        else:
            found += b"n" if value is None else b"u"
    return found


def message(operation: str, old: tuple[str, Row] | None, new: Row | None) -> bytes:
    """One of Insert, Update, Delete, and what is left of Truncate for one relation."""
    found = {"c": b"I", "u": b"U", "d": b"D", "t": b"T"}[operation] + struct.pack(">I", 7)
    if old is not None:
        found += old[0].encode() + row_bytes(old[1])
    return found if new is None else found + b"N" + row_bytes(new)


def read(side: RowTexts | None) -> list[Row]:
    """A side's rows as this test has them."""
    if side is None:
        return []
    columns = []
    for column, unchanged in zip(side.columns, side.unchanged, strict=True):
        texts = column.to_pylist()
        columns.append(
            [UNCHANGED if unchanged is not None and unchanged[at] else text for at, text in enumerate(texts)]
        )
    return [list(row) for row in zip(*columns, strict=True)]


@given(st.lists(events, min_size=1, max_size=40))
def test_what_is_written_is_read(changes: list[tuple[str, tuple[str, Row] | None, Row | None]]) -> None:
    """Whatever is null, unchanged or empty, in whatever order."""
    found = read_rows([message(*change) for change in changes], COUNT)
    assert bytes(found.operations).decode() == "".join(operation for operation, _, _ in changes)
    assert read(found.old) == [old[1] for _, old, _ in changes if old is not None]
    assert read(found.new) == [new for _, _, new in changes if new is not None]
    assert found.has_old.tolist() == [old is not None for _, old, _ in changes]
    assert found.is_old_whole.tolist() == [old is not None and old[0] == "O" for _, old, _ in changes]


@given(st.lists(events, min_size=1, max_size=5), st.data())
def test_a_message_that_is_cut_or_longer_is_refused(
    changes: list[tuple[str, tuple[str, Row] | None, Row | None]], data: st.DataObject
) -> None:
    """And never read as something else."""
    messages = [message(*change) for change in changes]
    at = data.draw(st.sampled_from(range(len(messages))))
    if changes[at][0] == "t":
        return
    cut = data.draw(st.integers(1, len(messages[at]) - 1))
    broken = data.draw(st.sampled_from([messages[at][:cut], messages[at] + b"\0"]))
    with pytest.raises(Fatal):
        read_rows([*messages[:at], broken, *messages[at + 1 :]], COUNT)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=5))
def test_any_bytes_are_read_or_refused(messages: list[bytes]) -> None:
    """Nothing else is raised."""
    try:
        read_rows(messages, COUNT)
    except Fatal:
        return
    assert all(found[:1] in {b"I", b"U", b"D", b"T"} for found in messages)


@given(st.binary(max_size=60))
def test_any_bytes_of_a_relation_are_read_or_refused(rest: bytes) -> None:
    """Nothing else is raised."""
    try:
        relation = read_relation(b"R" + rest)
    except Fatal:
        return
    assert len(relation.identity) == 1


def test_a_relation_is_read() -> None:
    """Names, types, and which columns are its identity."""
    head = b"R" + struct.pack(">I", 9) + b"public\0t\0d" + struct.pack(">H", 2)
    columns = b"\1id\0" + struct.pack(">Ii", 23, -1) + "\0n\u00fc\0".encode() + struct.pack(">Ii", 1700, 655366)
    relation = read_relation(head + columns)
    assert (relation.oid, relation.schema, relation.name, relation.identity) == (9, "public", "t", "d")
    assert [(found.name, found.type_oid, found.modifier, found.is_identity) for found in relation.columns] == [
        ("id", 23, -1, True),
        ("nü", 1700, 655366, False),
    ]
