"""Keys of a database without an encoding, as SQL."""

from __future__ import annotations

import pytest

from fetchers.toolkit.postgres_texts import key_literal, text_literal


@pytest.mark.parametrize("text", ["", "a", "it's", r"a\\b", r"\374\377", r"\\x6162", "two\nlines"])
def test_a_key_that_was_written_escaped_is_read_so(text: str) -> None:
    """Only ASCII, doubled backslashes and bytes above ASCII as three octal digits come from ``key_text``."""
    assert key_literal(text) == "E'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize("text", ["ü", r"\x6162", r"\x", r"a\b", "a\\", r"\\\x", r"it's\n", r"\101", "ü\\\\"])
def test_a_key_that_an_earlier_release_has_stored_is_read_as_it_is(text: str) -> None:
    """It stored texts as they are; a key of the type ``bytea`` begins with a backslash."""
    assert key_literal(text) == text_literal(text)
