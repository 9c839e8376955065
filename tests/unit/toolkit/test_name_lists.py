"""Lists of tables and columns by regular expressions."""

from fetchers.toolkit.name_lists import NameFilter, list_findings


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
