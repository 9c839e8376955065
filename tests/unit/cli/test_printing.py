"""Text of others on a terminal: it is looked at, and does nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.printing import printable, printable_json
from service.cli.remote.running import Output, complain

ESCAPES = "\x1b[2J\x9b31m\x7f\u202e\ud800"
"""What clears a screen, colours it, deletes, turns the direction of writing round; and what no character set has."""


@given(st.text())
def test_nothing_but_ends_of_lines_and_what_can_be_seen_is_printed(text: str) -> None:
    """Whatever the text is; what can be seen stays as it is."""
    shown = printable(text)
    assert shown.replace("\n", "").isprintable()
    if text.isprintable():
        assert shown == text


@given(st.recursive(st.text() | st.integers(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)))
def test_json_that_is_printed_is_the_same_for_who_parses_it(value: object) -> None:
    """In one line or indented."""
    for indent in (None, 2):
        shown = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert shown.replace("\n", "").isprintable()
        assert json.loads(shown) == value


@pytest.mark.parametrize("is_json", [False, True])
def test_what_a_worker_tells_of_its_sources_does_nothing_to_the_terminal(
    capsys: pytest.CaptureFixture[str], *, is_json: bool
) -> None:
    """Traces in a status, lines of a log, messages of errors: a source may have had its say in each."""
    output = Output(is_json)
    output.show({"trace": ESCAPES}, ["trace"], [[ESCAPES]])
    output.say(ESCAPES, {"message": ESCAPES})
    complain(ESCAPES, "red")
    out, err = capsys.readouterr()
    assert "2J" in out
    assert "2J" in err
    assert not set(ESCAPES) - set("[2J31m") & set(out + err)
