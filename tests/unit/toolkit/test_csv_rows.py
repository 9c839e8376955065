"""Rows of CSV: the good ones become objects, the bad ones stay as they came, and none keeps another from passing."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import Fatal, Page, Retriable
from fetchers.toolkit.csv_rows import csv_rows
from fetchers.toolkit.records import RecordSlices

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PIECES = st.lists(
    st.sampled_from([b"a", b"7", b",", b",", b'"', b'""', b"\n", b"\r\n", b"\xff", b"\xc3\xa9"]), max_size=30
)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b ", 'c"']), TEXTS, min_size=3), max_size=4))
def test_rows_become_objects_of_texts(rows: list[dict[str, str]]) -> None:
    """Whatever is in a field, line ends and quotes too, comes out as the same text."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, ["a", "b ", 'c"'])
    writer.writeheader()
    writer.writerows(rows)
    found = csv_rows(out.getvalue().encode())
    assert [json.loads(item) for item in found.records] == rows
    assert found.rejections == ()


@pytest.mark.parametrize(
    ("row", "reason", "expected"),
    [
        (b"2", "malformed_json", "line 3 of the CSV: expected 2 fields, as many as in the first row, and found 1"),
        (b"2,x,y", "malformed_json", "line 3 of the CSV: expected 2 fields, as many as in the first row, and found 3"),
        (b"2,caf\xe9", "invalid_utf8", "line 3 of the CSV: expected UTF-8"),
        (b"2,\xed\xa0\x80", "invalid_utf8", "line 3 of the CSV: expected UTF-8"),
        (b'2,"5" x', "malformed_json", "line 3 of the CSV: expected quotation marks only around whole fields, and"),
        (b'2,"x\r\ny",\xff', "malformed_json", "line 3 of the CSV: expected 2 fields"),
    ],
)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_bad_row_stays_as_it_came(row: bytes, reason: str, expected: str, line_end: bytes) -> None:
    """A row of another width, with other bytes than UTF-8 or stray quotation marks comes with its reason."""
    found = csv_rows(line_end.join([b"a,b", b"1,\xc3\xa9", row, b"3,z", b""]))
    assert found.records == ['{"a":"1","b":"é"}'.encode(), row, b'{"a":"3","b":"z"}']
    (rejection,) = found.rejections
    assert (rejection.index, rejection.reason) == (1, reason)
    assert rejection.message.startswith(expected)


@given(PIECES)
def test_every_byte_of_a_bad_row_is_there(pieces: list[bytes]) -> None:
    """Whatever the body, the rejected rows stand in it, in their order, and the others are JSON."""
    body = b"".join(pieces)
    try:
        found = csv_rows(b"a,b\n" + body)
    except (Retriable, Fatal):
        return
    rejected = {rejection.index for rejection in found.rejections}
    rest = body
    for index, record in enumerate(found.records):
        if index in rejected:
            assert record
            _before, same, rest = rest.partition(record)
            assert same == record
        else:
            assert set(json.loads(record)) == {"a", "b"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'a,b\n1,"x', Retriable),
        (b'a,b\n1\n2,"x\n3,4\n', Retriable),
        (b'"a"x,b\n1,2\n', Retriable),
        (b"a,a\n1,2\n", Fatal),
        (b'"a\n"x,b\n1,2\n', Retriable),
        (b"\xff,b\n1,2\n", Fatal),
    ],
)
def test_what_is_no_table(body: bytes, kind: type[Exception]) -> None:
    """An open quotation is a cut body; without names of columns there are no rows."""
    with pytest.raises(kind):
        csv_rows(body)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_stray_opening_mark_swallows_no_rows(line_end: str) -> None:
    """The rows up to the next mark are not handed over as one bad row: the task stops and says where it is."""
    rows = ["a,b", "1,x", '2,"foo', *(f"{number},y" for number in range(3, 9)), '9,"bar"', "10,z", ""]
    with pytest.raises(Fatal, match="lines 3 to 10 of the CSV"):
        csv_rows(line_end.join(rows).encode())


@pytest.mark.parametrize("body", [b"", b"\n\n", b"a,b\n", b"\xef\xbb\xbf"])
def test_a_table_without_rows(body: bytes) -> None:
    """No rows are no records."""
    assert csv_rows(body).records == []


def test_a_mark_and_blank_lines_are_nothing() -> None:
    """The byte order mark is no part of the first name, and blank lines are no rows."""
    assert csv_rows(b"\xef\xbb\xbfa\n\n1\n\r\n2").records == [b'{"a":"1"}', b'{"a":"2"}']


def test_a_field_may_be_long() -> None:
    """A document in a field is no reason to stop."""
    (row,) = csv_rows(b"a\n" + b"x" * 1_000_000).records
    assert len(row) == 1_000_000 + len('{"a":""}')


def test_slices_carry_their_rejections() -> None:
    """A fetcher hands both over in one page."""
    slices = RecordSlices.of_csv(b"a\n1\n2,3\n")
    page = Page(slices, offset={}, rejections=slices.rejections)
    assert list(page.values()) == [b'{"a":"1"}', b"2,3"]
    assert [rejection.index for rejection in page.rejections] == [1]
