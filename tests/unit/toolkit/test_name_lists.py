"""Lists of tables and columns by regular expressions."""

from typing import Any

import pytest

from fetchers.toolkit.name_lists import NameFilter, adjusted, list_findings


def test_lists_match_whole_names_in_any_case() -> None:
    """As Debezium's do; expressions that would take years take none."""
    wanted = NameFilter(["public\\.(a|b)", "(x+x+)+y"], [])
    assert wanted.takes("PUBLIC.A")
    assert not wanted.takes("public.ab")
    assert not wanted.takes("x" * 5000)
    assert not NameFilter([], ["public\\.a"]).takes("public.a")
    assert NameFilter([], ["public\\.a"]).takes("public.b")


def test_lists_that_exclude_each_other_or_are_no_expressions_are_refused() -> None:
    """Each under its key."""
    found = list_findings({"table.include.list": ["a"], "table.exclude.list": ["b"], "column.include.list": ["("]})
    assert [finding.key for finding in found] == ["table.exclude.list", "column.include.list"]


@pytest.mark.parametrize(
    ("mode", "expected"), [("none", "a-b.1ü"), ("avro", "a_b._1_"), ("avro_unicode", "a_u002db._1_u00fc")]
)
def test_names_are_adjusted(mode: Any, expected: str) -> None:
    """By the mode."""
    assert adjusted("a-b.1ü", mode) == expected
