"""Source offsets of files, and the signature that tells one file from another."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.file.mark import Mark, StoredOffset, mark_at, offset_after, stored_offset
from fetchers.sdk import Fatal


def reader(content: bytes) -> object:
    """``read_at`` of a file in memory."""
    return lambda bytes_max, position: content[position : position + bytes_max]


@pytest.mark.parametrize("position", [None, -1, "12", 1.5, True])
def test_an_offset_without_a_usable_position_is_refused(position: object) -> None:
    """Guessing would skip or repeat lines; a person must reset it."""
    with pytest.raises(Fatal, match="position"):
        stored_offset({"position": position})  # type: ignore[dict-item]


def test_an_offset_written_by_connect_is_taken() -> None:
    """``position`` alone is enough; a file shorter than it is not the file."""
    stored = stored_offset({"position": 3})
    assert stored == StoredOffset(3)
    assert stored.mark_in(reader(b"abc")) is not None  # type: ignore[arg-type]
    assert stored.mark_in(reader(b"ab")) is None  # type: ignore[arg-type]


def test_no_offset_is_no_offset() -> None:
    """A partition that was never read has none."""
    assert stored_offset({}) is None


@given(content=st.binary(max_size=900), cuts=st.lists(st.integers(min_value=0, max_value=900), max_size=5))
def test_a_mark_does_not_depend_on_how_the_file_was_read(content: bytes, cuts: list[int]) -> None:
    """Page by page or looked up at once, the mark at a position is the same."""
    edges = sorted({0, len(content), *(min(edge, len(content)) for edge in cuts)})
    mark = Mark()
    for begin, end in pairwise(edges):
        mark = mark.after(content[begin:end])
    assert mark == mark_at(reader(content), len(content))  # type: ignore[arg-type]
    assert mark.is_in(reader(content + b"more"))  # type: ignore[arg-type]


@given(content=st.binary(min_size=1, max_size=900), where=st.integers(min_value=0), near_end=st.booleans())
def test_a_change_at_either_edge_is_noticed(content: bytes, where: int, *, near_end: bool) -> None:
    """One changed byte among the first or last 256 makes it another file, by mark and by stored signature."""
    edge = min(256, len(content))
    index = len(content) - 1 - where % edge if near_end else where % edge
    changed = content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :]
    mark = Mark().after(content)
    stored = stored_offset(offset_after(mark, 7))
    assert stored is not None
    assert stored.mark_in(reader(content)) == mark  # type: ignore[arg-type]
    assert stored.mark_in(reader(changed)) is None  # type: ignore[arg-type]
    assert not mark.is_in(reader(changed))  # type: ignore[arg-type]
