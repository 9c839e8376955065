"""Which rules a config means, how they are searched for, and what is wrong with one."""

from __future__ import annotations

import pytest

from fetchers.x.config import XStreamConfig
from fetchers.x.fetcher import XStreamSource
from fetchers.x.recovery import QUERY_CHARACTERS_MAX, queries
from fetchers.x.rules import Rule, keyword_rule, wanted_rules

GOOD = {"topic": "posts", "x.bearer.token": "odd-bearer-token", "x.keywords": "kafka"}


@pytest.mark.parametrize(
    ("keyword", "rule"),
    [
        ("kafka", "kafka"),
        ("san jose", "san jose"),
        ('"san jose"', '"san jose"'),
        ('cat "big dog"', 'cat "big dog"'),
        ("this or that", 'this "or" that'),
        ("OR", '"OR"'),
        ("-cat", '"-cat"'),
        ("from:jack", '"from:jack"'),
        ("(cat", '"(cat"'),
        ('5"', '"5"'),
        ("c++", '"c++"'),
        ("#kafka $TSLA @jack", "#kafka $TSLA @jack"),
        ("España 🐱", 'España "🐱"'),
    ],
)
def test_a_keyword_is_words_and_never_an_operator(keyword: str, rule: str) -> None:
    """In any order; a phrase stands in quotation marks."""
    assert keyword_rule(keyword) == rule


def test_equal_rules_are_wanted_once() -> None:
    """X would refuse the second; the first one's key is told."""
    rules = wanted_rules(
        keywords=("x.keywords", ["kafka", "olympics", "kafka"]),
        user_ids=("x.user.ids", ["12"]),
        rules=("x.rule", {"mine": "from:12", "cats": "cat has:images"}),
    )
    assert rules == (
        Rule("kafka", "1", "x.keywords"),
        Rule("olympics", "2", "x.keywords"),
        Rule("from:12", "user-12", "x.user.ids"),
        Rule("cat has:images", "cats", "x.rule.cats"),
    )


def test_searches_are_few_and_short_and_what_only_the_stream_knows_stands_alone() -> None:
    """Each rule stands in one of them, in brackets where it has several words."""
    rules = [Rule("kafka", "1", "k"), Rule("san jose", "2", "k"), Rule("cat sample:10", "3", "k")]
    assert list(queries(rules)) == ["cat sample:10", "kafka OR (san jose)"]
    assert list(queries(rules[1:2])) == ["san jose"]
    assert list(queries([Rule("(a OR b) (c OR d)", "1", "k")])) == ["(a OR b) (c OR d)"]
    many = [Rule(f"word{number} other", str(number), "k") for number in range(100)]
    found = list(queries(many))
    assert max(map(len, found)) <= QUERY_CHARACTERS_MAX
    assert [part for query in found for part in query.split(" OR ")] == [f"({rule.value})" for rule in many]


def findings(**changes: str | None) -> dict[str, str]:
    """Messages by key; keys have ``_`` for their dots, or dots."""
    properties = GOOD | {key if "." in key else key.replace("_", "."): text for key, text in changes.items()}
    parsed = XStreamConfig.parse(properties)
    assert parsed.config is not None, parsed.findings
    return {finding.key: finding.message for finding in XStreamSource(parsed.config).findings()}


def test_a_token_and_a_keyword_are_enough() -> None:
    """Everything else has a default."""
    assert findings() == {}


def test_without_a_token_key_and_secret_are_needed() -> None:
    """Both are missed at once."""
    assert set(findings(x_bearer_token=None)) == {"x.consumer.key", "x.consumer.secret"}
    assert findings(x_bearer_token=None, x_consumer_key="k", x_consumer_secret="s") == {}


def test_what_makes_no_rule_is_told() -> None:
    """Nothing at all, names of users, an empty rule, one that is too long."""
    assert set(findings(x_keywords=None)) == {"x.keywords"}
    assert "Expected the number" in findings(x_user_ids="1,jack")["x.user.ids"]
    found = findings(x_rule_none="", x_rule_long="cat " * 600)
    assert set(found) == {"x.rule.none", "x.rule.long"}


def test_what_the_connector_says_itself_is_refused_and_credentials_are_not_shown() -> None:
    """A start time of a person's own would end the stream."""
    found = findings(x_base_url="https://user:odd-password@x/", **{"x.query.start_time": "2024"})
    assert set(found) == {"x.query.start_time", "x.base.url"}
    assert "odd-password" not in found["x.base.url"]


def test_one_task_whatever_is_asked_for() -> None:
    """X allows an app one connection."""
    config = XStreamConfig.parse(GOOD).config
    assert config is not None
    assert len(XStreamSource(config).task_configs(8)) == 1
