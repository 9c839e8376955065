"""Values that tell new from old: compared sanely, and nothing lost or repeated where they are equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import Fatal
from fetchers.toolkit import marks
from fetchers.toolkit.marks import Column, Mark, key_hash
from fetchers.toolkit.watermark import compare, instant_of, is_after


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [
        (9, 10),
        (9, 9.5),
        ("9", "10"),
        (9, "10"),
        ("-2", "-1.5"),
        (2**63, 2**63 + 1),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5Z"),
        ("2024-01-01T00:00:00.123456788Z", "2024-01-01T00:00:00.123456789Z"),
        ("2024-01-01T01:00:00+02:00", "2024-01-01T00:00:00Z"),
        ("2024-01-01", "2024-01-01 00:00:01"),
        ("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00+02:00", "0001-01-01T00:00:00+01:00"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-01:00"),
        ("abc", "abd"),
    ],
)
def test_order(smaller: str | float, greater: str | float) -> None:
    """Numbers by size, also as text; instants by time, to the last digit and in any zone; other text by letters."""
    assert (compare(smaller, greater), compare(greater, smaller)) == (-1, 1)
    assert is_after(greater, smaller)
    assert not is_after(smaller, greater)


@pytest.mark.parametrize(("one", "other"), [(1, "1.0"), ("2024-01-01T00:00:00Z", "2024-01-01T02:00:00.000+02:00")])
def test_equal(one: str | float, other: str | float) -> None:
    """Different texts may be one value."""
    assert compare(one, other) == 0


@pytest.mark.parametrize(("one", "other"), [(1, "x"), ("2024-01-01", 5), ("2024-13-01", "2024-12-01")])
def test_what_cannot_be_compared_is_fatal(one: str | float, other: str | float) -> None:
    """A number is neither before nor after a word."""
    with pytest.raises(Fatal, match="cannot be compared"):
        compare(one, other)


def test_instants() -> None:
    """Only ISO 8601 text is taken for a time."""
    found = instant_of("2024-01-01T02:00:00.9+02:00")
    assert found is not None
    assert found.isoformat() == "2024-01-01T00:00:00+00:00"
    assert instant_of("0001-01-01T00:00:00+01:00") is not None
    assert [instant_of(value) for value in (None, 5, "5", "x")] == [None] * 4


def _pass(mark: Mark, highest: Mark, records: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], Mark]:
    """What of these (value, key) is new, and the mark that follows."""
    column = Column.of([value for value, _key in records])

    def key_of(position: int) -> str:
        return key_hash(str(records[position][1]).encode())

    news = mark.new_among(column, key_of)
    return [records[position] for position in news], highest.raised_by(column, news, key_of)


@given(st.lists(st.lists(st.integers(0, 4), max_size=6), max_size=6), st.randoms())
def test_every_record_once_whatever_the_order(arrivals: list[list[int]], random: object) -> None:
    """A source that grows, its records never older than the newest before: each comes once over all polls.

    Several share a value, and each poll sees all records so far in another order.
    """
    source: list[tuple[int, int]] = []
    mark, delivered, floor = Mark(), [], 0
    for steps in arrivals:
        for step in steps:
            source.append((floor + step, len(source)))
        shuffled = list(source)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        news, mark = _pass(mark, mark, shuffled)
        delivered += news
        floor = max((value for value, _key in source), default=0)
    assert sorted(delivered) == sorted(source)


def test_begins_at_its_initial_value_included() -> None:
    """A mark without keys counts nothing of its own value as seen."""
    news, mark = _pass(Mark(5), Mark(5), [(4, 1), (5, 2), (6, 3)])
    assert news == [(5, 2), (6, 3)]
    assert _pass(mark, mark, [(6, 3), (6, 4)])[0] == [(6, 4)]


def test_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When too many records share one value, the task says so instead of storing an endless offset."""
    monkeypatch.setattr(marks, "KEYS_MAX", 3)
    with pytest.raises(Fatal, match="finer field"):
        _pass(Mark(), Mark(), [(1, key) for key in range(4)])


def test_what_cannot_be_read_is_remembered_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys without a value outlast the value; of too many the oldest that the source no longer has are forgotten."""
    monkeypatch.setattr(marks, "KEYS_MAX", 3)
    mark = Mark(1).remembering(["a", "b"])
    assert mark.remembering(["b"]) is mark
    _news, mark = _pass(mark, mark, [(2, 1)])
    assert (mark.value, mark.unreadable) == (2, ("a", "b"))
    assert mark.remembering(["c", "a", "d"]).unreadable == ("a", "c", "d")


def test_a_round_sees_no_more_than_can_be_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen twice counts once; more than the limit is said, over all answers of the round."""
    monkeypatch.setattr(marks, "KEYS_MAX", 3)
    mark = Mark(1).seeing(["a", "b", "a"]).seeing(["c"])
    assert mark.seeing(["b"]) is mark
    assert mark.unreadable == ("a", "b", "c")
    with pytest.raises(Fatal, match="cannot be read"):
        mark.seeing(["d"])


def test_several_fields_are_compared_one_after_the_other() -> None:
    """The first field counts most, each is compared by its own kind, and a mark knows its own record."""
    rows = [("2024-01-01T00:00:00Z", "9"), ("2024-01-01T01:00:00+01:00", "10"), ("2023-12-31", "11")]
    column = Column.of(rows)
    news = Mark(rows[0], frozenset({"0"})).new_among(column, str)
    assert news == [1]
    assert Mark().raised_by(column, [0, 1, 2], str) == Mark(rows[1], frozenset({"1"}))
    with pytest.raises(Fatal, match="cannot be compared"):
        Mark((1, 2)).new_among(column, str)
    with pytest.raises(Fatal, match="cannot be compared"):
        Mark("2024-01-01T00:00:00Z").new_among(column, str)


def test_mixed_kinds_are_fatal() -> None:
    """A page with numbers and words in its offset field cannot be put into order."""
    with pytest.raises(Fatal, match="cannot be compared"):
        Column.of([1, "x"])
    with pytest.raises(Fatal, match="cannot be compared"):
        Mark("x").new_among(Column.of([1]), str)
