"""Typical mistakes get a sentence that helps, and the guide says which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.apis.cli.mistakes import HEAD, MISTAKES, TOLD_CHARACTERS_MAX, Mistake, _cell, outcome

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "mistakes.md"
RIDDLES = re.compile(r"Traceback|Py4J|object at 0x|STARTED|expected expected|NoneType|KeyError|\bErrno\b")
"""What is no sentence for people."""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_mistake_gets_what_the_guide_says(mistake: Mistake, tmp_path: Path) -> None:
    """Refused, in words, and in just these: who changes them reads them in the guide."""
    code, text = outcome(mistake, tmp_path)
    assert code != "0"
    assert 10 < len(text) <= TOLD_CHARACTERS_MAX
    assert RIDDLES.search(text) is None
    assert f"| {mistake.title} | {code} | {_cell(text)} |" in PAGE.read_text(encoding="utf-8").splitlines()


def test_the_guide_lists_these_mistakes_and_no_others() -> None:
    """Sixty at least."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.startswith(HEAD)
    assert len(page.splitlines()) == len(HEAD.splitlines()) + len(MISTAKES)
    assert len({mistake.title for mistake in MISTAKES}) == len(MISTAKES) >= 60
