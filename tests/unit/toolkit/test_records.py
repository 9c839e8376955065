"""Records are slices of what came in; nothing is lost, changed or glued together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import Fatal, Page, Retriable
from fetchers.toolkit import slicing
from fetchers.toolkit.fields import FieldReader, raw_field
from fetchers.toolkit.records import RecordSlices

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("body", "path", "records"),
    [
        (b"[]", "", []),
        (b" [1, 2 ,3] \n", "", [b"1", b"2", b"3"]),
        (b'{"a": 1}', "", [b'{"a": 1}']),
        (b'{"a": {"b": [{"c" : 1}]}}', "a.b", [b'{"c" : 1}']),
        (b'{"a": null}', "a", []),
        (b"\xef\xbb\xbf[7]", "", [b"7"]),
        (b'{"a": [1], "a": [2]}', "a", [b"2"]),
        (b'{"a": {"b": [1]}, "a": {"b": {"c": 2}}}', "a.b", [b'{"c": 2}']),
        (b'{"a": [1], "a": null}', "a", []),
        (b'{"\\u0061": [5], "inner": [6]}', "a", [b"5"]),
        (b'{"q\\"x": [3]}', 'q"x', [b"3"]),
        (b'{"": {"\xc3\xa9": [4]}}', ".\u00e9", [b"4"]),
        (b'{"\xff": 1, "a": [1]}', "a", [b"1"]),
    ],
)
def test_finds_the_records(body: bytes, path: str, records: list[bytes]) -> None:
    """An array gives its elements, an object itself, null nothing, and of a name that comes twice the last counts."""
    assert list(RecordSlices.of_json(body, path)) == records


@pytest.mark.parametrize(
    "record",
    [
        b'{"a":1,"a":2}',
        b'{"n": 12345678901234567890123.4500}',
        b'{"t": "\\u00e9 \\ud83d\\ude00 \xe2\x80\xa8"}',
        b'{"t": "\xff"}',
        b'{"n": 1e400, "m": -0}',
        b'{"t": "\\ud800"}',
        b'{"n": NaN}',
        b"{'n': 1}",
    ],
)
def test_records_are_not_touched(record: bytes) -> None:
    """Duplicate keys, digits, escapes and even what is no JSON pass as they are: the conversion judges them."""
    body = b'{"items": [{"id": 1}, ' + record + b', {"id": 2}], "next": null}'
    assert list(RecordSlices.of_json(body, "items")) == [b'{"id": 1}', record, b'{"id": 2}']


DEEP = b'{"id": 1, "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"


@pytest.mark.parametrize(
    ("body", "path", "records"),
    [
        (b'{"a": {"items": [{"id": 0}, ' + DEEP + b"]}}", "a.items", [b'{"id": 0}', DEEP]),
        (b'{"meta": ' + DEEP + b', "items": [{"id": 0}]}', "items", [b'{"id": 0}']),
        (DEEP, "", [DEEP]),
    ],
    ids=["a record", "beside the records", "the only record"],
)
def test_deep_nesting_stops_nobody(body: bytes, path: str, records: list[bytes]) -> None:
    """What is nested too deeply to be parsed is still cut from its neighbours; the conversion judges it alone."""
    assert list(RecordSlices.of_json(body, path)) == records


def test_fields_beside_deep_nesting() -> None:
    """Fields of a record are read whatever depth its others have; a deep value is no text and no number."""
    assert FieldReader(["id"]).of_each([DEEP, b'{"id": 2}']) == [(1,), (2,)]
    assert FieldReader(["id", "x"]).of_each([DEEP]) == [None]
    assert raw_field(b'{"next": "c", "items": [' + DEEP + b"]}", "next") == b'"c"'


@given(st.lists(VALUES, max_size=5), st.sampled_from([None, 0, 1, 7]), st.booleans())
def test_slices_give_back_the_values(values: list[Any], indent: int | None, ascii_only: bool) -> None:  # noqa: FBT001
    """Cut by the fast way or by the slow, the pieces parse to the elements of the array."""
    body = json.dumps({"rest": [values], "items": values}, indent=indent, ensure_ascii=ascii_only).encode()
    fast = list(RecordSlices.of_json(body, "items"))
    slow = slicing.elements(slicing.members(body)["items"])
    assert [json.loads(piece) for piece in fast] == values
    assert slow == fast


@given(st.lists(VALUES, min_size=1, max_size=4), st.data())
def test_a_cut_answer_is_no_answer(values: list[Any], data: st.DataObject) -> None:
    """Every proper beginning of an answer is tried again, never taken for fewer records."""
    body = json.dumps({"items": values}).encode()
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(Retriable):
        RecordSlices.of_json(body[:end], "items")


@pytest.mark.parametrize("body", [b"<html></html>", b"[1,,2]", b"[1}", b'{"a" 1}', b"[1] [2]", b'["x]', b"[1,]"])
def test_what_is_no_json_is_tried_again(body: bytes) -> None:
    """A page of a proxy or a scrambled body may be gone the next time."""
    with pytest.raises(Retriable, match="no JSON"):
        RecordSlices.of_json(body)


@pytest.mark.parametrize(
    ("body", "path"), [(b"{}", "a"), (b'{"a": {}}', "a.b"), (b'{"a": [1]}', "a.b"), (b'{"a": 5}', "a"), (b'"x"', "")]
)
def test_a_path_to_nowhere_is_fatal(body: bytes, path: str) -> None:
    """An answer without the configured path is a mistake of the config, not an empty answer."""
    with pytest.raises(Fatal):
        RecordSlices.of_json(body, path)


def test_newer_than() -> None:
    """Only elements with a greater field come, and ``highest`` is the greatest seen."""
    body = b'{"f": [{"p": {"u": 5}}, {"p": {"u": 9}}, {"p": {"u": 7}}]}'
    slices = RecordSlices.of_json(body, "f", newer_than=("p.u", 5))
    assert list(slices) == [b'{"p": {"u": 9}}', b'{"p": {"u": 7}}']
    assert slices.highest == 9
    again = RecordSlices.of_json(body, "f", newer_than=("p.u", slices.highest))
    assert (list(again), again.highest) == ([], 9)


def test_a_record_without_the_field_is_named() -> None:
    """A record that cannot be told new from old is not passed again and again, and not dropped: the task stops."""
    with pytest.raises(Fatal, match=r"record 1 .*'u'"):
        RecordSlices.of_json(b'[{"u": 1}, {"v": 2}]', newer_than=("u", None))


def test_ndjson_splits_on_the_line_feed_only() -> None:
    """U+2028, U+0085, a vertical tab and a lone carriage return stay inside their record; blank lines are none."""
    first, second = '{"t":"a\u2028b\u2029c\x85d"}'.encode(), b'{"t":"\x0b\x0c\r"}'
    assert list(RecordSlices.of_ndjson(first + b"\r\n\n  \n" + second)) == [first, second]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    """The mark is taken away at the very beginning of the body, and nowhere else."""
    mark = b"\xef\xbb\xbf"
    assert list(RecordSlices.of_ndjson(mark + b"1\n" + mark + b"2\n")) == [b"1", mark + b"2"]
    assert list(RecordSlices.of_ndjson(mark)) == []


def test_slices_make_a_page() -> None:
    """Slices can be handed over as they are."""
    page = Page(RecordSlices.of_json(b"[1, 2]"), offset={})
    assert list(page.values()) == [b"1", b"2"]


def test_fields_of_odd_records() -> None:
    """A bad part of a record does not hide its other fields; a field of a wrong type is none."""
    reader = FieldReader(["id", "p.t", "p.$n"])
    records = [b'{"id": 1, "p": {"t": "x", "$n": 2.5}}', b'{"p": {"x": NaN, "t": "y"}, "id": 3}', b"[]", b'{"id": [1]}']
    assert reader.of_each(records) == [(1, "x", 2.5), (3, "y", None), (None, None, None), None]


def test_a_path_cannot_be_value_and_object() -> None:
    """Asking for ``a`` and ``a.b`` at once is a mistake."""
    with pytest.raises(Fatal, match="'a'"):
        FieldReader(["a", "a.b"])
