"""From events to places: whatever the log holds, what was delivered up to any place and what comes behind it is all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.mysql_cdc import events, segments
from fetchers.mysql_cdc.events import Event, EventReader, MalformedError, ServerRefused
from fetchers.mysql_cdc.places import GtidSet, Place
from fetchers.mysql_cdc.segment import Run, Segment
from fetchers.mysql_cdc.segments import Segments
from fetchers.mysql_cdc.table_map import LONG, Column, NotDescribed
from fetchers.mysql_cdc.transactions import TransactionReader, Transactions
from tests.binlog_server import FILE, NAMED, WrittenLog, WrittenTable, named, packet

TABLES = [WrittenTable("w", name, NAMED, number=at) for at, name in enumerate("abc", 1)]
WIDER = WrittenTable("w", "a", (*NAMED, Column("n", LONG)), number=9)


def new_segments(place: Place, bytes_max: int) -> Segments:
    """That want every table but one."""
    return Segments(place, lambda name: name != "w.c", is_mariadb=True, bytes_max=bytes_max)


def segments_of(log: WrittenLog, place: Place, *, bytes_max: int, closes_early: bool = False) -> list[Segment]:
    """All segments from a place on; ``closes_early``: at the end of every transaction."""
    made = new_segments(place, bytes_max)
    found = []
    for event in made.each(EventReader().feed(b"".join(log.packets(place.position)))):
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


@st.composite
def written_logs(draw: st.DrawFn) -> WrittenLog:
    """Transactions over several tables, of which one changes its columns and one is not wanted."""
    changes = st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.integers(1, 4)), min_size=1, max_size=5)
    log = WrittenLog()
    for transaction in draw(st.lists(changes, min_size=1, max_size=6)):
        parts = []
        for at, count in transaction:
            table = WIDER if at == 3 else TABLES[at]
            rows = [(*named(number, "x"), *([b"\1\0\0\0"] if at == 3 else [])) for number in range(count)]
            parts.append((table, events.WRITE_V1, rows))
        log.transaction(*parts)
    return log


def cut_behind(segments: list[Segment], at: int) -> tuple[list[Segment], Place]:
    """What was delivered when a run ended behind the ``at``-th page, and where the next one goes on."""
    pages = [(number, count) for number, one in enumerate(segments) for count in range(1, len(one.runs) + 1)]
    if not pages:
        return [], segments[0].start
    number, count = pages[at % len(pages)]
    cut = segments[number]
    place = Place.read(cut.place_after(count).offset())
    assert place is not None
    return [*segments[:number], replace(cut, runs=cut.runs[:count])], place


@given(
    log=written_logs(),
    closes_early=st.booleans(),
    runs=st.lists(st.tuples(st.integers(100, 900), st.integers(0, 40)), min_size=1, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_from_any_place_the_rest_comes(log: WrittenLog, runs: list[tuple[int, int]], *, closes_early: bool) -> None:
    """However many runs end behind any of their pages, each with another size of segments, each event comes once."""
    everything = delivered(segments_of(log, Place(FILE), bytes_max=10_000))
    assert "w.c" not in everything
    before: list[Segment] = []
    place = Place(FILE)
    for bytes_max, at in runs:
        done, place = cut_behind(segments_of(log, place, bytes_max=bytes_max, closes_early=closes_early), at)
        before += done
    rest = segments_of(log, place, bytes_max=10_000)
    assert delivered([*before, *rest]) == everything
    assert rest[-1].end.position == log.position


def test_a_place_between_transactions_keeps_what_is_delivered_behind_it() -> None:
    """A heartbeat's place, told before the end of the segment in whose middle the last run ended."""
    log = WrittenLog()
    for at in (0, 0, 1):
        log.transaction((TABLES[at], events.WRITE_V1, [named(1, "x")]))
    (whole,) = segments_of(log, Place(FILE), bytes_max=10_000)
    assert [run.table.name for run in whole.runs] == ["w.a", "w.b"]
    made = Segments(whole.place_after(1), lambda _: True, is_mariadb=True, bytes_max=10_000)
    assert not made.is_between
    for event in EventReader().feed(b"".join(log.packets(Place(FILE).position))):
        made.take(event)
        rest = segments_of(log, made.place, bytes_max=10_000) if not made.has_rows else []
        assert "w.a" not in delivered(rest)


def test_a_large_transaction_has_large_segments_again_behind_a_place_in_it() -> None:
    """The place is passed once, and then no longer looked at."""
    log = WrittenLog()
    log.transaction(*[(TABLES[at % 2], events.WRITE_V1, [named(at, "x" * 40)]) for at in range(12)])
    first, *_ = segments_of(log, Place(FILE), bytes_max=700)
    rest = segments_of(log, first.place_after(1), bytes_max=10_000)
    assert len(rest) == 2


