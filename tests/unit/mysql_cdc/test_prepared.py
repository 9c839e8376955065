"""XA transactions: delivered when they are committed, once, and never when they are rolled back, from any place."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.events import Event, EventReader, MalformedError
from fetchers.mysql_cdc.places import Place
from fetchers.mysql_cdc.prepared import PREPARED_MAX, Committed, PreparedTransactions, read_xa, xid_in
from fetchers.mysql_cdc.segment import Segment
from fetchers.mysql_cdc.segments import Segments
from fetchers.mysql_cdc.table_map import LONG, STRING, Column, NotDescribed
from tests.binlog_server import FILE, NAMED, WrittenLog, WrittenTable, named

TABLES = [WrittenTable("w", name, NAMED, number=at) for at, name in enumerate("abcde", 1)]
Told = list[tuple[str, int]]
"""Table and id of each row."""


def rows_of(segment: Segment) -> dict[str, list[bytes]]:
    """The ids' bytes by table."""
    found = {}
    for run in segment.runs:
        images = run.rows.images()
        found[run.table.name] = [images.data[start + 1 : start + 5] for start in images.starts.tolist()]
    return found


def pages_of(log: WrittenLog, place: Place, *, bytes_max: int) -> list[tuple[str, list[int], Place, bool]]:
    """Table, ids, place and whether it ends a transaction of each page, as the fetcher makes them."""
    made, segments = Segments(place, lambda name: name != "w.c", is_mariadb=True, bytes_max=bytes_max), []
    for event in made.each(EventReader().feed(b"".join(log.packets(place.position)))):
        closed = made.take(event)
        if closed is not None:
            segments.append(closed)
        if made.committed is not None:
            segments += replayed(log, made, made.committed)
    segments.append(made.close())
    found: list[tuple[str, list[int], Place, bool]] = []
    for segment in segments:
        for at, (name, ids) in enumerate(rows_of(segment).items(), 1):
            is_end = segment.ends_transaction and at == len(segment.runs)
            found.append((name, [int.from_bytes(one, "little") for one in ids], segment.place_after(at), is_end))
        if not segment.runs:
            found.append(("", [], segment.place_after(0), segment.ends_transaction))
    return found


def replayed(log: WrittenLog, made: Segments, committed: Committed) -> list[Segment]:
    """What ``replay.segments_of`` does, from the log where the events are not held."""
    found = parts_of(log, made, committed)
    if not committed.is_among:
        return found
    for part in found:
        made.join(part)
    return [made.close()] if made.is_between else []


def parts_of(log: WrittenLog, made: Segments, committed: Committed) -> list[Segment]:
    """All of the transaction."""
    reader = made.replaying(committed)
    source = committed.held
    if source is None:
        source = EventReader().feed(b"".join(log.packets(committed.at.position)))
    found: list[Segment] = []
    for event in source:
        closed = reader.take(event)
        if event.kind == events.XA_PREPARE:
            return [*found, replace(closed or reader.close(), committed=committed)]
        if closed is not None:
            found.append(replace(closed, committed=committed))
    raise AssertionError


@st.composite
def mixed_logs(draw: st.DrawFn) -> tuple[WrittenLog, Told]:
    """Ordinary transactions and XA ones, which end later, at once or not at all; and the rows that are to be told."""
    log, told, number = WrittenLog(), Told(), 0
    waiting: dict[bytes, Told] = {}
    for step in draw(st.lists(st.sampled_from("oopppc1r"), min_size=2, max_size=14)):
        changes, rows = [], Told()
        for at in draw(st.lists(st.sampled_from([0, 1, 1, 2, 3, 4]), min_size=1, max_size=4)):
            number += 1
            changes.append((TABLES[at], events.WRITE_V1, [named(number, "x" * 20)]))
            rows += [(f"w.{TABLES[at].name}", number)] if at != 2 else []
        xid = b"x%d" % number
        if step == "o":
            log.transaction(*changes)
            told += rows
        elif step == "1":
            log.prepared(xid, *changes, is_one_phase=True)
            told += rows
        elif step == "p":
            log.prepared(xid, *changes)
            waiting[xid] = rows
        elif waiting:
            one = draw(st.sampled_from(sorted(waiting)))
            log.ended(one, "COMMIT" if step == "c" else "ROLLBACK")
            rows = waiting.pop(one)
            told += rows if step == "c" else []
    return log, told


