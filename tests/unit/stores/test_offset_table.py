"""Equal source partitions are one, however their names are ordered in the keys and wherever these lie."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.stores.offset_table import OffsetTable, canonical_partition

JAVAS, OURS = b'["c",{"b":1,"a":2}]', b'["c",{"a":2,"b":1}]'
PARTITION = {"a": 2, "b": 1}


def test_the_later_of_two_keys_of_one_partition_counts() -> None:
    """Keys may lie in different partitions of the topic, so they come in any order: the time of writing decides."""
    for records in ([(JAVAS, 1), (OURS, 2)], [(OURS, 2), (JAVAS, 1)]):
        table = OffsetTable()
        for key, at_ms in records:
            table.read(key, b'{"position":%d}' % at_ms, at_ms=at_ms, topic_partition=0)
        assert table.offsets("c") == {canonical_partition(PARTITION): {"position": 2}}


def test_of_two_keys_of_one_time_the_later_read_counts() -> None:
    """Records of one batch have one time, and stand in one partition of the topic in their order."""
    for keys in ((JAVAS, OURS), (OURS, JAVAS), (JAVAS, OURS, JAVAS)):
        table = OffsetTable()
        for position, key in enumerate(keys):
            table.read(key, b'{"position":%d}' % position, at_ms=7, topic_partition=0)
        assert table.offsets("c") == {canonical_partition(PARTITION): {"position": len(keys) - 1}}


def test_what_is_written_goes_under_the_key_that_is_there() -> None:
    """So that whoever wrote it first finds it again; a second key of the same partition is cleared away."""
    table = OffsetTable()
    assert table.write("c", [(PARTITION, {"p": 1})]) == [((OURS, None), b'{"p":1}')]
    table.read(JAVAS, b'{"p":1}', at_ms=1, topic_partition=0)
    assert table.write("c", [(PARTITION, {"p": 2})]) == [((JAVAS, 0), b'{"p":2}')]
    table.read(OURS, b'{"p":3}', at_ms=2, topic_partition=0)
    assert table.write("c", [(PARTITION, {"p": 4})]) == [((JAVAS, 0), None), ((OURS, 0), b'{"p":4}')]
    assert table.write("c", [(PARTITION, None)]) == [((JAVAS, 0), None), ((OURS, 0), None)]


def test_forgetting_one_key_uncovers_the_other() -> None:
    """Each key is a record of its own."""
    table = OffsetTable()
    table.read(JAVAS, b'{"p":1}', at_ms=1, topic_partition=0)
    table.read(OURS, b'{"p":2}', at_ms=2, topic_partition=0)
    table.read(OURS, None, at_ms=3, topic_partition=0)
    assert table.offsets("c") == {canonical_partition(PARTITION): {"p": 1}}
    table.read(JAVAS, b"null", at_ms=4, topic_partition=0)
    assert table.offsets("c") == {}


@pytest.mark.parametrize("partitions", [(0, 3), (3, 0)])
def test_of_one_key_in_two_partitions_of_the_topic_the_later_counts(partitions: tuple[int, int]) -> None:
    """A topic that was given partitions: the older record stays where the key was, and may be read last."""
    written = {0: (b'{"p":1}', 1000), 3: (b'{"p":2}', 2000)}
    table = OffsetTable()
    for number in partitions:
        value, at_ms = written[number]
        table.read(OURS, value, at_ms=at_ms, topic_partition=number)
    assert table.offsets("c") == {canonical_partition(PARTITION): {"p": 2}}
    assert table.write("c", [(PARTITION, {"p": 3})]) == [((OURS, 0), None), ((OURS, 3), b'{"p":3}')]


def test_what_is_forgotten_is_forgotten_in_every_partition_of_the_topic() -> None:
    """A tombstone clears up its own partition; by itself it would let the older record of another come back."""
    table = OffsetTable()
    for number in (0, 3):
        table.read(OURS, b'{"p":1}', at_ms=number, topic_partition=number)
    table.read(OURS, None, at_ms=9, topic_partition=3)
    assert table.offsets("c") == {canonical_partition(PARTITION): {"p": 1}}, "as Kafka Connect may leave it"
    table.read(OURS, b'{"p":2}', at_ms=10, topic_partition=3)
    assert table.write("c", [(PARTITION, None)]) == [((OURS, 0), None), ((OURS, 3), None)]


def test_an_offset_stays_in_its_partition_of_the_topic() -> None:
    """Whatever partitions are added, no second place comes to be."""
    table = OffsetTable()
    table.read(OURS, b'{"p":1}', at_ms=1, topic_partition=7)
    assert table.write("c", [(PARTITION, {"p": 2}), ({"x": 1}, {"p": 1})]) == [
        ((OURS, 7), b'{"p":2}'),
        ((b'["c",{"x":1}]', None), b'{"p":1}'),
    ]


STEPS = st.tuples(st.sampled_from([JAVAS, OURS]), st.integers(0, 2), st.none() | st.integers(0, 9))


@given(st.lists(STEPS, max_size=20), st.integers(0, 2))
def test_what_is_written_next_is_what_is_read_next(steps: Sequence[tuple[bytes, int, int | None]], home: int) -> None:
    """After any history, the records of a write leave exactly its offset, in whatever order partitions are read."""
    log = [
        (key, None if position is None else b'{"p":%d}' % position, number, at_ms)
        for at_ms, (key, number, position) in enumerate(steps)
    ]
    for offset, left in (({"p": 77}, {canonical_partition(PARTITION): {"p": 77}}), (None, {})):
        for (key, number), value in table_of(log).write("c", [(PARTITION, offset)]):
            log.append((key, value, home if number is None else number, len(log)))
        for order in itertools.permutations(range(3)):
            read = [record for number in order for record in log if record[2] == number]
            assert table_of(read).offsets("c") == left


def table_of(log: Sequence[tuple[bytes, bytes | None, int, int]]) -> OffsetTable:
    """Of key, value, partition of the topic and time of each record, read in this order."""
    table = OffsetTable()
    for key, value, number, at_ms in log:
        table.read(key, value, at_ms=at_ms, topic_partition=number)
    return table


@pytest.mark.parametrize(
    ("key", "value"), [(b"x", b"{}"), (b'["c"]', b"{}"), (b"[1,{}]", b"{}"), (b'["c",{}]', b"7"), (b'["c",{}]', b"{")]
)
def test_what_is_no_offset_is_refused(key: bytes, value: bytes) -> None:
    """One class of error for everything unreadable, and nothing is changed by it."""
    table = OffsetTable()
    table.read(b'["c",{}]', b'{"p":1}', at_ms=1, topic_partition=0)
    with pytest.raises(ValueError, match=r"."):
        table.read(key, value, at_ms=2, topic_partition=0)
    assert table.offsets("c") == {"{}": {"p": 1}}
