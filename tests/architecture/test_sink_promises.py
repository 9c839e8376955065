"""The page of what sinks promise names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_proof_exists() -> None:
    """By its name, in any file of the tests."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/guides/sink-promises.md").read_text()))
    there = {
        name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)\(", file.read_text())
    }
    assert named
    assert named <= there, sorted(named - there)