def test_only_whole_transactions_end_one() -> None:
    """A transaction that is too large for a segment goes on in the next ones."""
    log = WrittenLog()
    log.transaction(*[(TABLES[0], events.WRITE_V1, [named(at, "x" * 40)]) for at in range(5)])
    found = segments_of(log, Place(FILE), bytes_max=250)
    assert len(found) > 1
    assert [segment.ends_transaction for segment in found] == [*[False] * (len(found) - 1), True]
    assert found[0].end.delivered == found[0].position
    assert found[-1].end.gtids == GtidSet("0-1-1")


def test_ddl_moves_the_place() -> None:
    """A statement outside of transactions is no row."""
    log = WrittenLog()
    log.statement("ALTER TABLE t ADD n INT")
    found = segments_of(log, Place(FILE), bytes_max=1000)
    assert [(len(one.runs), one.end.position, one.ends_transaction) for one in found] == [(0, log.position, True)]


def outline(segments: list[Segment]) -> tuple[object, ...]:
    """What is in them, and where the last one ends."""
    runs: dict[str, list[Run]] = {}
    for segment in segments:
        for run in segment.runs:
            runs.setdefault(run.table.name, []).append(run)
    images = {name: [one for run in parts for one in images_of(run)] for name, parts in runs.items()}
    return (
        {name: [mark for run in parts for mark in run.marks] for name, parts in runs.items()},
        images,
        segments[-1].end,
    )


def images_of(run: Run) -> list[bytes]:
    """The bytes of each row image."""
    found = run.rows.images()
    ends = [*found.starts[1:].tolist(), run.rows.bytes]
    return [found.data[start:end] for start, end in zip(found.starts.tolist(), ends, strict=True)]


@given(
    transactions=st.lists(
        st.one_of(
            st.lists(
                st.tuples(st.sampled_from([0, 1, 2, 3]), st.integers(0, 2), st.integers(1, 3)), min_size=2, max_size=3
            ),
            st.tuples(st.sampled_from([0, 0, 0, 1, 2, 3]), st.integers(0, 2), st.integers(1, 20)).map(
                lambda one: [one]
            ),
        ),
        min_size=1,
        max_size=60,
    ),
    step=st.integers(300, 20_000),
    bytes_max=st.integers(500, 20_000),
)
@settings(max_examples=120, deadline=None)
def test_transactions_taken_together_are_what_their_events_are(
    transactions: list[list[tuple[int, int, int]]], step: int, bytes_max: int
) -> None:
    """Marks, images, GTIDs and the end, however the bytes are cut; also of tables that change or are not wanted."""
    log = WrittenLog()
    kinds = (events.WRITE_V1, events.UPDATE_V1, events.DELETE_V1)
    for changes in transactions:
        parts = []
        for at, kind, count in changes:
            table = WIDER if at == 3 else TABLES[at]
            texts = [None if number % 3 == 0 else "x" * number for number in range(count * (2 if kind == 1 else 1))]
            rows = [(*named(at, text), *([b"\1\0\0\0"] if at == 3 else [])) for text in texts]
            parts.append((table, kinds[kind], rows))
        log.transaction(*parts)
    stream = b"".join(log.packets(4))
    reader, made, together = TransactionReader(), new_segments(Place(FILE), bytes_max), []
    for begin in range(0, len(stream), step):
        together += [made.take(one) for one in made.each(reader.feed(stream[begin : begin + step]))]
    found = [segment for segment in together if segment is not None] + [made.close()]
    assert outline(found) == outline(segments_of(log, Place(FILE), bytes_max=bytes_max))


def test_small_transactions_are_taken_together() -> None:
    """All but what tells of the log itself; and from a place within them, one by one."""
    log = WrittenLog()
    for number in range(20):
        log.transaction((TABLES[0], events.WRITE_V1, [named(number, "x")]))
    found = TransactionReader().feed(b"".join(log.packets(4)))
    assert [len(one) for one in found if isinstance(one, Transactions)] == [20]
    made = new_segments(replace(Place(FILE), delivered=log.position - 1), 100_000)
    assert all(isinstance(one, Event) for one in made.each(found))


def taken_together(log: WrittenLog) -> Segment:
    """All of a log whose transactions are read in one stretch."""
    made = new_segments(Place(FILE), 1 << 20)
    found = TransactionReader().feed(b"".join(log.packets(4)))
    assert any(isinstance(one, Transactions) for one in found)
    for one in made.each(found):
        assert made.take(one) is None
    return made.close()