@given(mixed=mixed_logs(), runs=st.lists(st.tuples(st.sampled_from([150, 400, 5000]), st.integers(0, 30)), max_size=4))
@settings(max_examples=150, deadline=None)
def test_rows_come_when_they_are_committed(mixed: tuple[WrittenLog, Told], runs: list[tuple[int, int]]) -> None:
    """In the order of the commits, each once, however often reading begins anew behind any page."""
    log, told = mixed
    delivered, place = Told(), Place(FILE)
    for bytes_max, at in [*runs, (5000, -1)]:
        pages = pages_of(log, place, bytes_max=bytes_max)
        done = pages[: at % len(pages) + 1] if at >= 0 else pages
        delivered += [(name, number) for name, ids, _, _ in done for number in ids]
        stored = Place.read(done[-1][2].offset())
        assert stored is not None
        place = stored
        if at < 0:
            assert done[-1][3]
    for table in ("w.a", "w.b", "w.d", "w.e"):
        assert [one for one in delivered if one[0] == table] == [one for one in told if one[0] == table]


def test_pages_of_one_transaction_end_it_once() -> None:
    """Its own, though it is read in parts; what came before it is another one."""
    log = WrittenLog()
    log.prepared(b"a", *[(TABLES[at % 2], events.WRITE_V1, [named(at, "x" * 50)]) for at in range(8)])
    log.transaction((TABLES[0], events.WRITE_V1, [named(100, "x")]))
    log.ended(b"a", "COMMIT")
    pages = pages_of(log, Place(FILE), bytes_max=300)
    assert next(ids for _, ids, _, _ in pages) == [100]
    assert len(pages) > 3
    assert pages[0][3]
    assert not any(is_end for name, ids, _, is_end in pages[1:-2] if name)
    assert pages[-2][3]
    assert pages[-1][2].position == log.position
    assert not pages[-1][2].prepared


@pytest.mark.parametrize("is_one_phase", [True, False])
def test_small_ones_come_together(is_one_phase: bool) -> None:  # noqa: FBT001 - a case
    """With each other and with ordinary transactions around them: a page for each would cost more than its rows."""
    log, count = WrittenLog(), 50
    for number in range(0, 2 * count, 2):
        log.prepared(b"%d" % number, (TABLES[0], events.WRITE_V1, [named(number, "x")]), is_one_phase=is_one_phase)
        log.transaction((TABLES[0], events.WRITE_V1, [named(number + 1, "x")]))
        if not is_one_phase:
            log.ended(b"%d" % number, "COMMIT")
    ((name, ids, place, is_end),) = pages_of(log, Place(FILE), bytes_max=1_000_000)
    assert (name, place.position, place.prepared, is_end) == ("w.a", log.position, (), True)
    pairs = range(0, 2 * count, 2)
    assert ids == [each for one in pairs for each in ((one, one + 1) if is_one_phase else (one + 1, one))]


def test_a_commit_among_others_of_which_one_table_is_delivered() -> None:
    """Its rows of that table are delivered, too: also where it was prepared before, so that it is read again."""
    log = WrittenLog()
    changes = [(table, events.WRITE_V1, [named(number, "x")]) for number, table in enumerate(TABLES[:2], 1)]
    log.prepared(b"early", *changes)
    log.transaction((TABLES[0], events.WRITE_V1, [named(3, "x")]))
    log.ended(b"early", "COMMIT")
    log.prepared(b"late", *changes)
    log.ended(b"late", "COMMIT")
    first, second = pages_of(log, Place(FILE), bytes_max=1_000_000)
    assert [first[:2], second[:2]] == [("w.a", [3, 1, 1]), ("w.b", [2, 2])]
    rest = pages_of(log, first[2], bytes_max=1_000_000)
    assert [(name, ids) for name, ids, _, _ in rest if ids] == [("w.b", [2, 2])]
    assert rest[-1][2] == replace(second[2], gtids=rest[-1][2].gtids)


