"""The log cut into batches: transactions stay whole, and from every page's offset reading goes on exactly."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.postgres_cdc.log import Batch, Framing
from fetchers.postgres_cdc.messages import Messages
from fetchers.postgres_cdc.pgoutput import POSTGRES_EPOCH_MICROS
from fetchers.postgres_cdc.place import Place, SnapshotPlace, read_place
from fetchers.sdk import Fatal

Transactions: TypeAlias = "list[list[int]]"
"""Of each transaction the relations of its changes."""
transactions = st.lists(st.lists(st.integers(1, 3), max_size=14), max_size=4)


def described(oid: int, column: str = "id") -> bytes:
    """A Relation message of a table with one column."""
    head = b"R" + struct.pack(">I", oid) + b"public\0" + f"t{oid}".encode() + b"\0d" + struct.pack(">H", 1)
    return head + b"\1" + column.encode() + b"\0" + struct.pack(">Ii", 23, -1)


def stream(found: Transactions) -> Iterator[tuple[bytes, int]]:
    """Messages and their positions, as a server sends them over one connection."""
    known = set()
    position = 1000
    for number, changes in enumerate(found):
        first, last = position, position + len(changes) + 1
        yield b"B" + struct.pack(">QqI", last, number, number), first
        for at, oid in enumerate(changes):
            if oid not in known:
                known.add(oid)
                yield described(oid), 0
            text = f"{number}.{at}".encode()
            row = struct.pack(">H", 1) + b"t" + struct.pack(">I", len(text)) + text
            yield b"I" + struct.pack(">I", oid) + b"N" + row, first + at + 1
        position = last + 10
        yield b"C\0" + struct.pack(">QQq", last, position, number), position


def received(messages: Iterable[tuple[bytes, int]]) -> Messages:
    """As the server's XLogData has them."""
    found = [b"w" + struct.pack(">QQq", position, position, 0) + payload for payload, position in messages]
    return Messages(b"".join(found), list(map(len, found)))


def batches(found: Transactions, start: Place, rows_max: int = 3, *, is_slow: bool = False) -> Iterator[Batch]:
    """All of a stream; ``is_slow``: of which each message arrives alone, so that a batch ends wherever it may."""
    framing = Framing(start, rows_max=rows_max, takes=lambda _: True)
    for message, position in stream(found):
        if framing.add(message, position) or (is_slow and not framing.is_open and framing.has_rows):
            yield framing.take()
    yield framing.take()


def pages(
    found: Transactions, start: Place, *, is_slow: bool = False
) -> Iterator[tuple[Place, int, list[bytes], bool]]:
    """As the fetcher hands them over: place after it, relation, rows, whether a transaction ends with it."""
    for batch in batches(found, start, is_slow=is_slow):
        done = set(batch.begin.done)
        for group in batch.groups:
            done.add(group.relation.oid)
            is_last = group is batch.groups[-1]
            begin, end = batch.begin, batch.end
            after = end if is_last else Place(begin.commit, begin.events, 0, frozenset(done), end.commit, end.events)
            offset = after.offset(lsn=batch.positions[group.numbers[-1]] if end.events else 0)
            read = read_place(offset)
            assert isinstance(read, Place)
            rows = [message[13:] for message in group.messages]
            yield read, group.relation.oid, rows, is_last and batch.ends_transaction


def delivered(found: Iterator[tuple[Place, int, list[bytes], bool]]) -> dict[int, list[bytes]]:
    """Rows by relation."""
    rows: defaultdict[int, list[bytes]] = defaultdict(list)
    for _, oid, more, _ in found:
        rows[oid] += more
    return dict(rows)


@given(transactions, st.booleans())
@settings(max_examples=50)
def test_every_offset_resumes_without_gap_or_repeat(found: Transactions, is_slow: bool) -> None:  # noqa: FBT001 - drawn
    """Between tables of one batch, and inside a transaction too; over a network that is slow when it resumes."""
    whole = list(pages(found, Place(1)))
    everything = delivered(iter(whole))
    expected = defaultdict(list)
    for number, changes in enumerate(found):
        for at, oid in enumerate(changes):
            expected[oid].append(f"{number}.{at}".encode())
    assert everything == expected
    for count in range(1, len(whole) + 1):
        before = delivered(iter(whole[:count]))
        again = list(pages(found, whole[count - 1][0], is_slow=is_slow))
        after = delivered(iter(again))
        joined = {oid: before.get(oid, []) + after.get(oid, []) for oid in {*before, *after}}
        assert joined == everything
        for at in range(len(again)):  # and once more, from an offset of what was resumed
            third = delivered(pages(found, again[at][0]))
            second = delivered(iter(again[: at + 1]))
            joined = {oid: [*before.get(oid, []), *second.get(oid, []), *third.get(oid, [])] for oid in everything}
            assert joined == everything


