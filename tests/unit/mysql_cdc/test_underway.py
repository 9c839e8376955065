"""Debezium's places inside of a transaction: what it has not delivered comes, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.events import EventReader
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.segment import Segment
from fetchers.mysql_cdc.table_map import NotDescribed
from fetchers.mysql_cdc.underway import Underway
from tests.binlog_server import FILE, NAMED, WrittenLog, WrittenTable, named
from tests.unit.mysql_cdc.test_segments import cut_behind, segments_of

TABLES = [WrittenTable("w", name, NAMED, number=at) for at, name in enumerate("ab", 1)]
Row = tuple[int, int]


def rows_of(segments: list[Segment]) -> dict[str, list[Row]]:
    """By table: of each row the position of its event, and its number there."""
    found: dict[str, list[Row]] = {}
    for segment in segments:
        for run in segment.runs:
            rows = [(mark.position, number) for mark in run.marks for number in range(mark.images)]
            found.setdefault(run.table.name, []).extend(rows[run.delivered :])
    return found


@given(
    counts=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5)), min_size=1, max_size=8),
    stood=st.tuples(st.integers(0, 7), st.integers(0, 5)),
    bytes_max=st.integers(150, 1500),
    cut=st.integers(0, 30),
)
@settings(max_examples=150, deadline=None)
def test_from_debeziums_place_the_rest_comes(
    counts: list[tuple[int, int]], stood: tuple[int, int], bytes_max: int, cut: int
) -> None:
    """Whatever event and row it stands at, also when the run that begins there is ended and goes on."""
    log = WrittenLog()
    log.transaction((TABLES[0], events.WRITE_V1, [named(1, "before")]))
    begin = log.position
    changes = [(TABLES[table], events.WRITE_V1, [named(row, "x") for row in range(count)]) for table, count in counts]
    log.transaction(*changes)
    log.transaction((TABLES[1], events.WRITE_V1, [named(9, "behind")]))
    at = stood[0] % len(counts)
    rows = min(stood[1], counts[at][1])
    number = 1 + 2 * at + 1  # GTID, then a description and rows of each
    place = Place.read({"file": FILE, "pos": begin, "event": number, "row": rows})
    assert place is not None
    ends = [event for event in EventReader().feed(b"".join(log.packets(begin))) if event.kind == events.WRITE_V1]
    own = ends[at]
    expected = {
        name: [row for row in found if (row[0], row[1]) >= (own.begin_position, rows)]
        for name, found in rows_of(segments_of(log, Place(FILE), bytes_max=10**6)).items()
    }
    before, place = cut_behind(segments_of(log, place, bytes_max=bytes_max), cut)
    rest = segments_of(log, place, bytes_max=10**6)
    merged = {name: rows_of(before).get(name, []) + rows_of(rest).get(name, []) for name in expected}
    assert merged == expected
    assert rest[-1].end.offset().keys().isdisjoint({"event", "row", "delivered"})


@pytest.mark.parametrize(
    ("offset", "told"),
    [
        ({"event": 9, "row": 1}, "9 events of a transaction that has 4"),
        ({"event": 2, "row": 3}, "3 rows of an event that has 2"),
    ],
)
def test_a_place_that_cannot_be_is_told(offset: dict[str, int], told: str) -> None:
    """Rather than changes left out."""
    log = WrittenLog()
    begin = log.position
    log.transaction((TABLES[0], events.WRITE_V1, [named(1, "x"), named(2, "x")]))
    log.transaction((TABLES[0], events.WRITE_V1, [named(3, "x")]))
    place = Place.read({"file": FILE, "pos": begin, **offset})
    assert place is not None
    with pytest.raises(NotDescribed, match=told):
        segments_of(log, place, bytes_max=10**6)


def test_a_log_that_begins_elsewhere_is_told() -> None:
    """As where GTIDs were filtered: what is sent first is not the transaction of the offset."""
    log = WrittenLog()
    log.transaction((TABLES[0], events.WRITE_V1, [named(1, "x")]))
    begin = log.position
    log.transaction((TABLES[0], events.WRITE_V1, [named(2, "x")]))
    made = Place.read({"file": FILE, "pos": begin, "event": 2, "row": 1})
    assert made is not None
    first = next(one for one in EventReader().feed(b"".join(log.packets(4))) if one.kind == events.MARIADB_GTID)
    with pytest.raises(NotDescribed, match="goes on at position"):
        Underway(made, is_mariadb=True).take(first)