@pytest.mark.parametrize("column", [LONG, STRING])
def test_one_that_was_prepared_before_keeps_the_segment_whole(column: int) -> None:
    """Behind its first page: of the other tables no page may say that the first one is delivered less far than it is.

    Also with a column that may be a UUID, whose tables are apart as soon as they are described anew.
    """
    columns = (NAMED[0], Column("u", column, 1 if column == STRING else 0, 16 if column == STRING else 0))
    a, b, c = [WrittenTable("w", name, columns, number=at) for at, name in enumerate("abd", 1)]

    def row(table: WrittenTable, number: int) -> tuple[WrittenTable, int, list[tuple[bytes | None, ...]]]:
        return table, events.WRITE_V1, [(number.to_bytes(4, "little"), None)]

    log = WrittenLog()
    log.prepared(b"x", row(c, 1), row(a, 2))
    log.transaction(row(a, 3))
    begin = log.position
    log.transaction(row(a, 4), row(b, 5))
    log.ended(b"x", "COMMIT")
    log.transaction(row(a, 6), row(b, 7), row(c, 8))
    made = Segments(Place(FILE), lambda _: True, is_mariadb=True, bytes_max=1_000_000)
    for event in EventReader().feed(b"".join(log.packets(4))):
        assert made.take(event) is None
        if event.end_position == begin:
            made.close()
    whole = made.close()
    assert [run.table.name for run in whole.runs] == ["w.a", "w.b", "w.d"]
    pages, places = [("w.a", rows_of(whole)["w.a"])], [whole.place_after(1)]
    for _ in range(2):
        first, *_ = [one for one in pages_of(log, places[-1], bytes_max=1_000_000) if one[1]]
        pages.append((first[0], [number.to_bytes(4, "little") for number in first[1]]))
        places.append(first[2])
    assert dict(pages) == rows_of(whole)
    assert places[-1] == replace(whole.end, gtids=places[-1].gtids)


@pytest.mark.parametrize("is_last", [True, False])
def test_a_segment_that_begins_with_a_commit_comes_once_page_by_page(is_last: bool) -> None:  # noqa: FBT001 - a case
    """A run behind each page, whether or not others come behind the commit in the same segment."""
    log, told = WrittenLog(), []
    changes = [(TABLES[at], events.WRITE_V1, [named(at, "x")]) for at in (0, 1, 3, 4)]
    log.prepared(b"x", *changes)
    log.ended(b"x", "COMMIT")
    if not is_last:
        log.transaction(*changes)
    place = Place(FILE)
    while place.position < log.position:
        name, ids, place, _ = next(page for page in pages_of(log, place, bytes_max=1_000_000) if page[1])
        told.append((name, ids))
    assert told == [(f"w.{TABLES[at].name}", [at] * (1 if is_last else 2)) for at in (0, 1, 3, 4)]


def test_the_rest_of_one_in_one_phase_comes_under_another_limit() -> None:
    """Its events are at hand when it is read again, and so much of it is delivered."""
    log = WrittenLog()
    log.prepared(b"a", *[(TABLES[0], events.WRITE_V1, [named(at, "x" * 50)]) for at in range(8)], is_one_phase=True)
    first = pages_of(log, Place(FILE), bytes_max=300)[0]
    rest = pages_of(log, first[2], bytes_max=1_000_000)
    assert [*first[1], *(number for _, ids, _, _ in rest for number in ids)] == list(range(8))


