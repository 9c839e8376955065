"""Progress of tables that are read beside the log: what is stored, found, asked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fetchers.sdk import Page, Rejection
from fetchers.toolkit.table_reading import Progress, filtered, is_among, order_text, texts_behind


def test_progress_is_read_as_it_was_stored() -> None:
    """Names and keys with any letters; what is none is refused."""
    progress = Progress(frozenset({"a.ü", 'b."x,"'}), ("c.d", "a.ü"), ("1", "\n,é"), "7")
    assert Progress.read(progress.offset()) == progress
    assert Progress.read({}) is None
    with pytest.raises(ValueError, match="tables_read"):
        Progress.read({"tables_waiting": "public.orders"})


def test_tables_that_are_found_wait_behind_the_one_that_is_read() -> None:
    """A table is found once, and a table that is over leaves the key of another alone."""
    progress = Progress(frozenset({"a"}), ("d",), ("5",)).with_found(["c", "a", "b", "d"])
    assert (progress.waiting, progress.keys) == (("d", "b", "c"), ("5",))
    assert progress.after("b", None) == Progress(frozenset({"a", "b"}), ("d", "c"), ("5",))
    assert progress.after("d", None) == Progress(frozenset({"a", "d"}), ("b", "c"))
    assert progress.after("c", ["9"]) == Progress(frozenset({"a"}), ("c", "d", "b"), ("9",))


def test_a_request_is_heard_once_and_ended_by_the_next() -> None:
    """Tables that nobody has read yet stay."""
    first = Progress(frozenset({"a", "b"}), ("c",), ("5",)).with_request("1", ["a", "c"])
    assert (first.waiting, first.keys) == (("c", "a"), ("5",))
    assert first.with_request("1", ["b"]) is first
    reading = first.after("c", None).after("a", ["3"])
    assert reading.with_request("2", ["a"]) == Progress(frozenset({"a", "b", "c"}), ("a",), (), "2")
    assert reading.with_request("", ["a"]) == Progress(frozenset({"a", "b", "c"}), (), (), "")


def test_keys_are_found_among_others_whatever_their_types() -> None:
    """Several columns, bytes, decimals, lists; a null stands for all (TRUNCATE)."""
    kind = pa.struct([("n", pa.decimal128(5, 2)), ("b", pa.binary()), ("l", pa.list_(pa.int64()))])
    keys = pa.array([{"n": 1, "b": b"x", "l": [1]}, {"n": 2, "b": b"x", "l": [1]}, {"n": 1, "b": b"y", "l": []}], kind)
    assert is_among(keys, keys.take(pa.array([1, 1]))).tolist() == [False, True, False]
    assert is_among(keys, keys.slice(0, 0)).tolist() == [False] * 3
    assert is_among(keys, pa.nulls(1, kind)).tolist() == [True] * 3


def test_keys_that_are_no_number_or_zero_are_one_whatever_their_bits() -> None:
    """A server sends the bits that it has computed; its log has texts."""
    nan = float("nan")
    keys = pa.StructArray.from_arrays([pa.array([-nan, 0.0, -0.0, 1.0])], names=["k"])
    others = pa.StructArray.from_arrays([pa.array([nan, -0.0])], names=["k"])
    assert is_among(keys, others).tolist() == [True, True, True, False]


def test_a_place_is_one_of_its_keys_order() -> None:
    """One of another order or of other columns is none; an earlier release has said no order."""
    order, other = order_text([("k", "int4")]), order_text([("k", "text")])
    assert texts_behind(("1", order), order, columns=1) == ("1",)
    assert texts_behind(("1",), order, columns=1) == ("1",)
    assert texts_behind(("1", other), order, columns=1) == ()
    assert texts_behind(("1", other), order, columns=2) == ()
    assert texts_behind(("1", "2"), order, columns=1) == ()
    assert texts_behind((), order, columns=1) == ()
    assert texts_behind(("1", order), "", columns=0) == ()


def test_rejections_stay_with_their_records() -> None:
    """Of records that are left out none stays."""
    page = Page([b"0", b"1", b"2"], {}, rejections=(Rejection(0, "r", "m"), Rejection(2, "r", "m")))
    made = filtered(page, np.array([False, True, True]))
    assert (list(made.values()), [one.index for one in made.rejections]) == ([b"1", b"2"], [1])


def test_another_table_of_a_name_is_read_from_its_beginning() -> None:
    """What is known of it for the first time is believed; what is the same goes on."""
    first = Progress(frozenset({"a", "b", "gone"}), ("c",), ("5",))
    known = first.of(["a", "b", "c"], {"a": "1", "b": "2", "c": "3"})
    assert known == Progress(frozenset({"a", "b"}), ("c",), ("5",), made={"a": "1", "b": "2", "c": "3"})
    assert known.of(["a", "b", "c"], known.made) is known
    assert Progress.read(known.offset()) == known
    other = known.of(["a", "b", "c"], {"a": "1", "b": "9", "c": "8"})
    assert (other.done, other.waiting, other.keys) == (frozenset({"a"}), ("c",), ())
    assert other.with_found(["a", "b", "c"]).waiting == ("c", "b")
    assert Progress(frozenset({"a"}), (), ("5",)).of(["a"], {}).done == {"a"}