def test_the_last_transaction_of_a_domain_stands_whatever_servers_share_it() -> None:
    """Two primaries that replicate to each other: the log has the transactions of both, by turns."""
    log = WrittenLog()
    for number in range(21):
        log.server = 1 + number % 2
        log.transaction((TABLES[0], events.WRITE_V1, [named(number, "x")]))
    assert taken_together(log).end.gtids == GtidSet("0-1-21")


def test_a_table_that_was_opened_again_meanwhile_keeps_the_order_of_its_rows() -> None:
    """``FLUSH TABLES`` gives it another number, and a transaction that is open then commits under the older one."""
    log = WrittenLog()
    again = replace(TABLES[0], number=77)
    for number in range(20):
        log.transaction((TABLES[0] if number == 10 else again, events.WRITE_V1, [named(number, "x")]))
    (run,) = taken_together(log).runs
    positions = [mark.position for mark in run.marks]
    assert positions == sorted(positions)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_damage_within_transactions_is_noticed(data: st.DataObject) -> None:
    """A bit that is not as it was sent: an error, or the same as without the quicker way."""
    log = WrittenLog()
    for number in range(12):
        log.transaction((TABLES[0], events.WRITE_V1, [named(number, "x" * number)]))
    packets = log.packets(4)
    stream = bytearray(b"".join(packets))
    at = data.draw(st.integers(len(packets[0]) + len(packets[1]), len(stream) - 1))
    stream[at] ^= 1 << data.draw(st.integers(0, 7))
    found: list[object] = []
    for reader in (EventReader(), TransactionReader()):
        try:
            events_read = [*reader.feed(bytes(stream))]
        except (MalformedError, ServerRefused, EOFError) as error:
            found.append(type(error))
        else:
            single = [list(one) if isinstance(one, Transactions) else [one] for one in events_read]
            found.append([event[:6] for part in single for event in part])
    assert found[0] == found[1]


@given(st.binary(max_size=40), st.sampled_from([events.WRITE_V1, events.UPDATE_V1]))
@settings(max_examples=80, deadline=None)
def test_any_bytes_within_transactions_are_rows_or_the_same_error(body: bytes, kind: int) -> None:
    """Rows that are anything, under a checksum that is right."""
    log = WrittenLog()
    for number in range(12):
        log.begin()
        log.add(events.TABLE_MAP, TABLES[0].described())
        rows = TABLES[0].rows([named(number, "x")])
        log.add(events.WRITE_V1 if number != 5 else kind, rows if number != 5 else rows[:10] + body)
        log.add(events.XID, bytes(8))
    found: list[object] = []
    for reader in (EventReader(), TransactionReader()):
        made = new_segments(Place(FILE), 100_000)
        try:
            for one in made.each(reader.feed(b"".join(log.packets(4)))):
                made.take(one)
        except (MalformedError, NotDescribed) as error:
            found.append((type(error), str(error)))
        else:
            found.append(outline([made.close()]))
    assert found[0] == found[1]


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


@pytest.mark.parametrize("count", [1, 20])
def test_what_comes_before_the_servers_last_word_is_read(count: int) -> None:
    """In one piece with it: the events first, and the word when more is asked for."""
    log = WrittenLog()
    for number in range(count):
        log.transaction((TABLES[0], events.WRITE_V1, [named(number, "x")]))
    for word, error in ((b"\xfe\0\0\2\0", EOFError), (b"\xff\xd4\x04#HY000purged", ServerRefused)):
        reader = TransactionReader()
        found = reader.feed(b"".join(log.packets(4)) + packet(word, 9))
        assert sum(len(one) if isinstance(one, Transactions) else one.kind == events.XID for one in found) == count
        assert reader.is_ended
        with pytest.raises(error):
            reader.feed(b"")


def test_names_of_tables_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are asked again for one that was long unused, wanted or not; none of its rows is missing."""
    monkeypatch.setattr(segments, "KNOWN_MAX", 3)
    asked: list[str] = []

    def takes(name: str) -> bool:
        asked.append(name)
        return name != "w.t1"

    log, numbers = WrittenLog(), [0, 1, 0, 1, 2, 3, 4, 0, 1]
    for number in numbers:
        table = WrittenTable("w", f"t{number}", NAMED, number=number + 1)
        log.transaction((table, events.WRITE_V1, [named(number, None)]))
    made = Segments(Place(FILE), takes, is_mariadb=True, bytes_max=1_000_000)
    for event in EventReader().feed(b"".join(log.packets(4))):
        made.take(event)
    assert {run.table.name: len(run.marks) for run in made.close().runs} == {"w.t0": 3, "w.t2": 1, "w.t3": 1, "w.t4": 1}
    assert asked == ["w.t0", "w.t1", "w.t2", "w.t3", "w.t4", "w.t0", "w.t1"]
