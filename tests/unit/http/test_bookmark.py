"""The stored form of a bookmark: flat, and the same again when it is read back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.http.bookmark import Bookmark, told
from fetchers.sdk import Fatal
from fetchers.toolkit.marks import Mark, RecordOrder

KEYS = st.text("0123456789abcdef", min_size=16, max_size=16)
SCALARS = st.integers() | st.text(min_size=1, max_size=5)
NAMES = st.sampled_from([("updated",), ("updated", "id")])


def marks(names: tuple[str, ...]) -> st.SearchStrategy[Mark]:
    """Marks of these fields, also those that have seen nothing but what cannot be read."""
    values = SCALARS if len(names) == 1 else st.tuples(*(SCALARS for _ in names))
    known = st.builds(Mark, values, st.frozensets(KEYS, max_size=2))
    unreadable = st.lists(KEYS, max_size=3, unique=True).map(tuple)
    return st.builds(lambda mark, keys: Mark(mark.value, mark.keys, keys), known | st.just(Mark()), unreadable)


@given(NAMES, st.data(), st.none() | st.integers() | st.text(max_size=4), st.integers(0, 3))
def test_is_the_same_when_it_is_read_back(
    names: tuple[str, ...], data: st.DataObject, place: str | int | None, skip: int
) -> None:
    """What a round goes on with after a restart is what it had, through JSON and without nesting."""
    mark = data.draw(marks(names))
    seen = data.draw(marks(names))
    highest = replace(mark if seen.value is None else seen, unreadable=seen.unreadable)
    order = data.draw(st.sampled_from(RecordOrder))
    down = replace(data.draw(marks(names)), unreadable=(), order=RecordOrder.DOWN)
    lowest = down if order is RecordOrder.DOWN else Mark(order=RecordOrder.DOWN)
    last = data.draw(st.none() | KEYS)
    bookmark = Bookmark(mark, highest, place, skip, last, order, lowest, 3 if order else 0, is_again=bool(order))
    stored = bookmark.offset(names)
    assert all(value is None or isinstance(value, str | int) for value in stored.values())
    assert Bookmark.of_offset(json.loads(json.dumps(stored)), names, initial=None) == bookmark


def test_one_field_is_stored_under_its_name() -> None:
    """What was stored by one field stays readable: names of the keys are a promise."""
    found = Bookmark(Mark(5, frozenset({"a"})), Mark(7, frozenset({"b"})), "next", 2).offset(("updated",))
    assert found == {
        "updated": 5,
        "read.keys": "a",
        "round.highest": 7,
        "round.keys": "b",
        "page.next": "next",
        "page.skip": 2,
    }


def test_several_fields_are_stored_side_by_side() -> None:
    """Flat, as Connect wants it."""
    found = Bookmark(Mark((5, "x"), frozenset({"a"})), Mark((7, "y"), frozenset({"b"}))).offset(("updated", "id"))
    assert found == {
        "updated": 5,
        "id": "x",
        "read.keys": "a",
        "round.highest.updated": 7,
        "round.highest.id": "y",
        "round.keys": "b",
    }


def test_dead_letters_are_told_no_keys() -> None:
    """A letter says where its page ends, not which of ten thousand other records were read."""
    mark, highest = Mark(5, frozenset({"a"}), ("b",)), Mark(7, frozenset({"c"}), ("d",))
    found = Bookmark(mark, highest, "next", 2).offset(("updated",))
    assert told(found) == {"updated": 5, "round.highest": 7, "page.next": "next", "page.skip": 2}


def test_half_an_offset_is_said() -> None:
    """A field more in the config does not silently read everything again: the stored offset lacks its value."""
    with pytest.raises(Fatal, match="'id'"):
        Bookmark.of_offset({"updated": 5, "read.keys": ""}, ("updated", "id"), initial=None)


def test_an_offset_that_was_taken_away_is_the_beginning() -> None:
    """A reset source begins with what is configured."""
    assert Bookmark.of_offset({}, ("updated", "id"), initial=("0", "1")) == Bookmark(Mark(("0", "1")), Mark(("0", "1")))
