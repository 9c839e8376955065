"""Answers with good and bad rows: which are new, and what is remembered of them."""

from __future__ import annotations

import pytest

from fetchers.http.answers import CutAnswer, RecordLayout, cut
from fetchers.http.bookmark import Bookmark
from fetchers.sdk import Fatal
from fetchers.toolkit import marks
from fetchers.toolkit.http.answer import HttpAnswer
from fetchers.toolkit.marks import Mark


def table(*rows: str, key: str | None = None) -> CutAnswer:
    """A CSV of ``id`` and ``t``."""
    layout = RecordLayout("csv", "", is_path_optional=False, fields=("t",), key=key)
    body = "\n".join(["id,t", *rows]).encode()
    return cut(HttpAnswer(200, {}, body, "http://h/"), layout)


def feed(*records: bytes, fields: tuple[str, ...] = ("t",), key: str | None = None) -> CutAnswer:
    """An answer of lines."""
    layout = RecordLayout("ndjson", "", is_path_optional=False, fields=fields, key=key)
    return cut(HttpAnswer(200, {}, b"\n".join(records), "http://h/"), layout)


def round_of(bookmark: Bookmark, *pages: CutAnswer) -> tuple[list[bytes], Bookmark]:
    """What a round through these pages hands over, and the bookmark after it."""
    found: list[bytes] = []
    highest = bookmark.highest
    for page in pages:
        news = page.news(bookmark.mark, skip=0)
        found += [page.records[position] for position in news]
        highest = page.raise_mark(highest, news)
    return found, bookmark.advanced(highest, None).closed()


@pytest.mark.parametrize("key", [None, "id"])
def test_positions_are_those_of_all_records(key: str | None) -> None:
    """Bad rows between good ones move neither their values nor their keys."""
    answer = table("bad", "1,5", "worse,5,5", "2,7", "3,7", key=key)
    assert answer.news(Mark(), skip=0) == [0, 1, 2, 3, 4]
    seen = answer.raise_mark(Mark(), [0, 1, 2, 3])
    assert seen.value == "7"
    assert answer.news(seen, skip=0) == [4]
    assert len(set(answer.identities())) == 5
    assert answer.news(Mark("6"), skip=1) == [2, 3, 4]


def test_bad_rows_alone_raise_no_value() -> None:
    """They are remembered by their bytes, and new once."""
    answer = table("bad", "worse")
    seen = answer.raise_mark(Mark("6"), answer.news(Mark("6"), skip=0))
    assert (seen.value, len(seen.unreadable)) == ("6", 2)
    assert answer.news(seen, skip=0) == []


def test_bad_rows_of_several_pages_come_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as can be remembered do not push each other out, round after round."""
    monkeypatch.setattr(marks, "KEYS_MAX", 4)
    pages = (table("a", "1,1", "b"), table("c", "d"))
    found, bookmark = round_of(Bookmark(), *pages)
    assert found == [b"a", b'{"id":"1","t":"1"}', b"b", b"c", b"d"]
    assert round_of(bookmark, *pages) == ([], bookmark)


def test_more_bad_rows_in_a_round_than_can_be_remembered_are_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those of one page would be forgotten for those of the next, and be dead letters again with every round."""
    monkeypatch.setattr(marks, "KEYS_MAX", 4)
    with pytest.raises(Fatal, match="more than 4 records of one round cannot be read"):
        round_of(Bookmark(), table("a", "b", "c"), table("d", "e"))


def test_bad_rows_that_the_source_has_no_longer_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgotten is what the round has not seen, the oldest first; a round without answer forgets nothing."""
    monkeypatch.setattr(marks, "KEYS_MAX", 4)
    _found, bookmark = round_of(Bookmark(), table("a", "b", "c"))
    assert round_of(bookmark) == ([], bookmark)
    found, bookmark = round_of(bookmark, table("b", "d"), table("e"))
    assert found == [b"d", b"e"]
    assert round_of(bookmark, table("b", "c"), table("d", "e")) == ([], bookmark)
    assert round_of(bookmark, table("a"))[0] == [b"a"]


@pytest.mark.parametrize(
    ("record", "reason", "field"),
    [
        (b'{"id": 1}', "missing_field", "t"),
        (b'{"id": 1, "t": null}', "missing_field", "t"),
        (b'{"t": 1}', "missing_field", "id"),
        (b"[]", "missing_field", "t"),
        (b'{"id": 1, "t": {}}', "wrong_type", "t"),
        (b'{"id": true, "t": 1}', "wrong_type", "id"),
        (b'{"id": 1, "t": NaN}', "malformed_json", "t"),
        (b'{"id": 1, "t": 1', "malformed_json", "t"),
    ],
)
def test_a_record_without_its_fields_is_rejected(record: bytes, reason: str, field: str) -> None:
    """It is new once, says which field it lacks, and its neighbours alone move the mark."""
    answer = feed(b'{"id": 0, "t": 5}', record, b'{"id": 2, "t": 7}', key="id")
    ((at, rejection),) = answer.rejections.items()
    assert (at, rejection.index, rejection.reason) == (1, 1, reason)
    assert rejection.message.startswith(f"{field}: expected")
    found, bookmark = round_of(Bookmark(Mark(6), Mark(6)), answer)
    assert found == [record, b'{"id": 2, "t": 7}']
    assert bookmark.mark.value == 7
    assert round_of(bookmark, answer) == ([], bookmark)


def test_one_of_several_fields_is_enough_to_lack() -> None:
    """Records are placed by all of their fields, or not at all."""
    answer = feed(b'{"a": 1}', b'{"a": 1, "b": 2}', b'{"b": 9}', fields=("a", "b"))
    messages = {at: rejection.message.split(":")[0] for at, rejection in answer.rejections.items()}
    assert messages == {0: "b", 2: "a"}
    assert answer.raise_mark(Mark(), [0, 1, 2]).value == (1, 2)
