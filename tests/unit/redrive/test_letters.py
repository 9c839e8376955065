"""What is seen of dead letters: which are open, why, and where in their payloads."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import Page
from service.domain.ids import TaskId
from service.pipeline.dead_letters import TRIES_HEADER, DeadLetter, PageLetters, dead_letter_headers
from service.redrive.letters import GROUPS_MAX, SAMPLES_MAX, SHOWN_CHARACTERS_MAX, Letter, LetterSummary, offending
from service.redrive.source import tries_of
from tests.unit.redrive.test_source import letter, pages


def read(message: str = "age: expected an integer", value: bytes | None = b"{}", *, is_open: bool = True) -> Letter:
    """A letter as it is read."""
    record = letter(3, reason="wrong_type")
    told = DeadLetter(None, value, "VALUE_CONVERTER", "wrong_type", message, "t", "{}", '{"position":1}')
    record.headers = tuple(dead_letter_headers(told, TaskId("c", 0), class_name="x"))
    record.value = value
    return Letter.of(record, is_open=is_open)


@pytest.mark.parametrize(
    ("payload", "path", "shown"),
    [
        (b'{"age": "21"}', "age", 'age: "21"'),
        (b'{"a": {"b.c": [{"d": 1.50}]}}', "a.b.c[0].d", "a.b.c[0].d: 1.5"),
        (b'{"a": {"b": 1}, "a.b": 2}', "a.b", "a.b: 2"),
        (b'{"age": 1}', "name", 'no name in {"age": 1}'),
        (b'{"items": [1]}', "items[7]", 'no items[7] in {"items": [1]}'),
        (b'{"age": 1}', "", '{"age": 1}'),
        (b'{"a": 1,}', "", 'character 8: {"a": 1,⟨here⟩}'),
        (b'{"a": "\xff"}', "", 'byte 7: b\'{"a": "\\xff"}\''),
        (b"", "", "character 0: ⟨here⟩"),
        (None, "", "null"),
    ],
)
def test_the_place_that_is_at_fault_is_shown(payload: bytes | None, path: str, shown: str) -> None:
    """The value at the path, or where the text breaks."""
    assert offending(payload, path) == shown


@given(st.one_of(st.none(), st.binary(max_size=600), st.text(max_size=600).map(str.encode)), st.text(max_size=30))
def test_every_payload_is_shown_in_one_short_line(payload: bytes | None, path: str) -> None:
    """Whatever it is: letters are letters because something is wrong with them."""
    assert len(offending(payload, path)) <= 4 * SHOWN_CHARACTERS_MAX + len(path) * 2


def test_a_payload_of_any_depth_is_shown() -> None:
    """Nesting that no reader takes is no traceback."""
    assert offending(b"[" * 100_000, "")


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("age: expected an integer", "age"),
        ("a.b[2].c: expected text", "a.b[2].c"),
        ("record: expected an object", ""),
        ("the payload is cut off", ""),
        ("", ""),
    ],
)
def test_the_field_is_that_of_the_message(message: str, name: str) -> None:
    """What a message says of no field is about the record."""
    assert read(message).field == name


def test_a_rule_is_named_and_the_record_is_shown() -> None:
    """A rule is about no field in particular."""
    letter = replace(read("rule some: expected to be true", b'{"pieces": -3}'), reason="rule_failed")
    assert (letter.field, letter.offending) == ("rule some", '{"pieces": -3}')


def test_a_letter_that_fails_again_counts_its_tries() -> None:
    """One, two, three; the first is not written."""
    assert TRIES_HEADER not in {name for name, _ in letter(0).headers}
    told = letter(0)
    for tries in (2, 3):
        (page,) = pages(told)
        again = PageLetters.of(page, topic="t", partition={}).letter(
            0, {"key": None, "value": b"", "stage": "s", "reason": "r", "message": "m"}
        )
        assert again.tries == tries
        told.headers = tuple(dead_letter_headers(again, TaskId("c", 0), class_name="x"))
        assert tries_of(told.headers) == tries


@pytest.mark.parametrize("told", [None, b"", b"-1", b"two", b"9" * 20])
def test_tries_that_are_no_number_are_one(told: bytes | None) -> None:
    """Anybody may write to a topic."""
    assert tries_of(((TRIES_HEADER, told),)) == 1


def test_a_page_has_as_many_tries_as_payloads() -> None:
    """A source that miscounts is told at once."""
    with pytest.raises(ValueError, match="2 payloads and 1 tries"):
        Page([b"", b""], offset={}, tries=[1])


def test_a_summary_counts_open_letters_by_reason_and_field() -> None:
    """The largest group first, with its last letters; those that were redriven are only counted."""
    summary = LetterSummary()
    for _ in range(5):
        summary.add(read("age: expected an integer", b'{"age": "x"}'))
    summary.add(read("name: expected text", b'{"name": 1}'))
    summary.add(read("name: expected text", b'{"name": 2}', is_open=False))
    assert (summary.open, summary.redriven) == (6, 1)
    first, second = summary.by_count()
    assert (first[0], first[1], first[2].count, len(first[2].samples)) == ("wrong_type", "age", 5, SAMPLES_MAX)
    assert (second[1], second[2].count) == ("name", 1)


def test_a_summary_is_bounded() -> None:
    """The keys of a map are fields without end."""
    summary = LetterSummary()
    for number in range(GROUPS_MAX + 50):
        summary.add(read(f"prices.{number}: expected a number"))
    assert len(summary.groups) == GROUPS_MAX + 1
    assert sum(group.count for group in summary.groups.values()) == GROUPS_MAX + 50


@given(st.binary(max_size=50))
def test_an_export_loses_nothing(value: bytes) -> None:
    """Text as it is, anything else as base64."""
    told = json.loads(json.dumps(read(value=value).exported()))["value"]
    assert told == {"base64": told["base64"]} if isinstance(told, dict) else told.encode() == value
