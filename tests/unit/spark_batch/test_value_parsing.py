"""Texts of headers as Connect reads them; the differential test compares thousands with Java's class."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_batch.transforms.value_parsing import NotFollowedError, parsed_value


@pytest.mark.parametrize(
    ("text", "kind", "payload", "again"),
    [
        ("007", "int8", 7, "7"),
        ("-40000", "int32", -40000, "-40000"),
        ("1.50", "float", 1.5, "1.5"),
        ("true", "boolean", True, "true"),
        ('["a, b", "c"]', "array", ["a, b", "c"], '["a, b","c"]'),
        ('{"a": [1, 300]}', "map", {"a": [1, 300]}, '{"a":[1,300]}'),
        ("[1, null]", "string", "[1, null]", "[1, null]"),
        ("1,2", "int8", 1, "1"),
        ("2024-13-45", "int32", 20133, "2025-02-14"),
        ("two words", "string", "two words", "two words"),
        ("99999999999999999999", "bytes", "BWvHXi1jD///", "99999999999999999999"),
        ("1e99999999999999999999", "string", "1e99999999999999999999", "1e99999999999999999999"),
        ("-1E-99999999999999999999", "string", "-1E-99999999999999999999", "-1E-99999999999999999999"),
    ],
)
def test_a_text_is_what_it_looks_like(text: str, kind: str, payload: Any, again: str) -> None:
    """With its schema; what SimpleHeaderConverter writes of it need not be the same text."""
    found = parsed_value(text)
    assert found.schema is not None
    assert (found.schema["type"], json.loads(found.payload), found.text) == (kind, payload, again)


def test_nothing_is_read_of_null() -> None:
    """No schema, and no value."""
    assert (parsed_value("null").schema, parsed_value("null").text) == (None, None)


def test_lists_in_lists_end_somewhere() -> None:
    """Before Python's stack does."""
    with pytest.raises(NotFollowedError):
        parsed_value("[" * 100_000)


@pytest.mark.parametrize(("before", "digit", "behind"), [("", "7", ""), ("[1, ", "7", "]"), ("0.", "0", "7")])
def test_digits_of_a_number_end_somewhere(before: str, digit: str, behind: str) -> None:
    """A million of them would take minutes."""
    with pytest.raises(NotFollowedError):
        parsed_value(before + digit * 1_000_000 + behind)