def test_tables_of_a_batch_come_in_the_order_of_their_first_changes() -> None:
    """Taken together as one by one: the second batch begins with the second table."""
    framing = Framing(Place(1), rows_max=4, takes=lambda _: True)
    part = received(stream([[1], [2], [1], [1], *([[2], [1]] * 6)]))
    found = []
    while framing.add_all(part):
        found.append([group.relation.oid for group in framing.take().groups])
    assert found == [[1, 2], [2, 1], [2, 1], [2, 1]]


@given(
    st.lists(st.one_of(st.lists(st.integers(1, 3), max_size=4), st.integers(1, 3).map(lambda oid: [oid])), max_size=60),
    st.integers(1, 40),
    st.integers(1, 200),
    st.data(),
)
@settings(max_examples=100)
def test_messages_taken_together_are_what_each_of_them_is(
    found: Transactions, rows_max: int, step: int, data: st.DataObject
) -> None:
    """The same batches, whole, from any offset within, and however many messages were received at once."""
    messages = list(stream(found))
    start = data.draw(st.sampled_from([Place(1), *(place for place, *_ in pages(found, Place(1)))]))
    framings = [Framing(start, rows_max=rows_max, takes=lambda relation: relation.oid != 3) for _ in range(2)]
    single = [framings[0].take() for message in messages if framings[0].add(*message)]
    together = []
    for begin in range(0, len(messages), step):
        part = received(messages[begin : begin + step])
        while framings[1].add_all(part):
            together.append(framings[1].take())
    assert [*together, framings[1].take()] == [*single, framings[0].take()]


def test_transactions_of_one_change_are_found() -> None:
    """Behind the first one, which the description of the table is in."""
    messages = list(stream([[1]] * 20))
    found = received(messages)
    framing = Framing(Place(1), rows_max=1000, takes=lambda _: True)
    found.at = 4
    singles = found.singles()
    assert singles is not None
    assert len(singles.rows) == 19
    found.at = 0
    assert not framing.add_all(found)
    assert framing.take().transactions == [(number, number + POSTGRES_EPOCH_MICROS) for number in range(20)]


def test_keepalives_are_no_messages_of_the_log() -> None:
    """Wherever among them; and what is neither is refused."""
    asking = b"k" + struct.pack(">QqB", 7, 0, 1)
    log = [b"w" + struct.pack(">QQq", 5, 5, 0) + row for row in (b"B1", b"I2")]
    parts = [log[0], asking, log[1], b"k" + struct.pack(">QqB", 9, 0, 0)]
    found = Messages(b"".join(parts), list(map(len, parts)))
    assert (found.keepalives, found.next(), found.next()) == ([(7, True), (9, False)], (b"B1", 5), (b"I2", 5))
    assert found.is_over
    for wrong in (b"x", asking[:-1], log[0][:25]):
        with pytest.raises(Fatal, match="cannot be read"):
            Messages(wrong, [len(wrong)])


def test_a_batch_ends_with_a_transaction_unless_that_is_far_too_large() -> None:
    """Of three rows at most, and twice as many inside of one transaction."""
    found = [[1, 1], [1, 1], [1] * 20, [1]]
    made = [
        (sum(len(group.messages) for group in batch.groups), batch.ends_transaction)
        for batch in batches(found, Place(1))
    ]
    assert made == [(4, True), *[(6, False)] * 3, (2, True), (1, True)]


def test_a_table_that_changes_begins_another_batch() -> None:
    """Rows before and after it have the columns of their time."""
    framing = Framing(Place(1), rows_max=100, takes=lambda _: True)
    messages = [*stream([[1, 1]])]
    assert not any(framing.add(*message) for message in messages)
    assert framing.add(described(1, "renamed"), 0)
    first = framing.take()
    assert [column.name for column in first.groups[0].relation.columns] == ["id"]
    assert first.ends_transaction
    for message, position in messages:
        if message[:1] != b"R":
            framing.add(message, position + 1000)
    assert [column.name for column in framing.take().groups[0].relation.columns] == ["renamed"]


def test_tables_that_are_not_wanted_only_move_the_place() -> None:
    """Their rows are not kept."""
    framing = Framing(Place(1), rows_max=100, takes=lambda _: False)
    for message, position in stream([[1, 1]]):
        framing.add(message, position)
    batch = framing.take()
    assert (batch.groups, batch.end) == ([], Place(1013))


