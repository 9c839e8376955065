"""From events to places: whatever the log holds, what was delivered up to any place and what comes behind it is all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.events import EventReader
from fetchers.mysql_cdc.places import GtidSet, Place
from fetchers.mysql_cdc.segments import Segment, Segments
from fetchers.mysql_cdc.table_map import LONG, Column, NotDescribed
from tests.binlog_server import FILE, NAMED, WrittenLog, WrittenTable, named

TABLES = [WrittenTable("w", name, NAMED, number=at) for at, name in enumerate("abc", 1)]
WIDER = WrittenTable("w", "a", (*NAMED, Column("n", LONG)), number=9)


def segments_of(log: WrittenLog, place: Place, *, bytes_max: int, closes_early: bool = False) -> list[Segment]:
    """All segments from a place on; ``closes_early``: at the end of every transaction."""
    made = Segments(place, lambda name: name != "w.c", is_mariadb=True, bytes_max=bytes_max)
    found = []
    for event in EventReader().feed(b"".join(log.packets(place.position))):
        closed = made.take(event)
        if closed is not None:
            found.append(closed)
        if closes_early and made.is_between and made.has_rows:
            found.append(made.close())
    return [*found, made.close()]


def delivered(segments: list[Segment]) -> dict[str, list[tuple[int, int]]]:
    """By table: positions and images of its events, in their order."""
    found: dict[str, list[tuple[int, int]]] = {}
    for segment in segments:
        for run in segment.runs:
            found.setdefault(run.table.name, []).extend((mark.position, mark.images) for mark in run.marks)
    return found


@given(
    transactions=st.lists(
        st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.integers(1, 4)), min_size=1, max_size=5),
        min_size=1,
        max_size=6,
    ),
    first=st.integers(100, 900),
    second=st.integers(100, 900),
    closes_early=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_from_any_place_the_rest_comes(
    transactions: list[list[tuple[int, int]]],
    first: int,
    second: int,
    *,
    closes_early: bool,
) -> None:
    """Transactions over several tables, of which one changes its columns and one is not wanted; places of any page."""
    log = WrittenLog()
    for changes in transactions:
        parts = []
        for at, count in changes:
            table = WIDER if at == 3 else TABLES[at]
            rows = [(*named(number, "x"), *([b"\1\0\0\0"] if at == 3 else [])) for number in range(count)]
            parts.append((table, events.WRITE_V1, rows))
        log.transaction(*parts)
    whole = segments_of(log, Place(FILE), bytes_max=first, closes_early=closes_early)
    everything = delivered(whole)
    assert "w.c" not in everything
    assert whole[-1].end.position == log.position
    before: list[Segment] = []
    for segment in whole:
        for count in range(1, len(segment.runs) + 1):
            place = Place.read(segment.place_after(count).offset())
            assert place is not None
            part = Segment(segment.start, segment.end, segment.position, segment.runs[:count], ends_transaction=False)
            rest = segments_of(log, place, bytes_max=second)
            assert delivered([*before, part, *rest]) == everything
        before.append(segment)


def test_only_whole_transactions_end_one() -> None:
    """A transaction that is too large for a segment goes on in the next ones."""
    log = WrittenLog()
    log.transaction(*[(TABLES[0], events.WRITE_V1, [named(at, "x" * 40)]) for at in range(5)])
    found = segments_of(log, Place(FILE), bytes_max=250)
    assert len(found) > 1
    assert [segment.ends_transaction for segment in found] == [*[False] * (len(found) - 1), True]
    assert found[0].end.delivered == found[0].position
    assert found[-1].end.gtids == GtidSet("0-1-1")


REFUSED = {
    "insert into t values (1)": "SET GLOBAL binlog_format = ROW",
    "/* app */ -- x\n UPDATE t SET a = 1": "SET GLOBAL binlog_format = ROW",
}


@pytest.mark.parametrize(("statement", "told"), REFUSED.items())
def test_changes_that_are_no_rows_are_refused(statement: str, told: str) -> None:
    """Rather than passed over."""
    log = WrittenLog()
    log.begin()
    log.query(statement)
    with pytest.raises(NotDescribed, match=told):
        segments_of(log, Place(FILE), bytes_max=1000)


def test_what_may_be_taken_back_is_refused() -> None:
    """Rows of an XA transaction, and of one that was rolled back after it was logged."""
    log = WrittenLog()
    log.begin(flags=64)
    log.add(events.TABLE_MAP, TABLES[0].described())
    log.add(events.WRITE_V1, TABLES[0].rows([named(1, "x")]))
    with pytest.raises(NotDescribed, match="XA"):
        segments_of(log, Place(FILE), bytes_max=1000)
    log = WrittenLog()
    log.begin()
    log.add(events.TABLE_MAP, TABLES[0].described())
    log.add(events.WRITE_V1, TABLES[0].rows([named(1, "x")]))
    log.query("ROLLBACK")
    with pytest.raises(NotDescribed, match="rolled back"):
        segments_of(log, Place(FILE), bytes_max=1000)


def test_ddl_and_compressed_events() -> None:
    """A statement outside of transactions only moves the place; what is compressed is refused by name."""
    log = WrittenLog()
    log.statement("ALTER TABLE t ADD n INT")
    found = segments_of(log, Place(FILE), bytes_max=1000)
    assert [(len(one.runs), one.end.position, one.ends_transaction) for one in found] == [(0, log.position, True)]
    log.add(166, bytes(20))
    with pytest.raises(NotDescribed, match="SET GLOBAL log_bin_compress = OFF"):
        segments_of(log, Place(FILE), bytes_max=1000)


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_sets_of_transactions() -> None:
    """Ranges of MySQL grow and join; of MariaDB's domains the last one stands."""
    assert GtidSet().with_these([(UUID, 1), (UUID, 2), (UUID, 5)]).text == f"{UUID}:1-2:5"
    assert GtidSet(f"{UUID.upper()}:1-2:5-7").with_these([(UUID, 3), (UUID, 4)]).text == f"{UUID}:1-7"
    assert GtidSet("0-1-5,1-1-3").with_these([("0-2", 6)]).text == "0-2-6,1-1-3"


def test_debeziums_offsets_are_read() -> None:
    """Its own keys beside are passed over; a snapshot of its that was not over is begun anew."""
    debezium = {
        "transaction_id": None,
        "ts_sec": 1,
        "file": "b.000003",
        "pos": 194,
        "row": 1,
        "server_id": 5,
        "event": 2,
    }
    place = Place.read(debezium)
    assert place is not None
    assert (place.file, place.position, place.server_id, place.is_snapshot) == ("b.000003", 194, 5, False)
    unfinished = Place.read({**debezium, "snapshot": True, "snapshot_completed": False})
    assert unfinished is not None
    assert unfinished.is_snapshot
    with pytest.raises(ValueError, match="expected"):
        Place.read({"lsn": 5})