@pytest.mark.parametrize("is_large", [True, False])
def test_a_row_tells_where_it_stands_and_when_it_was_committed(is_large: bool) -> None:  # noqa: FBT001 - a case
    """Its position and GTID are those of the prepared transaction, its time that of the commit."""
    log = WrittenLog()
    log.prepared(b"a", (TABLES[0], events.WRITE_V1, [named(1, "x")]))
    log.ended(b"a", "COMMIT")
    made = Segments(Place(FILE), lambda _: True, is_mariadb=True, bytes_max=100 if is_large else 100_000)
    found: list[Segment] = []
    for event in EventReader().feed(b"".join(log.packets(4))):
        made.take(event._replace(timestamp=77 if event.kind == events.QUERY else 5))
        if made.committed is not None:
            found.append(replayed(log, made, made.committed)[0])
    (mark,) = (found[0] if is_large else made.close()).runs[0].marks
    assert (mark.gtid, mark.committed_us) == ("0-1-1", 77_000_000)
    assert mark.position < log.events[-2][0]


def test_one_of_the_same_xid_takes_its_place() -> None:
    """A crash of the server may lose a prepared transaction without a word in the log."""
    log = WrittenLog()
    for number in (1, 2):
        log.prepared(b"a", (TABLES[0], events.WRITE_V1, [named(number, "x")]))
    log.ended(b"a", "COMMIT")
    pages = pages_of(log, Place(FILE), bytes_max=5000)
    assert [ids for _, ids, _, _ in pages if ids] == [[2]]


def test_a_commit_of_what_was_prepared_before() -> None:
    """Is passed over where all were listed that were prepared then, and refused where they were not."""
    log = WrittenLog()
    log.ended(b"a", "COMMIT")
    assert pages_of(log, Place(FILE), bytes_max=1000)[-1][2].position == log.position
    with pytest.raises(NotDescribed, match="XA_RECOVER_ADMIN"):
        pages_of(log, Place(FILE, is_unlisted=True), bytes_max=1000)


def test_debeziums_place_within_one_is_refused() -> None:
    """It has delivered rows that may be rolled back."""
    log = WrittenLog()
    begin = log.position
    log.prepared(b"a", (TABLES[0], events.WRITE_V1, [named(1, "x")]))
    with pytest.raises(NotDescribed, match="Debezium has delivered"):
        pages_of(log, Place(FILE, begin, events=3), bytes_max=1000)


def test_only_so_many_are_prepared_at_a_time() -> None:
    """The offset has to hold them."""
    made = PreparedTransactions((), bytes_max=10)
    for number in range(PREPARED_MAX):
        made.end(str(number), FILE, number)
    with pytest.raises(NotDescribed, match="XA RECOVER"):
        made.end("one more", FILE, PREPARED_MAX)


@given(st.binary(max_size=160))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_an_end_or_an_error(body: bytes) -> None:
    """Lengths that lie are told."""
    event = Event(events.XA_PREPARE, 0, 1, 0, 0, 0, body, 0, len(body))
    try:
        xid, _ = read_xa(event)
    except MalformedError:
        return
    assert xid_in(f"XA COMMIT {xid}") == xid


def test_xids_are_the_same_in_event_and_statement() -> None:
    """Also with letters in capitals and a negative format; words that are not known are refused."""
    body = struct.pack("<BiII", 1, -7, 2, 1) + b"\xab\xcd\xef"
    told = read_xa(Event(events.XA_PREPARE, 0, 1, 0, 0, 0, body, 0, len(body)))
    assert told == ("X'abcd',X'ef',-7", True)
    assert xid_in("XA COMMIT X'ABCD',X'EF',-7 ONE PHASE") == told[0]
    with pytest.raises(NotDescribed, match="words"):
        xid_in("XA COMMIT 'a'")


@pytest.mark.parametrize("text", ["[]", '{"x":1}', "{", '{"x":{"file":1}}'])
def test_offsets_of_prepared_transactions_that_are_none(text: str) -> None:
    """Are refused when they are written, with a reason."""
    with pytest.raises(ValueError, match=r".+"):
        Place.read({"file": FILE, "pos": 4, "prepared": text})