def test_a_place_inside_a_transaction_is_kept_until_that_comes_again() -> None:
    """Whatever the server says of its log before; between transactions the place moves on."""
    inside = Framing(Place(5, 2), rows_max=100, takes=lambda _: True)
    inside.advance(900)
    assert inside.take().end == Place(5, 2)
    between = Framing(Place(5), rows_max=100, takes=lambda _: True)
    between.advance(900)
    assert between.take().end == Place(900)


def test_what_other_tables_have_delivered_ends_where_the_server_has_nothing_more() -> None:
    """Though the transaction it ended with comes no more, because its table left the publication."""
    start = Place(5, done=frozenset([1]), until=900)
    framing = Framing(start, rows_max=100, takes=lambda _: True)
    framing.advance(899)
    assert (framing.is_open, framing.place) == (True, start)
    framing.advance(900)
    assert (framing.is_open, framing.place) == (False, Place(900))


def test_a_change_of_an_unknown_table_is_refused() -> None:
    """The protocol describes each before its first change."""
    framing = Framing(Place(1), rows_max=100, takes=lambda _: True)
    with pytest.raises(Fatal, match="has not described"):
        framing.add(b"I\0\0\0\1N\0\0", 5)


def test_the_place_inside_a_transaction_that_debezium_stored_is_gone_on_from() -> None:
    """Its offset names the last change; the first transaction behind the last commit has it."""
    found = [[1], [1, 1, 1], [1]]
    begun = list(batches(found, Place(1), rows_max=1))
    place = read_place(
        {"lsn_proc": 1014, "messageType": "INSERT", "lsn_commit": 1012, "lsn": 1014, "txId": 5, "ts_usec": 1}
    )
    assert isinstance(place, Place)
    assert (place.commit, place.seen) == (1012, 1014)
    assert begun[0].end == Place(1012)
    assert delivered(pages(found, place)) == {1: [b"1.2", b"2.0"]}


def test_offsets_of_snapshots_are_read() -> None:
    """Ours; of Debezium's that was broken off nothing is taken, and what it finished is gone on from."""
    place = SnapshotPlace(7, "public.t", ('a"', "2"))
    assert read_place(place.offset()) == place
    assert read_place(SnapshotPlace(7).offset()) == SnapshotPlace(7)
    assert read_place({"lsn": 7, "txId": 1, "ts_usec": 2, "snapshot": True, "last_snapshot_record": False}) is None
    assert read_place({"lsn": 7, "txId": 1, "snapshot": True, "last_snapshot_record": True}) == Place(7)
    assert read_place({}) is None
    with pytest.raises(ValueError, match="lsn_commit"):
        read_place({"incrementing": 5})
    with pytest.raises(ValueError, match="position"):
        read_place({"lsn_commit": "0/17"})


@pytest.mark.parametrize(("processed", "left"), [({"lsn_events_processed": 1}, [b"b", b"c"]), ({}, [b"c"])])
def test_rows_of_one_copy_that_debezium_had_not_delivered_are_delivered(
    processed: dict[str, int], left: list[bytes]
) -> None:
    """They share a position; later versions of it count them, of earlier ones nothing else is known."""
    place = read_place({"lsn_proc": 20, "lsn_commit": 10, "lsn": 20, **processed})
    assert isinstance(place, Place)
    framing = Framing(place, rows_max=100, takes=lambda _: True)
    framing.add(b"B" + struct.pack(">QqI", 30, 1, 5), 20)
    framing.add(described(1), 0)
    for text, position in ((b"a", 20), (b"b", 20), (b"c", 21)):
        row = struct.pack(">H", 1) + b"t" + struct.pack(">I", 1) + text
        framing.add(b"I" + struct.pack(">I", 1) + b"N" + row, position)
    framing.add(b"C\0" + struct.pack(">QQq", 30, 40, 5), 40)
    (group,) = framing.take().groups
    assert [message[-1:] for message in group.messages] == left


def test_tables_that_were_dropped_are_forgotten_and_others_are_not() -> None:
    """One that gets the number of such a table again is described first; a table that is not wanted stays known."""
    framing = Framing(Place(1), rows_max=100, takes=lambda relation: relation.name != "t2")
    for message, position in stream([[1, 2, 3], [2, 3]]):
        framing.add(message, position)
    assert framing.oids == {1, 2, 3}
    assert [group.relation.oid for group in framing.take().groups] == [1, 3]
    framing.forget([1])
    assert framing.oids == {2, 3}
    again = [(message, position + 10_000) for message, position in stream([[1, 1]])]
    assert again[1][0] == described(1)
    for message, position in again:
        framing.add(message, position)
    assert [len(group.messages) for group in framing.take().groups] == [2]
