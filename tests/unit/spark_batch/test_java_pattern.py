"""Java's regular expressions over names of topics."""

from __future__ import annotations

import pytest

from spark_batch.transforms.catalog import RegexRouter
from spark_batch.transforms.java_pattern import JavaPatternError, java_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"(.*)-lines", "a-lines", "a-line"),
        (r"\p{Lower}+\P{Lower}", "abC", "abc"),
        (r"\p{L}+", "aBc", "a1"),
        (r"[a-c&&[^b]]+", "aca", "abc"),
        (r"[a-z&&[b-y]&&[^c]]", "d", "c"),
        (r"[^a-c\d]", "x", "1"),
        (r"[a[x-z]]", "y", "b"),
        (r"[]a]", "]", "b"),
        (r"[\Qa-z\E]", "-", "b"),
        (r"[\w.-]+", "a_1.-", "a b"),
        (r"\Qa.b\E", "a.b", "axb"),
        (r"\Qa.b", "a.b", "axb"),
        (r"(?i)a[^b]", "AC", "AB"),
        (r"(?i:a)b", "Ab", "AB"),
        (r"\Aa\z", "a", "b"),
        (r"\x61\u0062", "ab", "b"),
        (r"[é]|b", "b", "e"),
        (r"[^é]", "b", ""),
        (r"a(?i)b", "aB", "AB"),
        (r"(a|ab)(c|bcd)(d*)", "abcd", "abc d"),
        (r"a{2,3}", "aa", "a"),
        (r"[a&&b]|c", "c", "a"),
        ("a*", "aa", "é"),
    ],
)
def test_what_java_writes(pattern: str, matching: str, other: str) -> None:
    """Matches what Java's would, and nothing else."""
    assert java_pattern(pattern).fullmatch(matching)
    assert not java_pattern(pattern).fullmatch(other)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[a",
        "[b-a]",
        r"\p{IsGreek}",
        r"\y",
        "\\",
        "(?x)a",
        "(?i)[a&&b]",
        "[a&&[b]",
        r"\01",
        "*",
        r"\G",
        "{1}",
        "a{",
        "a{,3}",
        "a{2,1}",
        "\ud800",
        "a" * 5000,
        "((a{20}){20}){20}",
        "(" * 3000 + ")" * 3000,
    ],
)
def test_what_cannot_be_carried_out_is_refused(pattern: str) -> None:
    """Wrong or only Java's: never guessed."""
    with pytest.raises(JavaPatternError):
        java_pattern(pattern)


@pytest.mark.parametrize("pattern", [r"(?<n>a)\k<n>", r"(a)\1", "a*+b", "a{2}+", "(?!a).", "(?<=a)b", "(?>a)b"])
def test_what_no_linear_engine_has_is_named(pattern: str) -> None:
    """The finding says why an expression that is right for Java is refused."""
    with pytest.raises(JavaPatternError, match="cannot be had in linear time"):
        java_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|a)*", "(a*)*b", "(?:a?){40}a{40}", "(.*)(.*)(.*)(.*)(.*)[^a]"])
def test_expressions_that_backtrack_for_years_are_answered(pattern: str) -> None:
    """An engine that tries one way after the other would not come back from any of these."""
    assert java_pattern(pattern).fullmatch("a" * 200 + "!") is None or pattern.endswith("[^a]")


@pytest.mark.parametrize(
    ("regex", "replacement", "topic", "expected"),
    [
        ("(.*)-lines", "$1-routed", "a-lines", "a-routed"),
        ("lines", "x", "a-lines", "a-lines"),
        ("(?<n>.*)-(b)", "${n}$2$0", "a-b", "aba-b"),
        ("(a)b", "$12", "ab", "a2"),
        ("(a)b", r"\$1\\", "ab", "$1\\"),
        ("a|ab", "x", "ab", "xb"),
        ("(a)|b", "x$1", "b", "x"),
        (".*", "x", "abc", "x"),
        ("", "x", "abc", "abc"),
    ],
)
def test_routes(regex: str, replacement: str, topic: str, expected: str) -> None:
    """As Java's `matches` and `replaceFirst`."""
    assert RegexRouter(regex, replacement).routed(topic) == expected


@pytest.mark.parametrize("replacement", ["$2", "$", "$x", "${m}", "${n", "a\\"])
def test_replacements_that_java_would_refuse(replacement: str) -> None:
    """Whether or not a topic matches."""
    with pytest.raises(JavaPatternError):
        RegexRouter("(?<n>a)", replacement).routed("b")
