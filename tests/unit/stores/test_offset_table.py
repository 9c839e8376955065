"""Equal source partitions are one, however their names are ordered in the keys and wherever these lie."""

from __future__ import annotations

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
            table.read(key, b'{"position":%d}' % at_ms, at_ms=at_ms)
        assert table.offsets("c") == {canonical_partition(PARTITION): {"position": 2}}


def test_of_two_keys_of_one_time_the_later_read_counts() -> None:
    """Records of one batch have one time, and stand in one partition of the topic in their order."""
    for keys in ((JAVAS, OURS), (OURS, JAVAS), (JAVAS, OURS, JAVAS)):
        table = OffsetTable()
        for position, key in enumerate(keys):
            table.read(key, b'{"position":%d}' % position, at_ms=7)
        assert table.offsets("c") == {canonical_partition(PARTITION): {"position": len(keys) - 1}}


def test_what_is_written_goes_under_the_key_that_is_there() -> None:
    """So that whoever wrote it first finds it again; a second key of the same partition is cleared away."""
    table = OffsetTable()
    assert table.write("c", [(PARTITION, {"p": 1})]) == [(OURS, b'{"p":1}')]
    table.read(JAVAS, b'{"p":1}', at_ms=1)
    assert table.write("c", [(PARTITION, {"p": 2})]) == [(JAVAS, b'{"p":2}')]
    table.read(OURS, b'{"p":3}', at_ms=2)
    assert table.write("c", [(PARTITION, {"p": 4})]) == [(JAVAS, None), (OURS, b'{"p":4}')]
    assert table.write("c", [(PARTITION, None)]) == [(JAVAS, None), (OURS, None)]


def test_forgetting_one_key_uncovers_the_other() -> None:
    """Each key is a record of its own."""
    table = OffsetTable()
    table.read(JAVAS, b'{"p":1}', at_ms=1)
    table.read(OURS, b'{"p":2}', at_ms=2)
    table.read(OURS, None, at_ms=3)
    assert table.offsets("c") == {canonical_partition(PARTITION): {"p": 1}}
    table.read(JAVAS, b"null", at_ms=4)
    assert table.offsets("c") == {}


@given(st.lists(st.tuples(st.sampled_from([JAVAS, OURS]), st.none() | st.integers(0, 9)), max_size=20))
def test_what_is_written_next_is_what_is_read_next(steps: Sequence[tuple[bytes, int | None]]) -> None:
    """After any history, the records of a write leave exactly its offset."""
    table = OffsetTable()
    for at_ms, (key, position) in enumerate(steps):
        table.read(key, None if position is None else b'{"p":%d}' % position, at_ms=at_ms)
    for offset, left in (({"p": 77}, {canonical_partition(PARTITION): {"p": 77}}), (None, {})):
        for key, value in table.write("c", [(PARTITION, offset)]):
            table.read(key, value, at_ms=len(steps))
        assert table.offsets("c") == left


@pytest.mark.parametrize(
    ("key", "value"), [(b"x", b"{}"), (b'["c"]', b"{}"), (b"[1,{}]", b"{}"), (b'["c",{}]', b"7"), (b'["c",{}]', b"{")]
)
def test_what_is_no_offset_is_refused(key: bytes, value: bytes) -> None:
    """One class of error for everything unreadable, and nothing is changed by it."""
    table = OffsetTable()
    table.read(b'["c",{}]', b'{"p":1}', at_ms=1)
    with pytest.raises(ValueError, match=r"."):
        table.read(key, value, at_ms=2)
    assert table.offsets("c") == {"{}": {"p": 1}}
